#pragma once

// AgentSessions: the driver's talk with the agents. It keeps a session per host that outlives its
// streams, and passes each report to the driver once and in order. It decides nothing, and knows
// streams only by what they can do.
//
// Threads: everything on the loop thread.

#include <grpcpp/support/status.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/ids.h"
#include "common/loop.h"
#include "launcher/session/replay_queue.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

inline constexpr size_t kQueuedOrdersMax = 1 << 16;

/// Receives on the loop thread what agents say.
class AgentListener {
 public:
  virtual ~AgentListener() = default;
  /// Somebody with the secret wants to be this host's agent, in a new session. Gives the reason for
  /// a refusal; nothing: OnAgentAttached follows.
  virtual std::optional<std::string> OnAgentHello(const HostId& host,
                                                  const v1::AgentHello& hello) = 0;
  virtual void OnAgentAttached(const HostId& host, const v1::AgentHello& hello) = 0;
  /// Its session goes on over another stream, and it has got an answer: the lease begins anew.
  virtual void OnAgentResumed(const HostId& host) = 0;
  /// It was heard of and got an acknowledgement: the lease begins anew.
  virtual void OnAgentSummary(const HostId& host) = 0;
  virtual void OnAgentReport(const HostId& host, const v1::AgentReport& report) = 0;
  /// Its stream broke or was ended; the session stays until Forget.
  virtual void OnAgentDetached(const HostId& host, const std::string& why) = 0;
};

/// One stream with an agent, authenticated.
class AgentStream {
 public:
  virtual ~AgentStream() = default;
  /// Queues the order; dropped if the stream is closed.
  virtual void Send(const v1::AgentOrder& order) = 0;
  virtual void Close(const grpc::Status& status) = 0;

  HostId host;
  bool greeted = false;  // It has said hello and was not refused.
};

class AgentSessions {
 public:
  /// `loop` and `listener` outlive it. `forgotten` is told the id of each session that ends.
  AgentSessions(Loop& loop,
                AgentListener& listener,
                std::function<void(const std::string& session)> forgotten);
  AgentSessions(const AgentSessions&) = delete;
  AgentSessions& operator=(const AgentSessions&) = delete;

  /// What streams bring counts from now on, until Close.
  void Open() { open_ = !closed_; }
  /// For good. No call of the listener comes after it has begun. The streams stay open.
  void Close();

  // Streams are shared with whoever else may still call them.
  void HandleReport(const std::shared_ptr<AgentStream>& stream, const v1::AgentReport& report);
  void HandleClosed(const std::shared_ptr<AgentStream>& stream);

  /// Queues an order for the host's agent; kept for its next stream if this one has broken. Dropped
  /// if the host has no session.
  void Send(const HostId& host, v1::AgentOrder order);
  /// Ends the host's session: its agent, should it come back, is refused.
  void Forget(const HostId& host);

 private:
  struct Session {
    std::string id;
    ReplayQueue<v1::AgentOrder> orders;
    ReplayFilter reports;
    std::shared_ptr<AgentStream> stream;  // Null while there is none.
  };

  void HandleHello(const std::shared_ptr<AgentStream>& stream, const v1::AgentHello& hello);
  void Adopt(Session& session, const std::shared_ptr<AgentStream>& stream);
  void Resume(Session& session,
              const std::shared_ptr<AgentStream>& stream,
              const v1::AgentHello& hello);
  void HandleSummary(const HostId& host, Session& session, const v1::AgentSummary& summary);

  Loop& loop_;
  AgentListener& listener_;
  const std::function<void(const std::string& session)> forgotten_;
  bool open_ = false;
  bool closed_ = false;
  std::map<HostId, Session> sessions_;
};

}  // namespace muster::launcher
