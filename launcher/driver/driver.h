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
#include <vector>

#include "common/loop.h"
#include "common/trace.h"
#include "discovery/agent_host_source.h"
#include "discovery/discovery_poller.h"
#include "launcher/cli/options.h"
#include "launcher/core/membership.h"
#include "launcher/driver/agent_starter.h"
#include "launcher/driver/host_sweeper.h"
#include "launcher/driver/job_signals.h"
#include "launcher/driver/output_writer.h"
#include "launcher/driver/rendezvous_service.h"
#include "launcher/incident/incident_collector.h"
#include "launcher/incident/incident_writer.h"

namespace muster::launcher {

class Driver final : private AgentListener {
 public:
  /// `secret` is the job's. JobSignals::Block must have been called.
  Driver(RunOptions options, std::string secret);
  ~Driver() override;

  /// Runs the job to its end; returns its exit code. Call once.
  int Run();

 private:
  enum class AgentKind : uint8_t {
    kLocal,   // Forked: its process and its stream end together.
    kRemote,  // Behind a remote shell, whose end proves nothing: the lease or a farewell does.
    kJoined,  // Dialled in: no process of ours stands for it.
  };
  // One agent, from the order to start it until it is over.
  struct Agent {
    AgentKind kind = AgentKind::kLocal;
    bool greeted = false;      // It has attached, and its session is open.
    bool connected = false;    // It has a stream.
    bool announced = false;    // Membership knows that it has attached.
    bool stopping = false;     // StopAgent was sent; its end is expected.
    bool start_again = false;  // StartAgent came while the old one was ending.
    bool suspected = false;
    bool lost = false;   // Its lease is over; only its remote shell is still to end.
    bool stuck = false;  // On this machine, silent for too long: its lifeline was ended.
    std::string start;   // AgentBootstrap.start.
    std::string boot_id;
    std::optional<AgentStarter::Ended> ended;  // Its first process, or the remote shell.
    Instant last_heard;                        // Of the loop's clock.
    Instant last_acknowledged;                 // Of boot_clock_, since agents count that too.
    Loop::TimerId stop_timer;
  };

  Status Start();
  Status StartDiscovery();
  void OnSignal(int signal);
  void OnPoll(const Result<discovery::HostList>& polled);
  void OnTick();
  void WarnOnce(const std::string& message);

  // AgentListener
  std::optional<std::string> OnAgentHello(const HostId& host, const v1::AgentHello& hello) override;
  void OnAgentAttached(const HostId& host, const v1::AgentHello& hello) override;
  void OnAgentResumed(const HostId& host) override;
  void OnAgentSummary(const HostId& host) override;
  void OnAgentReport(const HostId& host, const v1::AgentReport& report) override;
  void OnAgentDetached(const HostId& host, const std::string& why) override;

  Status PrepareNetwork();
  Status OpenToNetwork();
  Result<v1::AgentBootstrap> MakeBootstrap(const HostId& host, AgentStarter::Place place);
  v1::Welcome MakeWelcome(AgentKind kind) const;
  void OnAgentProcessEnded(const HostId& host, const AgentStarter::Ended& ended);
  void OnAgentNotStarted(const HostId& host, const std::string& message, bool unreachable);
  void HeardOf(const HostId& host, Agent& agent);
  void CheckAgentOver(const HostId& host);
  void OnAgentOver(const HostId& host, const Agent& agent);
  void ForgetAgent(const HostId& host);
  void SuspectSilentAgents(Instant now);
  void EndLeases();
  void EndStuckAgents(Instant now);
  void LoseAgent(const HostId& host, const std::string& evidence);

  // Workers of this machine listen where other machines reach it, before any of these takes part.
  void Announce(const HostId& host, const v1::AgentHello& hello);
  std::string LocalAddressFor(const v1::AgentHello& hello) const;
  void OpenLocalListeners(const std::string& literal);
  void OnListenersOpened(const HostId& host, const std::string& literal);
  void StopAwaitingListeners(const HostId& host);
  void AnnounceReady();

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
  void StartRecord();
  void Keep(std::vector<Incident> incidents);
  void Finish(int code, const std::string& cause);
  void StopIfAllAgentsAreOver();

  const RunOptions options_;
  const std::string job_id_;
  const std::string secret_;
  Loop loop_;
  BootClock boot_clock_;
  Trace trace_;
  OutputWriter output_;
  RendezvousService service_;
  AgentStarter starter_;
  std::unique_ptr<discovery::HostSource> source_;
  discovery::AgentHostSource* dialled_in_ = nullptr;  // source_, if agents are the discovery.
  std::unique_ptr<discovery::DiscoveryPoller> poller_;
  Membership membership_;
  IncidentCollector incidents_;
  IncidentWriter record_;
  JobSignals signals_;
  HostSweeper sweeper_;

  std::map<HostId, Agent> agents_;
  std::vector<std::string> own_addresses_;  // Host literals chosen by --network-interface.
  std::vector<std::string> listen_;         // Where workers of this machine listen; port 0.
  // By such a literal: local agents whose workers do not all listen there yet.
  std::map<std::string, std::set<HostId>> opening_;
  std::map<HostId, std::string> held_back_;  // Attached; waits for that literal.
  std::map<Incarnation, SlotId> workers_;    // Not yet exited.
  std::set<Incarnation> refused_;
  std::map<TimerKey, Loop::TimerId> timers_;
  std::optional<discovery::HostList> last_list_;
  std::set<std::string> warned_;
  Instant last_tick_;
  bool finishing_ = false;
  int exit_code_ = 0;
  std::string cause_;
};

}  // namespace muster::launcher
