#include "worker/shm/ring.h"

#include <algorithm>
#include <cstring>

#include "worker/shm/fence.h"

namespace muster::worker {
namespace {
constexpr size_t kHeaderBytes = sizeof(uint32_t);
}  // namespace

// ---------------------------------------------------------------- writing

size_t RingWriter::Put(const char* data, size_t bytes) {
  const uint64_t read = memory_.words->read.load(std::memory_order_acquire);
  const uint64_t used = written_ - read;
  const size_t room = used > memory_.bytes ? 0 : memory_.bytes - static_cast<size_t>(used);
  bytes = std::min(bytes, room);
  const size_t at = static_cast<size_t>(written_) & (memory_.bytes - 1);
  const size_t first = std::min(bytes, memory_.bytes - at);
  std::memcpy(memory_.data + at, data, first);
  std::memcpy(memory_.data, data + first, bytes - first);
  written_ += bytes;
  return bytes;
}

bool RingWriter::Write(std::string_view frame) {
  const auto size = static_cast<uint32_t>(frame.size());
  if (flushed()) {
    // The common case: header and frame fit, and nothing is copied twice.
    const uint64_t read = memory_.words->read.load(std::memory_order_acquire);
    if (written_ - read + kHeaderBytes + frame.size() <= memory_.bytes) {
      Put(reinterpret_cast<const char*>(&size), kHeaderBytes);
      Put(frame.data(), frame.size());
      memory_.words->written.store(written_, std::memory_order_release);
      return true;
    }
  }
  queued_.append(reinterpret_cast<const char*>(&size), kHeaderBytes);
  queued_.append(frame);
  return Flush();
}

bool RingWriter::Flush() {
  if (flushed()) {
    return false;
  }
  bool moved = false;
  for (;;) {
    const size_t count = Put(queued_.data() + queued_start_, queued_bytes());
    queued_start_ += count;
    moved = moved || count > 0;
    if (flushed()) {
      queued_.clear();
      queued_start_ = 0;
      memory_.words->writer_waits.store(0, std::memory_order_relaxed);
      break;
    }
    if (count > 0) {
      continue;  // The reader may have made room meanwhile.
    }
    // Whoever makes room after this sees that somebody waits for it; room made before is seen here.
    memory_.words->written.store(written_, std::memory_order_release);
    memory_.words->writer_waits.store(1, std::memory_order_seq_cst);
    FullFence();
    const uint64_t read = memory_.words->read.load(std::memory_order_relaxed);
    if (written_ - read >= memory_.bytes) {
      break;
    }
  }
  memory_.words->written.store(written_, std::memory_order_release);
  return moved;
}

// ---------------------------------------------------------------- reading

Status RingReader::Take() {
  const uint64_t written = memory_.words->written.load(std::memory_order_acquire);
  const uint64_t begin = read_.load(std::memory_order_relaxed);
  const uint64_t waiting = written - begin;
  if (waiting > memory_.bytes) {
    return Status::Invalid("the ring claims " + std::to_string(waiting) + " bytes");
  }
  const auto bytes = static_cast<size_t>(waiting);
  buffer_.erase(0, start_);
  start_ = 0;
  const size_t at = static_cast<size_t>(begin) & (memory_.bytes - 1);
  const size_t first = std::min(bytes, memory_.bytes - at);
  buffer_.append(memory_.data + at, first);
  buffer_.append(memory_.data, bytes - first);
  read_.store(written, std::memory_order_relaxed);
  memory_.words->read.store(written, std::memory_order_seq_cst);
  return Status::Ok();
}

Result<std::string_view> RingReader::Read() {
  for (;;) {
    const size_t held = buffer_.size() - start_;
    if (held >= kHeaderBytes) {
      uint32_t size = 0;
      std::memcpy(&size, buffer_.data() + start_, kHeaderBytes);
      if (size > frame_bytes_max_) {
        return Status::Invalid("a frame of " + std::to_string(size) + " bytes was announced");
      }
      if (held - kHeaderBytes >= size) {
        const std::string_view frame(buffer_.data() + start_ + kHeaderBytes, size);
        start_ += kHeaderBytes + size;
        return frame;
      }
    }
    if (!HasBytes()) {
      return std::string_view();
    }
    if (Status status = Take(); !status.ok()) {
      return status;
    }
  }
}

bool RingReader::WriterWaits() {
  FullFence();
  return memory_.words->writer_waits.load(std::memory_order_relaxed) != 0 &&
         memory_.words->writer_waits.exchange(0, std::memory_order_seq_cst) != 0;
}

}  // namespace muster::worker
