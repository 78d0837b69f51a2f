#pragma once

// MembershipSim: one whole job in virtual time around the production Membership. Agents, workers,
// discovery and the network are small models that react to its effects with random delays, and
// break at random. After each step the invariants and the safety rules are checked; after the
// faults everything heals, and the job has to come to an end.
//
// One seed gives one story. Not a model of speed, and nothing here decides for Membership.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "launcher/core/membership.h"

namespace muster::launcher {

class MembershipSim {
 public:
  explicit MembershipSim(uint64_t seed);

  /// Runs the story. Empty if all went as it must; else what was wrong.
  std::string Run();

  int exit_code() const { return exit_code_; }
  /// The last events and effects, for a failing seed.
  std::string Log() const;

 private:
  enum class At : uint8_t {
    kBooting,   // Before init().
    kInit,      // Waits in init() for a world or its admission.
    kUser,      // A newcomer between init() and its first sync.
    kAwait,     // Waits for the next world.
    kForming,   // Told of a world that is not complete yet.
    kTraining,  // In its elastic function, or in the sync before it.
    kEpilogue,  // Done.
    kShutdown,
  };
  struct Process {
    Incarnation id;
    SlotId slot;
    At at = At::kBooting;
    bool dead = false;
    bool frozen = false;
    bool joined = false;
    bool doomed = false;    // Was killed, refused or released: nobody counts on it.
    bool termed = false;    // Got SIGTERM: it may be counted on as long as it lives.
    bool released = false;  // Rank 0 in shutdown().
    bool rank0 = false;     // In its newest world.
    bool ignores_term = false;
    bool warm = false;
    bool done = false;     // The driver knows.
    bool pending = false;  // Was told that the world will change, or to drain.
    bool named = false;    // In a FormWorld, which it may not have heard of.
    Generation told;       // The newest FormWorld or Revoke.
    Generation in;         // The world that it is in, or was in last.
    std::optional<CommitId> held;
  };
  struct SimWorld {
    std::vector<Incarnation> members;
    std::set<Incarnation> received;
    std::set<Incarnation> synced;
    bool forming = false;  // All have received it.
    bool broken = false;   // A link does not work any more.
    bool leaving = false;  // Agreed: the next commit is the last.
    uint64_t sequence = 0;
  };
  struct SimAgent {
    bool up = false;         // Its session with the driver is not over.
    bool silent = false;     // The driver and it do not hear each other.
    bool isolated = false;   // Nor do its workers and those of other hosts.
    bool suspected = false;  // The driver has noticed.
    Instant silent_since{};
    Instant suspected_at{};
    Instant back_at{};
    uint64_t life = 0;  // Events for an agent that is gone find another life.
    std::vector<std::function<void()>> buffered;
  };

  // membership_sim.cc: time, the queue, effects.
  void Draw();
  void Later(Duration delay, std::function<void()> action);
  Duration Between(int64_t low_ms, int64_t high_ms);
  bool Chance(uint64_t percent) { return random_.Below(100) < percent; }
  void Take(const Event& event);
  void Report(const HostId& host, const Event& event);
  void Order(const HostId& host, std::function<void()> action);
  void Perform(const Effect& effect);
  void On(const StartAgent& effect);
  void On(const StopAgent& effect);
  void On(const SpawnWorker& effect);
  void On(const KillWorker& effect);
  void On(const AskAgent& effect);
  void On(const Refuse& effect);
  void On(const Drain& effect);
  void On(const FormWorld& effect);
  void On(const Revoke& effect);
  void On(const NotifyPending& effect);
  void On(const Release& effect);
  void On(const Admit& effect);
  void On(const ArmTimer& effect);
  void On(const CancelTimer& effect);
  void On(const FinishJob& effect);
  void On(const Warn& effect);
  Process* Alive(Incarnation id);

  // membership_sim_workers.cc: what workers and agents do.
  void Boot(Incarnation id);
  void ReachFirstSync(Incarnation id);
  void Receive(Incarnation id, Generation generation);
  void TryForm(Generation generation);
  void TrySync(Generation generation);
  void FinishSync(Incarnation id, Generation generation, CommitId commit);
  void TrainStep(Generation generation);
  void LeaveAll(Generation generation);
  void FinishAll(Generation generation);
  void BecomeDone(Incarnation id);
  void Shutdown(Incarnation id);
  void ExitByItself(Incarnation id, int code);
  void Die(Incarnation id, int code, int signal);
  void ReportBrokenLinks(Incarnation dead);
  bool AllAlive(const SimWorld& world);
  std::optional<CommitId> Newest(const SimWorld& world);

  // membership_sim_faults.cc.
  void Poll();
  void PlanFaults();
  void Fault();
  void FaultOnWorker(Process& process);
  void BreakLink();
  void KillAgent(const HostId& host);
  void ChangeHosts();
  void Heal();

  // membership_sim_network.cc: hosts that are cut off, come back, or reboot.
  void CutSome();
  void CutOff(const std::vector<HostId>& hosts, bool isolated);
  void SuspectSilent();
  void Reconnect(const HostId& host);
  void EndLease(const HostId& host);
  void Reboot(const HostId& host);
  bool Connected(const SimWorld& world);
  bool IsReachable(const HostId& host) const;

  // membership_sim_checks.cc.
  void CheckWorld(const FormWorld& effect);
  void CheckSpawn(const SpawnWorker& effect);
  void CheckGivenUp(const Process& lost);
  bool HasHadTime(const HostId& cut) const;
  void CheckSynced(Generation generation);
  void CheckFinish(const FinishJob& effect);
  void NoteEnding();
  void Wrong(const std::string& what);
  void Note(const std::string& what);

  struct Entry {
    Instant at;
    uint64_t number;
    std::function<void()> action;
    bool operator<(const Entry& other) const {
      return std::pair(other.at, other.number) < std::pair(at, number);
    }
  };

  Random random_;
  MembershipOptions options_;
  std::optional<Membership> membership_;
  Instant now_{};
  std::priority_queue<Entry> queue_;
  uint64_t next_entry_ = 0;
  std::map<TimerKey, uint64_t> timers_;  // The number of the newest arming.
  uint64_t next_arming_ = 0;

  std::vector<HostSlots> hosts_;      // What the script prints now.
  std::vector<HostSlots> all_hosts_;  // What it prints when all is well.
  std::vector<HostSlots> polled_;
  std::map<HostId, SimAgent> agents_;
  std::map<HostId, Instant> unreachable_until_;
  std::map<HostId, Instant> last_report_;
  std::map<HostId, Instant> last_order_;
  std::map<Incarnation, Process> processes_;
  std::map<Generation, SimWorld> worlds_;
  std::map<CommitId, int> progress_;
  int steps_ = 0;  // To be done.
  bool healed_ = false;
  bool crashing_ = false;  // The program crashes often.
  bool state_exists_ = false;
  bool any_done_ = false;
  bool ending_ = false;
  Instant ending_since_{};
  bool holder_at_end_ = false;
  bool finished_ = false;
  int exit_code_ = -1;
  std::string cause_;
  std::string wrong_;
  std::vector<std::string> log_;
};

}  // namespace muster::launcher
