#pragma once

// FoldedMemory: buffers larger than the machine, for counts beyond 2^31 and operations that take
// long.

#include <sys/mman.h>

#include <catch2/catch.hpp>

#include "test/worker/shm/shm_fixture.h"

namespace muster::worker {

/// As many bytes as asked for, of which each stretch of 4 MiB is the same memory.
class FoldedMemory {
 public:
  explicit FoldedMemory(size_t bytes) : bytes_((bytes + kFold - 1) / kFold * kFold) {
    const UniqueFd memory = MakeMemory(kFold);
    void* base =
        ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(base != MAP_FAILED);
    base_ = static_cast<char*>(base);
    for (size_t at = 0; at < bytes_; at += kFold) {
      constexpr int kFlags = MAP_SHARED | MAP_FIXED;
      void* fold = ::mmap(base_ + at, kFold, PROT_READ | PROT_WRITE, kFlags, memory.get(), 0);
      REQUIRE(fold == base_ + at);
    }
  }
  ~FoldedMemory() { ::munmap(base_, bytes_); }
  FoldedMemory(const FoldedMemory&) = delete;
  FoldedMemory& operator=(const FoldedMemory&) = delete;

  char* data() const { return base_; }
  static constexpr size_t kFold = 4u << 20;

 private:
  const size_t bytes_;
  char* base_ = nullptr;
};

}  // namespace muster::worker
