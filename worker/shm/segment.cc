#include "worker/shm/segment.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "common/check.h"

namespace muster::worker {
namespace {

constexpr size_t kRingBytes = (kSegmentControlBytes - 4096) / 2;
static_assert((kRingBytes & (kRingBytes - 1)) == 0, "positions in a ring are masked");

/// The first page of a member's control area.
struct ControlPage {
  alignas(64) BellWord bell;
  alignas(64) char marks[kSegmentMarkBytes];
  RingWords to_first;
  RingWords from_first;
};
static_assert(sizeof(ControlPage) <= 4096);

}  // namespace

Result<std::unique_ptr<Segment>> Segment::Map(const UniqueFd& memory, int members) {
  MUSTER_CHECK(members > 0, "a segment has members");
  const size_t bytes = SegmentBytes(static_cast<size_t>(members));
  struct stat info {};
  if (!memory.valid() || ::fstat(memory.get(), &info) != 0 ||
      static_cast<size_t>(info.st_size) < bytes) {
    return Status::Failed("the agent's shared memory is too small");
  }
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (base == MAP_FAILED) {
    return Status::Failed(std::string("mapping shared memory: ") + strerror(errno));
  }
  ::madvise(base, bytes, MADV_DONTFORK);
  return std::unique_ptr<Segment>(new Segment(static_cast<char*>(base), members));
}

Segment::~Segment() {
  ::munmap(base_, SegmentBytes(static_cast<size_t>(members_)));
}

char* Segment::control(int member) const {
  MUSTER_CHECK(member >= 0 && member < members_, "a member of this host");
  return base_ + kSegmentHeaderBytes + static_cast<size_t>(member) * kSegmentControlBytes;
}

BellWord& Segment::bell(int member) const {
  return reinterpret_cast<ControlPage*>(control(member))->bell;
}

char* Segment::marks(int member) const {
  return reinterpret_cast<ControlPage*>(control(member))->marks;
}

RingMemory Segment::to_first(int member) const {
  auto* page = reinterpret_cast<ControlPage*>(control(member));
  return {&page->to_first, control(member) + 4096, kRingBytes};
}

RingMemory Segment::from_first(int member) const {
  auto* page = reinterpret_cast<ControlPage*>(control(member));
  return {&page->from_first, control(member) + 4096 + kRingBytes, kRingBytes};
}

char* Segment::data(int member) const {
  MUSTER_CHECK(member >= 0 && member < members_, "a member of this host");
  return base_ + kSegmentHeaderBytes + static_cast<size_t>(members_) * kSegmentControlBytes +
         static_cast<size_t>(member) * kSegmentDataBytes;
}

}  // namespace muster::worker
