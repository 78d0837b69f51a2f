#pragma once

// DriverSession: an agent's talk with the driver for as long as the job lasts. Reports and orders
// pass once and in order, whatever happens to the connection.
//
// On the driver's machine it is one stream, and its end is the end of the session. Across a network
// a stream that breaks, or that brings no acknowledgement for kUnansweredMax, is followed by
// another one, over whichever of the driver's addresses answers, until the lease is over.
//
// Threads: all methods and callbacks on the loop thread.

#include <grpcpp/channel.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/loop.h"
#include "common/status.h"
#include "launcher/agent/address_prober.h"
#include "launcher/agent/driver_link.h"
#include "launcher/session/lease.h"
#include "launcher/session/replay_queue.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

inline constexpr size_t kReportsMax = 65536;

class DriverSession {
 public:
  struct Options {
    std::vector<std::string> addresses;  // Literals.
    std::string secret;
    bool remote = false;      // Across a network: TLS, lease, further streams.
    std::string own_address;  // Host literal for the hello; empty: the connection decides.
    /// How long to look for a driver before the first welcome. As long as the built-in lease: then
    /// nothing is left of an agent whose driver was killed while it started, either.
    Duration patience = std::chrono::seconds(10);
  };
  struct Callbacks {
    std::function<void(const v1::AgentOrder&)> order;
    /// The lease runs until then, of BootClock. Never called on the driver's machine. May be null.
    std::function<void(Instant end)> leased;
    /// There is a stream (again): output goes this way too.
    std::function<void(std::shared_ptr<grpc::Channel>)> connected;
    /// Once. kOk: the driver ended the session after Finish; kInvalid: it refused this agent;
    /// kTimeout: nobody answered, or the lease is over; kUnavailable: the stream broke.
    std::function<void(const Status&)> ended;
  };

  DriverSession(Loop& loop, Options options, Callbacks callbacks);
  ~DriverSession();
  DriverSession(const DriverSession&) = delete;
  DriverSession& operator=(const DriverSession&) = delete;

  /// `hello` names the host; what concerns the session is filled in here.
  void Start(v1::AgentHello hello);
  void Send(v1::AgentReport report);
  /// To be called every 200 ms: it also drives the lease.
  void SendSummary(v1::AgentSummary summary);
  /// The length of the lease, from the welcome.
  void SetGrace(Duration grace);
  /// Ends the session after all reports so far.
  void Finish();

  const std::string& id() const { return id_; }
  /// Host literal at which others reach this host; empty before the first welcome, and on the
  /// driver's machine.
  const std::string& own_address() const { return own_address_; }

  static constexpr Duration kUnansweredMax = std::chrono::milliseconds(1500);

 private:
  void Search();
  void SearchAgain();
  void TryNext();
  void Open(const AddressProber::Reached& reached);
  void OnOrder(const v1::AgentOrder& order);
  void OnAttached();
  void OnLinkBroken(const Status& status);
  void Break(const std::string& why);
  void TellLease();
  void CheckLease();
  void End(const Status& status);
  void RetireLink();
  void NoteTrouble(const std::string& message);

  Loop& loop_;
  const Options options_;
  const Callbacks callbacks_;
  const std::string id_;
  BootClock clock_;
  v1::AgentHello hello_;
  std::string own_address_;
  std::string reached_own_;  // Of the stream that is being opened.

  std::unique_ptr<AddressProber> prober_;
  std::deque<AddressProber::Reached> candidates_;
  std::unique_ptr<DriverLink> link_;
  uint64_t stream_ = 0;  // Number of the newest link: what older ones say counts no more.
  // Given up; destroyed outside their own callbacks.
  std::vector<std::unique_ptr<DriverLink>> old_links_;
  // shared_ptr: closures that outlive this object in the loop's queue see that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::shared_ptr<grpc::Channel> channel_;  // gRPC shares channels.

  ReplayQueue<v1::AgentReport> reports_;
  ReplayFilter orders_;
  Lease lease_;
  Duration grace_ = Duration::max();
  Duration back_off_;
  Instant give_up_;      // Before the first welcome.
  Instant hello_sent_;   // On this stream.
  Instant last_answer_;  // An acknowledgement, on this stream.
  uint64_t summaries_ = 0;
  bool welcomed_ = false;  // At least once.
  bool attached_ = false;  // This stream has brought its first order.
  bool finishing_ = false;
  bool ended_ = false;
  std::string trouble_;  // The last reason why there is no stream.
  Loop::TimerId open_timer_;
  Loop::TimerId search_timer_;
};

}  // namespace muster::launcher
