#pragma once

// LinkDialer: opens one link to a peer and proves it. It tries the peer's addresses in turn, again
// and again, until it succeeds or is destroyed: how long a generation may take to form is not its
// business.
//
// Threads: the loop's. It may be destroyed inside its own callbacks.

#include <functional>
#include <string>
#include <vector>

#include "common/loop.h"
#include "worker/handshake.h"
#include "worker/socket.h"

namespace muster::worker {

class LinkDialer {
 public:
  struct Callbacks {
    std::function<void(PrivateFd fd)> on_link;
    /// Nobody listens at any address: the peer has most likely died. At most once.
    std::function<void(const std::string& evidence)> on_refused;
  };

  /// `loop` outlives the dialer.
  LinkDialer(Loop& loop,
             LinkId id,
             std::string key,
             std::vector<std::string> addresses,
             Callbacks callbacks);
  ~LinkDialer();
  LinkDialer(const LinkDialer&) = delete;
  LinkDialer& operator=(const LinkDialer&) = delete;

  void Start();

 private:
  enum class Phase : uint8_t { kIdle, kConnecting, kAwaitingAnswer, kDone };

  void Try();
  void OnEvents();
  void OnConnected();
  void OnAnswer();
  void Fail(const std::string& evidence, bool refused);
  void CloseSocket();

  Loop& loop_;
  const LinkId id_;
  const std::string key_;
  const std::vector<std::string> addresses_;
  Callbacks callbacks_;
  Phase phase_ = Phase::kIdle;
  size_t next_address_ = 0;
  size_t refused_in_round_ = 0;
  bool refusal_reported_ = false;
  Duration back_off_;
  PrivateFd fd_;
  HandshakeInitiator handshake_;
  std::string in_;
  Loop::TimerId timer_;
};

}  // namespace muster::worker
