#pragma once

// The few collectives that a sync needs, over raw bytes of any size: a gather of one text per rank,
// and broadcasts cut into chunks of which a few are under way at a time.
//
// Every function is called by all ranks with matching arguments, from the user's thread, and throws
// what the collective met. When it throws, no operation touches the caller's memory any more.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/runtime.h"

namespace muster::worker {

/// Every rank's text, by rank. Texts may differ in length.
std::vector<std::string> GatherTexts(Runtime& runtime,
                                     const std::string& name,
                                     std::string_view text);

/// Broadcasts of many buffers from one root, in order. Finish() before the buffers are used.
class Broadcasts {
 public:
  Broadcasts(Runtime& runtime, std::string name, int root)
      : runtime_(runtime), name_(std::move(name)), root_(root) {}
  Broadcasts(const Broadcasts&) = delete;
  Broadcasts& operator=(const Broadcasts&) = delete;

  void Add(void* data, size_t size);
  void Finish();

  uint64_t bytes() const { return bytes_; }

 private:
  void AddChunk(std::byte* data, size_t size);
  void Settle();

  static constexpr size_t kWindow = 8;

  Runtime& runtime_;
  const std::string name_;
  const int root_;
  std::array<Handle, kWindow> handles_;
  std::array<bool, kWindow> under_way_{};
  size_t next_ = 0;
  uint64_t bytes_ = 0;
};

/// A text is held in memory twice while it is sent; what is larger belongs into tensors.
inline constexpr uint64_t kTextBytesMax = uint64_t{1} << 30;

/// The root's text, on every rank.
std::string BroadcastText(Runtime& runtime, const std::string& name, int root, std::string text);

}  // namespace muster::worker
