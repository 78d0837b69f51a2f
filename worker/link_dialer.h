#pragma once

// LinkDialer: opens one link to a peer and proves it. It tries the peer's addresses in turn, again
// and again, until it succeeds or is destroyed: how long a generation may take to form is not its
// business. It says once that the peer cannot be reached, and tries on.
//
// Threads: the loop's. It may be destroyed inside its own callbacks.

#include <functional>
#include <string>
#include <vector>

#include "common/loop.h"
#include "worker/handshake.h"
#include "worker/socket.h"

namespace muster::worker {

/// The addresses at which a peer on any machine may be found: the routable ones if there are any,
/// since at one's own loopback somebody else may listen; all of a peer that has no others.
std::vector<std::string> WorthDialling(const std::vector<std::string>& addresses);

class LinkDialer {
 public:
  struct Unreachable {
    /// Which link, how long, the limit, and each address with what became of it.
    std::string evidence;
    /// Its host answers, and nobody listens: the peer has most likely died.
    bool refused = false;
  };
  struct Callbacks {
    std::function<void(PrivateFd fd)> on_link;
    /// At most once: every address was refused, or none has led to the peer for `patience`.
    std::function<void(const Unreachable& why)> on_unreachable;
  };

  struct Limits {
    Duration address = kHandshakeTimeout;  // For one try, of up to four addresses.
    /// Longer than it takes to send a lost packet again, shorter than a generation may take to
    /// form.
    Duration patience = std::chrono::seconds(3);
  };

  /// `loop` outlives the dialer; `addresses` are not empty.
  LinkDialer(Loop& loop,
             LinkId id,
             std::string key,
             std::vector<std::string> addresses,
             Callbacks callbacks,
             Limits limits = DefaultLimits());
  ~LinkDialer();
  LinkDialer(const LinkDialer&) = delete;
  LinkDialer& operator=(const LinkDialer&) = delete;

  void Start();
  static Limits DefaultLimits() { return {}; }

 private:
  enum class Phase : uint8_t { kIdle, kConnecting, kAwaitingAnswer, kDone };

  void Try();
  void OnEvents();
  void OnConnected();
  void OnAnswer();
  void OnTimeout();
  void Fail(const std::string& what, int error = 0);
  void CloseSocket();
  std::string Evidence() const;

  Loop& loop_;
  const LinkId id_;
  const std::string key_;
  const std::vector<std::string> addresses_;
  const Limits limits_;
  Callbacks callbacks_;
  Instant start_;
  Phase phase_ = Phase::kIdle;
  size_t current_ = 0;
  std::vector<std::string> outcomes_;  // By address, of the last try.
  bool any_refused_ = false;           // In this round.
  bool any_silent_ = false;            // In this round; more than a missing route.
  bool reported_ = false;
  Duration back_off_;
  PrivateFd fd_;
  HandshakeInitiator handshake_;
  std::string in_;
  Loop::TimerId timer_;
};

}  // namespace muster::worker
