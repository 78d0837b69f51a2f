// The floor: what two cores and their memory allow, and nothing else. Each rank copies a chunk of
// its tensor into a shared segment, reduces its part of everybody's chunk, and copies the result
// out, with a barrier after each of the first two. Two sets of areas, so that one chunk's copy out
// and the next one's copy in need no barrier between them.

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench/loops.h"
#include "bench/rank_engines.h"

namespace muster::bench {
namespace {

constexpr size_t kChunkFloats = 1 << 16;
constexpr size_t kHeaderBytes = 4096;
constexpr int kSpins = 2000;
// The bench notices a lost rank earlier, and ends the others; this is the last resort.
constexpr std::chrono::seconds kTimeout{300};

struct Header {
  std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> round;
};

class ShmRank : public RankEngine {
 public:
  ShmRank(int rank, int size, int segment)
      : rank_(static_cast<size_t>(rank)),
        size_(static_cast<size_t>(size)),
        spins_(size <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0),
        loops_(BestLoops()) {
    void* memory =
        ::mmap(nullptr, SegmentBytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    if (memory == MAP_FAILED) {
      throw std::runtime_error(std::string("cannot map the shared segment: ") +
                               std::strerror(errno));
    }
    header_ = static_cast<Header*>(memory);
    areas_ = reinterpret_cast<float*>(static_cast<char*>(memory) + kHeaderBytes);
  }
  ~ShmRank() override { ::munmap(header_, SegmentBytes(size())); }
  ShmRank(const ShmRank&) = delete;
  ShmRank& operator=(const ShmRank&) = delete;

  int rank() const override { return static_cast<int>(rank_); }
  int size() const override { return static_cast<int>(size_); }

  void Barrier() override {
    const uint32_t round = header_->round.load();
    if (header_->arrived.fetch_add(1) + 1 == size_) {
      header_->arrived.store(0);
      header_->round.store(round + 1);
      ::syscall(SYS_futex, &header_->round, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
      return;
    }
    for (int i = 0; i < spins_ && header_->round.load() == round; ++i) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (header_->round.load() == round) {
      const timespec pause{.tv_sec = 1, .tv_nsec = 0};
      ::syscall(SYS_futex, &header_->round, FUTEX_WAIT, round, &pause, nullptr, 0);
      if (header_->round.load() == round && std::chrono::steady_clock::now() > deadline) {
        throw std::runtime_error("the other ranks did not reach a barrier");
      }
    }
  }

  std::function<void()> Prepare(const Order& order, Buffers& buffers) override {
    if (order.operation != Operation::kAllreduce) {
      throw std::invalid_argument("the bare loop is an allreduce");
    }
    return [this, &buffers] {
      for (size_t i = 0; i < buffers.count(); ++i) {
        Allreduce(buffers.in(i), buffers.out(i), buffers.layout().in);
      }
    };
  }

 private:
  void Allreduce(const float* in, float* out, size_t count) {
    for (size_t done = 0; done < count; done += kChunkFloats) {
      const size_t some = std::min(kChunkFloats, count - done);
      float* const set = areas_ + (chunks_++ % 2) * (size_ + 1) * kChunkFloats;
      float* const result = set + size_ * kChunkFloats;
      loops_.copy(set + rank_ * kChunkFloats, in + done, some);
      Barrier();
      const size_t part = (some + size_ - 1) / size_;
      const size_t begin = std::min(some, part * rank_);
      const size_t end = std::min(some, begin + part);
      loops_.copy(result + begin, set + begin, end - begin);
      for (size_t rank = 1; rank < size_; ++rank) {
        loops_.add(result + begin, set + rank * kChunkFloats + begin, end - begin);
      }
      Barrier();
      loops_.copy(out + done, result, some);
    }
  }

  const size_t rank_;
  const size_t size_;
  const int spins_;
  const Loops loops_;
  Header* header_ = nullptr;
  float* areas_ = nullptr;
  size_t chunks_ = 0;  // Of all orders: which set of areas is next.
};

}  // namespace

size_t SegmentBytes(int size) {
  return kHeaderBytes + 2 * (static_cast<size_t>(size) + 1) * kChunkFloats * sizeof(float);
}

std::unique_ptr<RankEngine> MakeShmRank(int rank, int size, int segment) {
  return std::make_unique<ShmRank>(rank, size, segment);
}

}  // namespace muster::bench
