#include "worker/shm/segment_client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/worker_page.h"
#include "test/support/loop_awaiter.h"
#include "test/support/temporary_folder.h"

namespace muster::worker {
namespace {

constexpr int kBacklog = 4;

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// The agent's end of one connection.
class Peer {
 public:
  explicit Peer(UniqueFd fd) : fd_(std::move(fd)) {}

  SegmentRequest Read() {
    SegmentRequest request;
    REQUIRE(::recv(fd_.get(), &request, sizeof request, 0) == sizeof request);
    return request;
  }
  void Answer(const std::string& error, const std::vector<int>& descriptors, size_t bytes) {
    char answer[2 * sizeof(PageAnswer)] = {};
    std::strncpy(answer, error.c_str(), sizeof(PageAnswer) - 1);
    iovec part{answer, bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
      const size_t size = descriptors.size() * sizeof(int);
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(size);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(size);
      std::memcpy(CMSG_DATA(header), descriptors.data(), size);
    }
    REQUIRE(::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
  }
  void Answer(const std::string& error, const std::vector<int>& descriptors) {
    Answer(error, descriptors, sizeof(PageAnswer));
  }
  /// True once the client has gone.
  bool HasEnded() {
    char byte = 0;
    return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  UniqueFd fd_;
};

/// The listening side of page.sock, and a client on a loop of this thread.
class Fixture {
 public:
  explicit Fixture(bool listens = true) {
    if (!listens) {
      return;
    }
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = folder_.Path(kPageSocketName);
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), kBacklog) == 0);
  }

  void Ask(Duration deadline = std::chrono::seconds(20), const std::string& key = "abc") {
    client_ = std::make_unique<SegmentClient>(
        loop_,
        directory_.empty() ? folder_.Path(".") : directory_,
        7,
        key,
        1ULL << 40,
        [this](Result<UniqueFd> segment) {
          REQUIRE_FALSE(result_.has_value());
          result_.emplace(std::move(segment));
          client_.reset();  // It may.
          awaiter_.Changed();
        },
        deadline);
  }
  std::unique_ptr<Peer> Accept() {
    UniqueFd fd;
    REQUIRE(Await([&] {
      if (!fd.valid()) {
        fd = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      }
      return fd.valid();
    }));
    return std::make_unique<Peer>(std::move(fd));
  }
  Result<UniqueFd>& AwaitResult() {
    REQUIRE(Await([this] { return result_.has_value(); }));
    return *result_;
  }
  std::string AwaitError() {
    REQUIRE_FALSE(AwaitResult().ok());
    return result_->status().message();
  }
  /// Looks at every turn of the loop and every millisecond: the server is not on the loop.
  bool Await(const std::function<bool()>& condition) {
    poll_ = [this] {
      awaiter_.Changed();
      timer_ = loop_.After(std::chrono::milliseconds(1), poll_);
    };
    timer_ = loop_.After(Duration::zero(), poll_);
    const bool met = awaiter_.Await(condition);
    loop_.Cancel(timer_);
    return met;
  }
  void Destroy() { client_.reset(); }
  bool answered() const { return result_.has_value(); }
  void SetDirectory(std::string directory) { directory_ = std::move(directory); }
  std::string path() const { return folder_.Path(kPageSocketName); }

 private:
  TemporaryFolder folder_;
  std::string directory_;
  UniqueFd listener_;
  Loop loop_;
  LoopAwaiter awaiter_{loop_};
  std::function<void()> poll_;
  Loop::TimerId timer_;
  std::optional<Result<UniqueFd>> result_;
  std::unique_ptr<SegmentClient> client_;
};

UniqueFd Memory(const std::string& text) {
  UniqueFd fd(::memfd_create("client-test", MFD_CLOEXEC));
  REQUIRE(::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return fd;
}

}  // namespace

TEST_CASE("segment client says who it is and takes the memory that the agent sends") {
  Fixture fixture;
  const std::string key(64, 'k');
  fixture.Ask(std::chrono::seconds(20), key);
  const std::unique_ptr<Peer> peer = fixture.Accept();
  const SegmentRequest request = peer->Read();
  CHECK(std::string(request.magic, sizeof request.magic) == "MUSTSEG1");
  CHECK(request.incarnation == 7);
  CHECK(request.generation == 1ULL << 40);
  CHECK(std::string(request.key, sizeof request.key) == key);
  CHECK_FALSE(fixture.answered());
  const UniqueFd memory = Memory("hello");
  peer->Answer("", {memory.get()});
  const Result<UniqueFd>& segment = fixture.AwaitResult();
  REQUIRE(segment.ok());
  char text[6] = {};
  CHECK(::pread(segment.value().get(), text, 5, 0) == 5);
  CHECK(std::string(text) == "hello");
  CHECK((::fcntl(segment.value().get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(peer->HasEnded());
}

TEST_CASE("segment client tells of a refusal in the agent's words") {
  Fixture fixture;
  fixture.Ask();
  const std::unique_ptr<Peer> peer = fixture.Accept();
  peer->Read();
  peer->Answer("generation 3 is over", {});
  CHECK(fixture.AwaitError() == "the agent gives no shared memory: generation 3 is over");
}

TEST_CASE("segment client takes nothing but one answer with one descriptor, and leaks none") {
  const UniqueFd memory = Memory("x");
  const size_t before = OpenDescriptors();
  {
    Fixture fixture;
    fixture.Ask();
    const std::unique_ptr<Peer> peer = fixture.Accept();
    peer->Read();
    const int fd = memory.get();
    SECTION("no descriptor") {
      peer->Answer("", {});
      CHECK(fixture.AwaitError().find("did not arrive") != std::string::npos);
    }
    SECTION("two descriptors") {
      peer->Answer("", {fd, fd});
      CHECK(fixture.AwaitError().find("not of this version") != std::string::npos);
    }
    SECTION("eight descriptors") {
      peer->Answer("", {fd, fd, fd, fd, fd, fd, fd, fd});
      CHECK(fixture.AwaitError().find("not of this version") != std::string::npos);
    }
    SECTION("a descriptor with a refusal") {
      peer->Answer("no", {fd});
      CHECK(fixture.AwaitError().find("no shared memory: no") != std::string::npos);
    }
    SECTION("a short answer") {
      peer->Answer("", {fd}, 10);
      CHECK(fixture.AwaitError().find("not of this version") != std::string::npos);
    }
    SECTION("a long answer") {
      peer->Answer("", {fd}, sizeof(PageAnswer) + 1);
      CHECK(fixture.AwaitError().find("not of this version") != std::string::npos);
    }
    SECTION("an error without an end") {
      peer->Answer(std::string(sizeof(PageAnswer), 'e'), {fd});
      CHECK(fixture.AwaitError().find("eee") != std::string::npos);
    }
  }
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("segment client notices an agent that hangs up") {
  Fixture fixture;
  fixture.Ask();
  fixture.Accept()->Read();  // And is gone.
  CHECK_FALSE(fixture.AwaitError().empty());
}

TEST_CASE("segment client fails at once where nobody listens") {
  Fixture fixture(false);
  SECTION("no socket") {}
  SECTION("a path that is too long") {
    fixture.SetDirectory("/" + std::string(200, 'd'));
  }
  fixture.Ask();
  CHECK_FALSE(fixture.answered());  // Never from within its constructor.
  fixture.AwaitError();
  CHECK(fixture.AwaitResult().status().code() == StatusCode::kFailed);
}

TEST_CASE("segment client gives a silent agent up after the deadline") {
  Fixture fixture;
  fixture.Ask(std::chrono::milliseconds(20));
  const std::unique_ptr<Peer> peer = fixture.Accept();
  fixture.AwaitError();
  CHECK(fixture.AwaitResult().status().code() == StatusCode::kTimeout);
  CHECK(peer->Read().generation > 0);
  CHECK(fixture.Await([&] { return peer->HasEnded(); }));
}

TEST_CASE("segment client waits while the agent's queue is full, until the deadline") {
  Fixture fixture;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, fixture.path().c_str(), sizeof address.sun_path - 1);
  std::vector<UniqueFd> others;
  for (bool full = false; !full;) {
    others.emplace_back(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    full =
        ::connect(others.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0;
    REQUIRE((!full || errno == EAGAIN));
    REQUIRE(others.size() < 100);
  }
  SECTION("which it does not outlast") {
    fixture.Ask(std::chrono::milliseconds(20));
    fixture.AwaitError();
    CHECK(fixture.AwaitResult().status().code() == StatusCode::kTimeout);
  }
  SECTION("which it does") {
    fixture.Ask();
    const UniqueFd memory = Memory("x");
    for (size_t i = 0; i + 1 < others.size(); ++i) {
      fixture.Accept();
    }
    const std::unique_ptr<Peer> peer = fixture.Accept();
    CHECK(peer->Read().incarnation == 7);
    peer->Answer("", {memory.get()});
    CHECK(fixture.AwaitResult().ok());
  }
}

TEST_CASE("segment client that is destroyed calls nobody and leaves nothing open") {
  const size_t before = OpenDescriptors();
  {
    Fixture fixture;
    fixture.Ask(std::chrono::milliseconds(50));
    std::unique_ptr<Peer> peer;
    const bool connected = GENERATE(false, true);
    if (connected) {
      peer = fixture.Accept();
      peer->Read();
      peer->Answer("too late", {});
    }
    fixture.Destroy();
    if (connected) {
      CHECK(fixture.Await([&] { return peer->HasEnded(); }));
    }
    CHECK_FALSE(fixture.answered());
  }
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("segment client without room for a descriptor says so") {
  Fixture fixture;
  fixture.Ask();
  const std::unique_ptr<Peer> peer = fixture.Accept();
  const UniqueFd memory = Memory("x");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  UniqueFd next(::dup(0));
  const rlimit low{static_cast<rlim_t>(next.get()), before.rlim_max};
  next.Reset();
  peer->Answer("", {memory.get()});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  const std::string error = fixture.AwaitError();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(error.find("too many open files") != std::string::npos);
}

}  // namespace muster::worker
