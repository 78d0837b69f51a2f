#pragma once

// Shared segments as an agent makes them, and threads or processes as the ranks that share one.
// Catch's macros are for the test's own thread: ranks return what they found.

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "common/status.h"
#include "worker/shm/segment.h"

namespace muster::worker {

inline UniqueFd MakeMemory(size_t bytes) {
  UniqueFd memory(::memfd_create("muster-test", MFD_CLOEXEC));
  REQUIRE(memory.valid());
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  return memory;
}

inline std::shared_ptr<Segment> MakeSegment(int members) {
  const UniqueFd memory = MakeMemory(SegmentBytes(static_cast<size_t>(members)));
  return std::shared_ptr<Segment>(std::move(Segment::Map(memory, members).value()));
}

/// Runs `body(rank)` on a thread for each rank and gives what they returned, by rank.
template <class Value>
std::vector<Value> OnRanks(int ranks, const std::function<Value(int)>& body) {
  std::vector<std::future<Value>> running;
  for (int rank = 0; rank < ranks; ++rank) {
    running.push_back(std::async(std::launch::async, body, rank));
  }
  std::vector<Value> values;
  for (auto& rank : running) {
    if (rank.wait_for(std::chrono::seconds(100)) != std::future_status::ready) {
      std::fprintf(stderr, "a rank hangs\n");  // Its thread cannot be left behind.
      std::abort();
    }
    values.push_back(rank.get());
  }
  return values;
}

}  // namespace muster::worker
