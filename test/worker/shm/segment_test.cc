#include "worker/shm/segment.h"

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "test/worker/shm/shm_fixture.h"

namespace muster::worker {
namespace {

struct Area {
  const char* begin;
  size_t bytes;
};

std::vector<Area> AreasOf(const Segment& segment) {
  std::vector<Area> areas;
  for (int i = 0; i < segment.members(); ++i) {
    areas.push_back({reinterpret_cast<const char*>(&segment.bell(i)), sizeof(BellWord)});
    areas.push_back({segment.marks(i), kSegmentMarkBytes});
    for (const RingMemory& ring : {segment.to_first(i), segment.from_first(i)}) {
      areas.push_back({reinterpret_cast<const char*>(ring.words), sizeof(RingWords)});
      areas.push_back({ring.data, ring.bytes});
    }
    areas.push_back({segment.data(i), kSegmentDataBytes});
  }
  return areas;
}

TEST_CASE("segment gives every member areas of its own, zeroed and aligned") {
  const int members = GENERATE(1, 2, 8, 13);
  const auto segment = MakeSegment(members);
  CHECK(segment->members() == members);
  const std::vector<Area> areas = AreasOf(*segment);
  for (size_t i = 0; i < areas.size(); ++i) {
    CHECK(reinterpret_cast<uintptr_t>(areas[i].begin) % 64 == 0);
    CHECK(std::all_of(
        areas[i].begin, areas[i].begin + areas[i].bytes, [](char byte) { return byte == 0; }));
    for (size_t j = 0; j < i; ++j) {
      CHECK((areas[i].begin + areas[i].bytes <= areas[j].begin ||
             areas[j].begin + areas[j].bytes <= areas[i].begin));
    }
  }
  // All of it can be written: the last byte lies inside the memory.
  std::memset(segment->data(members - 1), 1, kSegmentDataBytes);
}

TEST_CASE("segment is the same memory for all who map it") {
  const UniqueFd memory = MakeMemory(SegmentBytes(3));
  const auto one = std::move(Segment::Map(memory, 3).value());
  const auto other = std::move(Segment::Map(memory, 3).value());
  const auto ours = AreasOf(*one);
  const auto theirs = AreasOf(*other);
  for (size_t i = 0; i < ours.size(); ++i) {
    const char mark = static_cast<char>(i + 1);
    *const_cast<char*>(ours[i].begin) = mark;
    const_cast<char*>(ours[i].begin)[ours[i].bytes - 1] = mark;
    CHECK(*theirs[i].begin == mark);
    CHECK(theirs[i].begin[theirs[i].bytes - 1] == mark);
  }
}

TEST_CASE("segment refuses memory that is too small, or none") {
  const UniqueFd memory = MakeMemory(SegmentBytes(4) - 1);
  CHECK_FALSE(Segment::Map(memory, 4).ok());
  CHECK(Segment::Map(memory, 3).ok());
  CHECK_FALSE(Segment::Map(UniqueFd(), 1).ok());
  CHECK_FALSE(Segment::Map(MakeMemory(0), 1).ok());
}

TEST_CASE("segment is not there in a forked child") {
  const auto segment = MakeSegment(1);
  segment->data(0)[0] = 1;
  const pid_t child = ::fork();
  if (child == 0) {
    // Asks the kernel, instead of dying of it.
    unsigned char resident = 0;
    const auto page = reinterpret_cast<uintptr_t>(segment->data(0)) & ~uintptr_t{4095};
    ::_exit(::mincore(reinterpret_cast<void*>(page), 4096, &resident) == 0 ? 1 : 0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(segment->data(0)[0] == 1);
}

}  // namespace
}  // namespace muster::worker
