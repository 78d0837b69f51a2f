#include "worker/collective/peer_mesh.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <thread>

#include "test/worker/collective/mesh_fixture.h"

namespace muster::worker {
namespace {

using Clock = std::chrono::steady_clock;

PeerMesh::Deadline In(std::chrono::milliseconds time) {
  return Clock::now() + time;
}
PeerMesh::Deadline Soon() {
  return In(std::chrono::seconds(10));
}

/// Two meshes, driven in turn by the test's thread.
struct Pair {
  std::vector<std::vector<PrivateFd>> sockets = ConnectAll(2);
  PeerMesh a{0, std::move(sockets[0])};
  PeerMesh b{1, std::move(sockets[1])};
};

}  // namespace

TEST_CASE("mesh gives a message that nobody asked for no more memory than has arrived") {
  Pair pair;
  PeerMesh::Completions sent;
  PeerMesh::Completions received;
  std::vector<char> early(100'000);
  std::iota(early.begin(), early.end(), '\0');
  const int value = 42;
  int got = 0;
  std::vector<char> got_early(early.size());
  REQUIRE(pair.a.Send(1, 1, early.data(), early.size(), sent).ok());
  REQUIRE(pair.a.Send(1, 2, &value, sizeof value, sent).ok());
  REQUIRE(pair.b.Receive({0}, 2, &got, sizeof got, received).ok());
  while (received.received.empty()) {
    REQUIRE(pair.a.Wait(sent.sent, Soon()).ok());
    REQUIRE(pair.b.Wait(received.received, Soon()).ok());
  }
  CHECK(got == value);
  REQUIRE(pair.b.Receive({0}, 1, got_early.data(), got_early.size(), received).ok());
  CHECK(received.received.size() == 2);
  CHECK(got_early == early);

  // The header alone of a message that no memory could hold, to a receive that waits behind it.
  const uint64_t header[2] = {3, UINT64_MAX};
  auto sockets = ConnectAll(2);
  PeerMesh mesh(1, std::move(sockets[1]));
  REQUIRE(WriteSome(sockets[0][1].get(), header, sizeof header) == sizeof header);
  REQUIRE(mesh.Receive({0}, 4, &got, sizeof got, received).ok());
  sockets[0][1].Reset();
  std::deque<int> none;
  CHECK(mesh.Wait(none, Soon()).code() == StatusCode::kFailed);
  CHECK(mesh.suspects() == std::vector<int>{0});
  mesh.Cancel(received);
}

TEST_CASE("mesh moves a message to the receive that names its slot") {
  Pair pair;
  PeerMesh::Completions sent;
  PeerMesh::Completions received;
  const int value = 42;
  int got = 0;
  REQUIRE(pair.a.Send(1, 9, &value, sizeof value, sent).ok());
  REQUIRE(pair.a.Wait(sent.sent, Soon()).ok());
  CHECK(sent.sent.front() == 1);
  REQUIRE(pair.b.Receive({0}, 9, &got, sizeof got, received).ok());
  REQUIRE(pair.b.Wait(received.received, Soon()).ok());
  CHECK(received.received.front() == 0);
  CHECK(got == 42);
}

TEST_CASE("mesh moves messages of no bytes") {
  Pair pair;
  PeerMesh::Completions sent;
  PeerMesh::Completions received;
  REQUIRE(pair.a.Send(1, 1, nullptr, 0, sent).ok());
  REQUIRE(pair.b.Receive({0}, 1, nullptr, 0, received).ok());
  REQUIRE(pair.b.Wait(received.received, Soon()).ok());
}

TEST_CASE("mesh serves receives in another order than the messages came in") {
  Pair pair;
  PeerMesh::Completions sent;
  const int values[] = {1, 2, 3};
  for (uint64_t slot = 0; slot < 3; ++slot) {
    REQUIRE(pair.a.Send(1, slot, &values[slot], sizeof(int), sent).ok());
  }
  for (const uint64_t slot : {2u, 0u, 1u}) {
    PeerMesh::Completions received;
    int got = 0;
    REQUIRE(pair.b.Receive({0}, slot, &got, sizeof got, received).ok());
    REQUIRE(pair.b.Wait(received.received, Soon()).ok());
    CHECK(got == values[slot]);
  }
}

TEST_CASE("mesh keeps messages of one slot in their order") {
  Pair pair;
  PeerMesh::Completions sent;
  const int values[] = {1, 2, 3};
  for (const int& value : values) {
    REQUIRE(pair.a.Send(1, 5, &value, sizeof value, sent).ok());
  }
  int got[3] = {};
  PeerMesh::Completions received;
  for (int& place : got) {
    REQUIRE(pair.b.Receive({0}, 5, &place, sizeof place, received).ok());
  }
  for (int i = 0; i < 3; ++i) {
    REQUIRE(pair.b.Wait(received.received, Soon()).ok());
    received.received.pop_front();
  }
  CHECK(std::equal(got, got + 3, values));
}

TEST_CASE("mesh receives from whichever rank comes first") {
  auto sockets = ConnectAll(3);
  PeerMesh a(0, std::move(sockets[0]));
  PeerMesh b(1, std::move(sockets[1]));
  PeerMesh c(2, std::move(sockets[2]));
  PeerMesh::Completions received;
  PeerMesh::Completions sent;
  int got = 0;
  REQUIRE(a.Receive({1, 2}, 4, &got, sizeof got, received).ok());
  const int value = 7;
  REQUIRE(c.Send(0, 4, &value, sizeof value, sent).ok());
  REQUIRE(a.Wait(received.received, Soon()).ok());
  CHECK(received.received.front() == 2);
  CHECK(got == 7);
}

TEST_CASE("mesh moves both ways at once more than the kernel buffers") {
  auto sockets = ConnectAll(2);
  const size_t count = 4u << 20;
  OnAllRanks(2, [&](int rank) {
    PeerMesh mesh(rank, std::move(sockets[rank]));
    std::vector<int> out(count);
    std::iota(out.begin(), out.end(), rank);
    std::vector<int> in(count);
    PeerMesh::Completions completions;
    const size_t bytes = count * sizeof(int);
    if (!mesh.Receive({1 - rank}, 1, in.data(), bytes, completions).ok() ||
        !mesh.Send(1 - rank, 1, out.data(), bytes, completions).ok() ||
        !mesh.Wait(completions.sent, Soon()).ok() ||
        !mesh.Wait(completions.received, Soon()).ok() ||
        in[count - 1] != 1 - rank + static_cast<int>(count) - 1) {
      throw std::runtime_error("the exchange failed");
    }
  });
}

TEST_CASE("mesh times out and suspects whom it waited for") {
  Pair pair;
  PeerMesh::Completions received;
  int got = 0;
  REQUIRE(pair.b.Receive({0}, 1, &got, sizeof got, received).ok());
  CHECK(pair.b.Wait(received.received, In(std::chrono::milliseconds(20))).code() ==
        StatusCode::kTimeout);
  CHECK(pair.b.suspects() == std::vector<int>{0});
  pair.b.Cancel(received);
}

TEST_CASE("mesh abort ends a wait from another thread, and every later one") {
  Pair pair;
  PeerMesh::Completions received;
  int got = 0;
  REQUIRE(pair.b.Receive({0}, 1, &got, sizeof got, received).ok());
  std::jthread aborter([&] { pair.b.Abort(); });
  CHECK(pair.b.Wait(received.received, Soon()).code() == StatusCode::kAborted);
  CHECK(pair.b.Wait(received.received, Soon()).code() == StatusCode::kAborted);
  CHECK(pair.b.suspects().empty());
  pair.b.Cancel(received);
}

TEST_CASE("mesh abort ends a wait also where no descriptor was left to be woken by") {
  std::vector<std::vector<PrivateFd>> sockets = ConnectAll(2);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(0);
  REQUIRE(next >= 0);
  ::close(next);
  const rlimit low{static_cast<rlim_t>(next), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  PeerMesh mesh(0, std::move(sockets[0]));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  PeerMesh::Completions received;
  int got = 0;
  REQUIRE(mesh.Receive({1}, 1, &got, sizeof got, received).ok());
  std::jthread aborter([&] { mesh.Abort(); });
  CHECK(mesh.Wait(received.received, Soon()).code() == StatusCode::kAborted);
  mesh.Cancel(received);
}

TEST_CASE("mesh names the rank whose socket has closed") {
  auto sockets = ConnectAll(3);
  PeerMesh a(0, std::move(sockets[0]));
  PeerMesh::Completions received;
  int got = 0;
  REQUIRE(a.Receive({2}, 1, &got, sizeof got, received).ok());
  sockets[2].clear();
  CHECK(a.Wait(received.received, Soon()).code() == StatusCode::kFailed);
  CHECK(a.suspects() == std::vector<int>{2});
  PeerMesh::Completions later;
  CHECK_FALSE(a.Send(1, 1, &got, sizeof got, later).ok());
  a.Cancel(received);
}

TEST_CASE("mesh delivers what came before its peer closed") {
  auto sockets = ConnectAll(2);
  PeerMesh b(1, std::move(sockets[1]));
  PeerMesh::Completions sent;
  PeerMesh::Completions received;
  const int value = 3;
  {
    PeerMesh a(0, std::move(sockets[0]));
    REQUIRE(a.Send(1, 1, &value, sizeof value, sent).ok());
  }
  int got = 0;
  REQUIRE(b.Receive({0}, 1, &got, sizeof got, received).ok());
  CHECK(b.Wait(received.received, Soon()).ok());
  CHECK(got == 3);
}

TEST_CASE("mesh refuses a message of another size than expected") {
  Pair pair;
  PeerMesh::Completions sent;
  PeerMesh::Completions received;
  const int64_t value = 1;
  int got = 0;
  REQUIRE(pair.a.Send(1, 1, &value, sizeof value, sent).ok());
  Status status = pair.b.Receive({0}, 1, &got, sizeof got, received);
  if (status.ok()) {
    status = pair.b.Wait(received.received, Soon());
  }
  CHECK(status.code() == StatusCode::kFailed);
  CHECK(got == 0);
  pair.b.Cancel(received);
}

TEST_CASE("mesh touches no memory of a receive that was cancelled") {
  Pair pair;
  PeerMesh::Completions sent;
  const std::vector<char> value(100'000, 'x');
  std::vector<char> got(value.size(), '-');
  PeerMesh::Completions received;
  REQUIRE(pair.b.Receive({0}, 1, got.data(), got.size(), received).ok());
  pair.b.Cancel(received);
  REQUIRE(pair.a.Send(1, 1, value.data(), value.size(), sent).ok());
  PeerMesh::Completions other;
  char byte = 0;
  // The mesh is broken by the cut, so that nothing can be taken for something else.
  CHECK_FALSE(pair.b.Receive({0}, 2, &byte, 1, other).ok());
  CHECK(got == std::vector<char>(value.size(), '-'));
  pair.a.Cancel(sent);
}

}  // namespace muster::worker
