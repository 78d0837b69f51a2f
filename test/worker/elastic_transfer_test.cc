#include "worker/elastic_transfer.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "test/support/fake_runtime.h"

namespace muster::worker {
namespace {

using testing::FakeJob;
using testing::FakeRuntime;

TEST_CASE("gathered texts keep their rank and length") {
  FakeJob job(3);
  std::array<std::vector<std::string>, 3> gathered;
  const std::array<std::string, 3> texts = {"zero", "", std::string("t\0wo", 4)};
  job.RunAll([&](FakeRuntime& runtime) {
    gathered[runtime.id()] = GatherTexts(runtime, "texts", texts[runtime.id()]);
  });
  for (const auto& all : gathered) {
    CHECK(all == std::vector<std::string>(texts.begin(), texts.end()));
  }
}

TEST_CASE("a text is broadcast with its length, also an empty one") {
  FakeJob job(2);
  std::array<std::string, 2> received;
  job.RunAll([&](FakeRuntime& runtime) {
    const bool root = runtime.place().rank == 1;
    received[runtime.id()] = BroadcastText(runtime, "empty", 1, root ? "" : "ignored");
    if (!received[runtime.id()].empty()) {
      throw std::logic_error("not empty");
    }
    received[runtime.id()] = BroadcastText(runtime, "text", 1, root ? "from rank 1" : "");
  });
  CHECK(received[0] == "from rank 1");
  CHECK(received[1] == "from rank 1");
}

TEST_CASE("a text whose announced length is beyond all reason is refused, not made room for") {
  FakeJob job(2);
  std::array<std::string, 2> refused;
  job.RunAll([&](FakeRuntime& runtime) {
    if (runtime.place().rank == 1) {  // A source that lies, or speaks another version.
      uint64_t size = UINT64_MAX;
      Broadcasts length(runtime, "text.size", 1);
      length.Add(&size, sizeof size);
      length.Finish();
      return;
    }
    try {
      (void)BroadcastText(runtime, "text", 1, "");
    } catch (const Error& error) {
      refused[runtime.id()] = error.what();
    }
  });
  CHECK(refused[0].find("rank 1") != std::string::npos);
}

TEST_CASE("more buffers than fit in the window arrive in order") {
  constexpr int kBuffers = 50;
  FakeJob job(2);
  std::array<std::vector<std::vector<int>>, 2> buffers;
  std::array<uint64_t, 2> bytes{};
  job.RunAll([&](FakeRuntime& runtime) {
    auto& mine = buffers[runtime.id()];
    Broadcasts broadcasts(runtime, "buffers", 0);
    for (int i = 0; i < kBuffers; ++i) {
      mine.emplace_back(i, runtime.id() == 0 ? i : -1);  // The first is empty.
    }
    for (auto& buffer : mine) {
      broadcasts.Add(buffer.data(), buffer.size() * sizeof(int));
    }
    broadcasts.Finish();
    bytes[runtime.id()] = broadcasts.bytes();
  });
  CHECK(buffers[0] == buffers[1]);
  CHECK(bytes[1] == sizeof(int) * kBuffers * (kBuffers - 1) / 2);
}

TEST_CASE("a buffer larger than a chunk arrives whole") {
  constexpr size_t kSize = (size_t{64} << 20) + 12345;
  FakeJob job(2);
  std::array<std::vector<uint8_t>, 2> buffers;
  job.RunAll([&](FakeRuntime& runtime) {
    auto& mine = buffers[runtime.id()];
    mine.resize(kSize);
    if (runtime.id() == 0) {
      for (size_t i = 0; i < kSize; i += 1000) {
        mine[i] = static_cast<uint8_t>(i / 1000);
      }
    }
    Broadcasts broadcasts(runtime, "large", 0);
    broadcasts.Add(mine.data(), kSize);
    broadcasts.Finish();
  });
  CHECK(std::count(job.worker(1).submitted.begin(), job.worker(1).submitted.end(), "large.1") == 1);
  CHECK(buffers[0] == buffers[1]);
}

TEST_CASE("broadcasts that meet a loss leave nothing under way") {
  FakeJob job(3);
  job.LoseAt(2, "buffers.5");
  std::array<bool, 3> lost{};
  job.RunAll([&](FakeRuntime& runtime) {
    std::vector<int> memory(30, runtime.id());
    Broadcasts broadcasts(runtime, "buffers", 0);
    try {
      for (int& one : memory) {
        broadcasts.Add(&one, sizeof one);
      }
      broadcasts.Finish();
    } catch (const WorkersLost&) {
      lost[runtime.id()] = true;
      broadcasts.Finish();  // Nothing is left to wait for, so nothing is thrown.
    }
  });
  CHECK(lost == std::array<bool, 3>{true, true, false});
}

}  // namespace
}  // namespace muster::worker
