#pragma once

// Driver: runs one job. It feeds Membership with what discovery, agents, signals and timers say and
// performs the effects that come back. It decides nothing about the world itself.
//
// Threads: one loop thread (the caller of Run) owns everything here. Discovery, gRPC and the output
// writer have threads of their own that only Post.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/loop.h"
#include "common/trace.h"
#include "discovery/discovery_poller.h"
#include "launcher/cli/options.h"
#include "launcher/core/membership.h"
#include "launcher/driver/agent_launcher.h"
#include "launcher/driver/output_writer.h"
#include "launcher/driver/rendezvous_service.h"

namespace muster::launcher {

class Driver final : private AgentListener {
 public:
  /// `launcher` outlives the driver. Signals that the driver handles must be blocked in every
  /// thread before it is made (see BlockSignals).
  Driver(RunOptions options, AgentLauncher& launcher);
  ~Driver() override;

  /// Runs the job to its end; returns its exit code. Call once.
  int Run();

  /// Blocks SIGINT, SIGTERM, SIGHUP (unless ignored), SIGUSR1 and SIGUSR2 for a signalfd and
  /// ignores SIGPIPE. Call it before any thread is started.
  static void BlockSignals();

 private:
  // One agent's process and stream. It is over when the process has ended and the stream is closed.
  struct Agent {
    LaunchedAgent launched;
    bool attached = false;
    bool process_ended = false;
    bool stopping = false;     // StopAgent was sent; its end is expected.
    bool start_again = false;  // StartAgent came while the old one was ending.
    bool suspected = false;
    ExitStatus exit;
    Instant last_summary;
    Loop::TimerId start_timer;
    Loop::TimerId stop_timer;
  };

  Status Start();
  Status StartDiscovery();
  Status WatchSignals();
  void OnSignals();
  void OnPoll(const Result<discovery::HostList>& polled);
  void OnTick();
  void WarnOnce(const std::string& message);

  // AgentListener
  bool OnAgentAttached(const HostId& host, const v1::AgentHello& hello) override;
  void OnAgentReport(const HostId& host, const v1::AgentReport& report) override;
  void OnAgentDetached(const HostId& host, const std::string& why) override;

  void LaunchAgent(const HostId& host);
  void OnAgentProcessEnded(const HostId& host);
  void CheckAgentOver(const HostId& host);
  void SweepHost(const HostId& host, const std::string& evidence);
  void AgentStartFailedWith(const HostId& host, const std::string& message);
  v1::Welcome MakeWelcome() const;

  void Apply(const Event& event);
  void ApplyLater(Event event);
  void ArmDriverTimer(TimerKey key, Duration delay);

  void Perform(const StartAgent& effect, const std::string& reason);
  void Perform(const StopAgent& effect, const std::string& reason);
  void Perform(const SpawnWorker& effect, const std::string& reason);
  void Perform(const KillWorker& effect, const std::string& reason);
  void Perform(const AskAgent& effect, const std::string& reason);
  void Perform(const Refuse& effect, const std::string& reason);
  void Perform(const Drain& effect, const std::string& reason);
  void Perform(const FormWorld& effect, const std::string& reason);
  void Perform(const Revoke& effect, const std::string& reason);
  void Perform(const NotifyPending& effect, const std::string& reason);
  void Perform(const Release& effect, const std::string& reason);
  void Perform(const Admit& effect, const std::string& reason);
  void Perform(const ArmTimer& effect, const std::string& reason);
  void Perform(const CancelTimer& effect, const std::string& reason);
  void Perform(const FinishJob& effect, const std::string& reason);
  void Perform(const Warn& effect, const std::string& reason);

  std::map<HostId, std::vector<Incarnation>> ByHost(const std::vector<Incarnation>& workers) const;
  void SendTo(Incarnation worker, const v1::AgentOrder& order);
  void Finish(int code, const std::string& cause);
  void StopIfAllAgentsAreOver();

  const RunOptions options_;
  AgentLauncher& launcher_;
  const std::string job_id_;
  const std::string secret_;
  Loop loop_;
  Trace trace_;
  OutputWriter output_;
  RendezvousService service_;
  std::unique_ptr<discovery::HostSource> source_;
  std::unique_ptr<discovery::DiscoveryPoller> poller_;
  Membership membership_;
  UniqueFd signals_;

  std::map<HostId, Agent> agents_;
  std::map<Incarnation, SlotId> workers_;  // Not yet exited.
  std::set<Incarnation> refused_;
  std::map<TimerKey, Loop::TimerId> timers_;
  std::vector<std::jthread> sweepers_;  // One per lost agent; each ends within seconds.
  std::optional<discovery::HostList> last_list_;
  std::set<std::string> warned_;
  Instant last_tick_;
  bool finishing_ = false;
  int exit_code_ = 0;
  std::string cause_;
};

}  // namespace muster::launcher
