#pragma once

// A ring of bytes in shared memory, from one rank to another, that carries frames of any size.
// RingWriter and RingReader are its two ends. Nobody waits in here and nobody is woken: that is the
// owners' business, by their bells. What the other side wrote is trusted as little as a socket's
// bytes.
//
// Threads: each end one at a time.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace muster::worker {

/// The shared part. Zeroed memory is an empty ring.
struct RingWords {
  alignas(64) std::atomic<uint64_t> written;  // Bytes since the beginning.
  std::atomic<uint32_t> writer_waits;         // Set while the writer has more than fits.
  alignas(64) std::atomic<uint64_t> read;
};

/// Where a ring lies; `bytes` is a power of two.
struct RingMemory {
  RingWords* words = nullptr;
  char* data = nullptr;
  size_t bytes = 0;
};

class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  /// Queues the frame and moves what fits. True if the reader has something new to read.
  bool Write(std::string_view frame);
  /// Moves what fits by now of what is queued. True as above.
  bool Flush();
  bool flushed() const { return queued_start_ == queued_.size(); }
  size_t queued_bytes() const { return queued_.size() - queued_start_; }

 private:
  size_t Put(const char* data, size_t bytes);

  RingMemory memory_;
  uint64_t written_ = 0;  // This end's own count: the shared one is for the reader only.
  std::string queued_;    // Frames with their headers.
  size_t queued_start_ = 0;
};

class RingReader {
 public:
  RingReader(RingMemory memory, size_t frame_bytes_max)
      : memory_(memory), frame_bytes_max_(frame_bytes_max) {}

  /// True if bytes wait. Cheap: for looking often.
  bool HasBytes() const {
    return memory_.words->written.load(std::memory_order_acquire) !=
           read_.load(std::memory_order_relaxed);
  }
  /// The next whole frame, valid until the next call; empty view data() == nullptr: none yet.
  /// kInvalid: the writer broke the rules.
  Result<std::string_view> Read();
  /// True, once, if the writer waits for the room that reading has made.
  bool WriterWaits();

 private:
  Status Take();

  RingMemory memory_;
  const size_t frame_bytes_max_;
  std::atomic<uint64_t> read_{0};  // Looked at by a driver while another thread reads.
  std::string buffer_;
  size_t start_ = 0;
};

}  // namespace muster::worker
