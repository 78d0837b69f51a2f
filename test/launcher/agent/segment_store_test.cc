#include "launcher/agent/segment_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/worker_segment.h"
#include "test/support/loop_awaiter.h"

namespace muster::launcher {
namespace {

using Sizes = std::vector<size_t>;

// Memory that can be counted, and run out of. On the maker's thread.
class FakeMemory {
 public:
  SegmentMaker::Make Make() {
    return [this](size_t bytes) -> Result<UniqueFd> {
      std::shared_future<void> gate;
      bool empty = false;
      {
        const MutexLock lock(mutex_);
        sizes_.push_back(bytes);
        empty = empty_;
        gate = sizes_.size() > ungated_ ? gate_ : gate;
      }
      if (gate.valid()) {
        gate.wait_for(std::chrono::seconds(20));
      }
      return empty ? Result<UniqueFd>(Status::Failed("no memory at all")) : MakeSegment(bytes);
    };
  }
  void SetEmpty(bool empty) {
    const MutexLock lock(mutex_);
    empty_ = empty;
  }
  /// What is made from now on waits for it, but for the first so many of all.
  void SetGate(std::shared_future<void> gate, size_t ungated = 0) {
    const MutexLock lock(mutex_);
    gate_ = std::move(gate);
    ungated_ = ungated;
  }
  Sizes sizes() {
    const MutexLock lock(mutex_);
    return sizes_;
  }

 private:
  Mutex mutex_;
  bool empty_ MUSTER_GUARDED_BY(mutex_) = false;
  std::shared_future<void> gate_ MUSTER_GUARDED_BY(mutex_);
  size_t ungated_ MUSTER_GUARDED_BY(mutex_) = 0;
  Sizes sizes_ MUSTER_GUARDED_BY(mutex_);
};

// Of this process.
size_t OpenSegments() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    count += target.find("muster-segment") != std::string::npos ? 1 : 0;
  }
  return count;
}

struct Given {
  ino_t inode = 0;
  off_t bytes = 0;
  char first = 'x';
  std::string error;
};

class Fixture {
 public:
  explicit Fixture(Duration spare_delay = Duration::zero())
      : store_(std::make_unique<SegmentStore>(
            loop_, SegmentStore::Options{memory_.Make(), spare_delay})) {}

  SegmentStore& store() { return *store_; }
  FakeMemory& memory() { return memory_; }
  void Destroy() { store_.reset(); }

  /// The answer, once it is there.
  std::shared_ptr<std::optional<Given>> Ask(uint64_t generation) {
    auto given = std::make_shared<std::optional<Given>>();
    store_->Ask(generation, [this, given](const Result<int>& segment) {
      REQUIRE_FALSE(given->has_value());
      *given = Given{.error = segment.status().message()};
      if (segment.ok()) {
        struct stat status {};
        REQUIRE(::fstat(segment.value(), &status) == 0);
        (*given)->inode = status.st_ino;
        (*given)->bytes = status.st_size;
        // Every generation leaves its mark, which no other may find.
        REQUIRE(::pread(segment.value(), &(*given)->first, 1, 0) == 1);
        REQUIRE(::pwrite(segment.value(), "m", 1, 0) == 1);
      }
      awaiter_.Changed();
    });
    return given;
  }
  Given AskAndAwait(uint64_t generation) {
    const auto given = Ask(generation);
    REQUIRE(Await([&] { return given->has_value(); }));
    return **given;
  }
  /// Looks again every millisecond: what the maker does changes nothing on the loop.
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
  bool AwaitSizes(const Sizes& sizes) {
    return Await([&] { return memory_.sizes() == sizes; });
  }

 private:
  Loop loop_;
  LoopAwaiter awaiter_{loop_};
  std::function<void()> poll_;
  Loop::TimerId timer_;
  FakeMemory memory_;
  std::unique_ptr<SegmentStore> store_;
};

constexpr Duration kNever = std::chrono::hours(1);

}  // namespace

TEST_CASE("segment store gives all workers of a generation the same memory") {
  Fixture fixture(kNever);
  fixture.store().Order(3, 2);
  const auto first = fixture.Ask(3);
  const auto second = fixture.Ask(3);
  REQUIRE(fixture.Await([&] { return first->has_value() && second->has_value(); }));
  const Given third = fixture.AskAndAwait(3);
  CHECK((*first)->error.empty());
  CHECK((*first)->bytes == static_cast<off_t>(SegmentBytes(2)));
  CHECK((*first)->inode == (*second)->inode);
  CHECK((*first)->inode == third.inode);
  CHECK((*first)->first == 0);
  CHECK(fixture.memory().sizes() == Sizes{SegmentBytes(2)});
}

TEST_CASE("segment store refuses generations that are over or have not been ordered") {
  Fixture fixture(kNever);
  CHECK_FALSE(fixture.AskAndAwait(0).error.empty());
  CHECK_FALSE(fixture.AskAndAwait(1).error.empty());
  fixture.store().Order(2, 2);
  CHECK_FALSE(fixture.AskAndAwait(1).error.empty());
  CHECK_FALSE(fixture.AskAndAwait(3).error.empty());
  CHECK_FALSE(fixture.AskAndAwait(UINT64_MAX).error.empty());
  CHECK(fixture.memory().sizes().empty());
  REQUIRE(fixture.AskAndAwait(2).error.empty());
  fixture.store().Revoke(1);  // Late.
  REQUIRE(fixture.AskAndAwait(2).error.empty());
  fixture.store().Order(1, 2);  // Late, too.
  REQUIRE(fixture.AskAndAwait(2).error.empty());
  fixture.store().Revoke(2);
  CHECK_FALSE(fixture.AskAndAwait(2).error.empty());
}

TEST_CASE("segment store forgets the memory of a generation that is over") {
  const bool revoked = GENERATE(false, true);
  Fixture fixture(kNever);
  fixture.store().Order(1, 2);
  REQUIRE(fixture.AskAndAwait(1).error.empty());
  CHECK(OpenSegments() == 1);
  if (revoked) {
    fixture.store().Revoke(1);
  } else {
    fixture.store().Order(2, 2);
  }
  CHECK(fixture.Await([] { return OpenSegments() == 0; }));
}

TEST_CASE("segment store closes everything when it ends") {
  Fixture fixture;
  fixture.store().Order(1, 2);
  REQUIRE(fixture.AskAndAwait(1).error.empty());
  REQUIRE(fixture.Await([&] { return fixture.store().has_spare(); }));
  CHECK(OpenSegments() == 2);
  fixture.Destroy();
  CHECK(OpenSegments() == 0);
}

TEST_CASE("segment store without memory tells all of the generation, and tries again later") {
  Fixture fixture(kNever);
  fixture.memory().SetEmpty(true);
  fixture.store().Order(1, 2);
  CHECK(fixture.AskAndAwait(1).error == "no memory at all");
  fixture.memory().SetEmpty(false);
  CHECK(fixture.AskAndAwait(1).error == "no memory at all");  // All or none.
  CHECK(fixture.memory().sizes().size() == 1);
  fixture.store().Order(2, 2);
  CHECK(fixture.AskAndAwait(2).error.empty());
}

TEST_CASE("segment store takes the spare for a generation that is no larger") {
  Fixture fixture;
  fixture.store().Order(1, 3);
  const Given first = fixture.AskAndAwait(1);
  REQUIRE(fixture.AwaitSizes({SegmentBytes(3), SegmentBytes(3)}));
  REQUIRE(fixture.Await([&] { return fixture.store().has_spare(); }));
  fixture.store().Revoke(1);
  const size_t members = GENERATE(2, 3);
  fixture.store().Order(2, members);
  const auto second = fixture.Ask(2);
  REQUIRE(second->has_value());  // At once.
  CHECK((*second)->error.empty());
  CHECK((*second)->inode != first.inode);
  CHECK((*second)->first == 0);
  CHECK((*second)->bytes == static_cast<off_t>(SegmentBytes(3)));
  // As large as before: the slot that was lost is filled again.
  REQUIRE(fixture.AwaitSizes({SegmentBytes(3), SegmentBytes(3), SegmentBytes(3)}));
  fixture.store().Order(3, 3);
  const Given third = fixture.AskAndAwait(3);
  CHECK(third.first == 0);
  CHECK(third.inode != first.inode);
  CHECK(third.inode != (*second)->inode);
}

TEST_CASE("segment store makes a new segment where the spare is too small") {
  Fixture fixture;
  fixture.store().Order(1, 2);
  REQUIRE(fixture.AskAndAwait(1).error.empty());
  REQUIRE(fixture.Await([&] { return fixture.store().has_spare(); }));
  fixture.store().Order(2, 4);
  const Given second = fixture.AskAndAwait(2);
  CHECK(second.bytes == static_cast<off_t>(SegmentBytes(4)));
  CHECK(fixture.AwaitSizes({SegmentBytes(2), SegmentBytes(2), SegmentBytes(4), SegmentBytes(4)}));
  CHECK(fixture.Await([] { return OpenSegments() == 2; }));  // The small ones are closed.
}

TEST_CASE("segment store does not keep a spare that is far too large for ever") {
  Fixture fixture;
  fixture.store().Order(1, 6);
  REQUIRE(fixture.AskAndAwait(1).error.empty());
  REQUIRE(fixture.Await([&] { return fixture.store().has_spare(); }));
  fixture.store().Order(2, 2);
  REQUIRE(fixture.AskAndAwait(2).error.empty());
  CHECK(fixture.AwaitSizes({SegmentBytes(6), SegmentBytes(6), SegmentBytes(2)}));
}

TEST_CASE("segment store without memory for a spare goes on without one") {
  Fixture fixture(std::chrono::milliseconds(1));
  fixture.store().Order(1, 2);
  std::promise<void> gate;
  fixture.memory().SetGate(gate.get_future().share());
  const auto first = fixture.Ask(1);
  REQUIRE(fixture.AwaitSizes({SegmentBytes(2)}));
  fixture.memory().SetEmpty(true);  // From the spare on.
  gate.set_value();
  REQUIRE(fixture.AwaitSizes({SegmentBytes(2), SegmentBytes(2)}));
  CHECK((*first)->error.empty());
  fixture.memory().SetEmpty(false);
  fixture.store().Order(2, 2);
  CHECK(fixture.AskAndAwait(2).error.empty());
  CHECK(fixture.memory().sizes().size() >= 3);
}

TEST_CASE("segment store takes a spare that is still being made") {
  Fixture fixture;
  std::promise<void> gate;
  fixture.memory().SetGate(gate.get_future().share(), 1);  // The spare; it begins at once.
  fixture.store().Order(1, 2);
  REQUIRE(fixture.AskAndAwait(1).error.empty());
  REQUIRE(fixture.AwaitSizes({SegmentBytes(2), SegmentBytes(2)}));
  const size_t members = GENERATE(2, 5);
  fixture.store().Order(2, members);
  const auto second = fixture.Ask(2);
  CHECK_FALSE(second->has_value());
  gate.set_value();
  REQUIRE(fixture.Await([&] { return second->has_value(); }));
  CHECK((*second)->error.empty());
  CHECK((*second)->bytes == static_cast<off_t>(SegmentBytes(members)));
  CHECK((*second)->first == 0);
}

TEST_CASE("segment store answers those who wait when their generation is over") {
  Fixture fixture(kNever);
  std::promise<void> gate;
  fixture.memory().SetGate(gate.get_future().share());
  fixture.store().Order(1, 2);
  const auto first = fixture.Ask(1);
  const bool revoked = GENERATE(false, true);
  if (revoked) {
    fixture.store().Revoke(1);
  }
  fixture.store().Order(2, 2);
  REQUIRE(first->has_value());
  CHECK((*first)->error.find("is over") != std::string::npos);
  gate.set_value();
  const Given second = fixture.AskAndAwait(2);
  CHECK(second.error.empty());
  CHECK(second.first == 0);
}

TEST_CASE("segment store that ends while somebody waits says nothing more") {
  Fixture fixture(kNever);
  std::promise<void> gate;
  fixture.memory().SetGate(gate.get_future().share());
  fixture.store().Order(1, 2);
  const auto first = fixture.Ask(1);
  gate.set_value();
  fixture.Destroy();
  CHECK(fixture.Await([] { return OpenSegments() == 0; }));
  CHECK_FALSE(first->has_value());
}

}  // namespace muster::launcher
