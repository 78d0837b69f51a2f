#include "launcher/agent/segment_maker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <vector>

#include "common/process.h"
#include "common/worker_segment.h"

namespace muster::launcher {
namespace {

constexpr std::chrono::seconds kHangBound{20};

// What a maker made, on its thread.
class Made {
 public:
  SegmentMaker::Done Done() {
    return [this](Result<UniqueFd> segment) { promise_.set_value(std::move(segment)); };
  }
  Result<UniqueFd> Await() {
    std::future<Result<UniqueFd>> future = promise_.get_future();
    REQUIRE(future.wait_for(kHangBound) == std::future_status::ready);
    return future.get();
  }

 private:
  std::promise<Result<UniqueFd>> promise_;
};

std::vector<char> Contents(const UniqueFd& fd, size_t bytes) {
  std::vector<char> contents(bytes, 'x');
  REQUIRE(::pread(fd.get(), contents.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  return contents;
}

/// Of the kernel's ways to have no memory the one that a test can have: a limit on file sizes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit low{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("segment maker makes zeroed memory with all its pages, which nobody can resize") {
  const auto urgency = GENERATE(SegmentMaker::Urgency::kWanted, SegmentMaker::Urgency::kSpare);
  const size_t bytes = SegmentBytes(2);
  Made made;
  SegmentMaker maker(MakeSegment, made.Done());
  maker.Start(bytes, urgency);
  const Result<UniqueFd> segment = made.Await();
  REQUIRE(segment.ok());
  const int fd = segment.value().get();
  struct stat status {};
  REQUIRE(::fstat(fd, &status) == 0);
  CHECK(status.st_size == static_cast<off_t>(bytes));
  CHECK(static_cast<size_t>(status.st_blocks) * 512 >= bytes);
  const std::vector<char> contents = Contents(segment.value(), bytes);
  CHECK(std::all_of(contents.begin(), contents.end(), [](char c) { return c == 0; }));
  CHECK(::ftruncate(fd, 4096) == -1);
  CHECK(::ftruncate(fd, static_cast<off_t>(2 * bytes)) == -1);
  CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
  CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("segment maker without memory gives an error, and the process goes on") {
  const FileSizeLimit limit(1 << 20);  // Its signal would end the process.
  Made made;
  SegmentMaker maker(MakeSegment, made.Done());
  maker.Start(SegmentBytes(2), SegmentMaker::Urgency::kWanted);
  const Result<UniqueFd> segment = made.Await();
  REQUIRE_FALSE(segment.ok());
  CHECK(segment.status().message().find(std::to_string(SegmentBytes(2)) + " bytes") !=
        std::string::npos);
}

TEST_CASE("segment maker does not drive the machine out of its memory") {
  const FileSizeLimit limit(16 << 20);  // Whatever the maker does, the machine stays.
  Made made;
  SegmentMaker maker(MakeSegment, made.Done());
  maker.Start(size_t{1} << 50, SegmentMaker::Urgency::kWanted);
  const Result<UniqueFd> segment = made.Await();
  REQUIRE_FALSE(segment.ok());
  CHECK(segment.status().message().find("are available") != std::string::npos);
}

TEST_CASE("segment maker closes what it is given, also while it makes one") {
  std::promise<void> gate;
  Made made;
  SegmentMaker maker(
      [&gate](size_t bytes) {
        gate.get_future().wait_for(kHangBound);
        return MakeSegment(bytes);
      },
      made.Done());
  const bool busy = GENERATE(false, true);
  if (busy) {
    maker.Start(SegmentBytes(1), SegmentMaker::Urgency::kWanted);
  }
  Result<Pipe> pipe = MakePipe();
  REQUIRE(pipe.ok());
  maker.Close(std::move(pipe.value().write));
  gate.set_value();
  pollfd entry{pipe.value().read.get(), 0, 0};
  CHECK(::poll(&entry, 1, std::chrono::milliseconds(kHangBound).count()) == 1);
  CHECK((entry.revents & POLLHUP) != 0);
  if (busy) {
    CHECK(made.Await().ok());
  }
}

TEST_CASE("segment maker that ends leaves no descriptor open") {
  Result<Pipe> pipe = MakePipe();
  REQUIRE(pipe.ok());
  {
    SegmentMaker maker(MakeSegment, [](const Result<UniqueFd>& /*segment*/) {});
    maker.Start(SegmentBytes(4), SegmentMaker::Urgency::kSpare);
    maker.Close(std::move(pipe.value().write));
  }
  pollfd entry{pipe.value().read.get(), 0, 0};
  CHECK(::poll(&entry, 1, 0) == 1);
}

}  // namespace muster::launcher
