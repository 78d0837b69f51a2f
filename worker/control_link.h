#pragma once

// ControlLink: an authenticated, non-blocking socket on the engine's loop that carries frames, a
// four-byte length before each. It knows nothing of what the frames say.
//
// Threads: the loop's. The owner may close the link inside a callback, but must not destroy it
// there. A link that is closed calls back no more.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/loop.h"
#include "worker/socket.h"

namespace muster::worker {

class ControlLink {
 public:
  struct Callbacks {
    std::function<void(std::string_view frame)> on_frame;
    /// The other side has closed, or broke the rules; the link is closed already.
    std::function<void(const std::string& reason)> on_broken;
  };

  /// `loop` outlives the link.
  ControlLink(Loop& loop, PrivateFd fd);
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  /// Begins to read. Frames that came before are delivered.
  void Start(Callbacks callbacks);
  /// Stops delivering frames until the next Start; a broken link is still noticed.
  void Pause();
  void Send(std::string_view frame);
  void Close();
  /// The same, and what the peer has not received yet is taken back.
  void Abort();
  bool closed() const { return !fd_.valid(); }
  /// All that was sent is in the kernel's hands.
  bool flushed() const { return out_.size() == out_start_; }

  static constexpr size_t kFrameBytesMax = 16u << 20;
  /// What may wait for a peer that does not read.
  static constexpr size_t kQueuedBytesMax = 64u << 20;

 private:
  void OnEvents(uint32_t events);
  void Read();
  void Deliver();
  void Write();
  void UpdateInterest();
  void Break(const std::string& reason);

  Loop& loop_;
  PrivateFd fd_;
  Callbacks callbacks_;
  bool paused_ = true;
  bool delivering_ = false;
  std::string in_;
  size_t in_start_ = 0;
  std::string out_;
  size_t out_start_ = 0;
  uint32_t interest_ = 0;
};

}  // namespace muster::worker
