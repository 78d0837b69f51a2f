#pragma once

// Membership decides which workers form the current world: events and the time go in, ordered
// effects and a reason in words come out. It does no I/O and owns no thread, lock or clock; the
// same inputs give the same outputs. Phases, rules and reasons: docs/membership.md.
//
// Not thread-safe: the driver calls it from its loop thread only.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/core/membership_state.h"
#include "launcher/core/membership_types.h"
#include "launcher/core/rank_assignment.h"
#include "launcher/core/slot_blame.h"

namespace muster::launcher {

class Membership {
 public:
  explicit Membership(MembershipOptions options);
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Takes one event. `now` is not before the `now` of any earlier call. After FinishJob has gone
  /// out every further event is taken and leads to nothing.
  [[nodiscard]] Transition Step(const Event& event, Instant now);

  /// Of the newest world, standing or revoked; 0 before the first.
  Generation generation() const { return world_.generation; }
  /// The newest world in rank order, as FormWorld named it; lost members stay listed until the
  /// next world. Empty before the first.
  const std::vector<Incarnation>& members() const { return world_.members; }
  /// Rank in the newest world; nothing for a worker outside it.
  std::optional<uint32_t> RankOf(Incarnation worker) const;
  /// Nothing once the process is gone.
  std::optional<SlotId> SlotOf(Incarnation worker) const;
  /// True once FinishJob has gone out.
  bool finished() const { return std::holds_alternative<Finished>(phase_); }
  /// For logs: "gathering", "running", "asking", "holding", "ending", "finished".
  std::string_view phase() const;
  /// Changes of world that counted towards --reset-limit.
  uint32_t resets() const { return resets_.all; }

  /// MUSTER_CHECKs what must hold between two steps.
  void CheckInvariants() const;

 private:
  // membership_hosts.cc: discovery, agents, spawning.
  void On(const HostsDiscovered& event);
  void On(const DiscoveryFailed& event);
  void On(const AgentAttached& event);
  void On(const AgentLost& event);
  void On(const AgentStartFailed& event);
  void On(const DrainRequested& event);
  Host& HostNamed(const HostId& host);
  void UpdateListing(const std::vector<HostSlots>& hosts);
  void ReviewWithdrawals(Host& host);
  void DropPlanned(const Host& host);
  void LoseAllOn(const HostId& name, const std::string& how);
  bool MaySpawn() const;
  void Replan();
  void PlanSlots();
  void PlanWorker(const SlotId& slot, Host& host, std::vector<Incarnation>& planned);
  void SetProvisionalPlaces();
  void SyncAgents();
  void SpawnPlanned(Worker& worker);
  bool AllSetAside() const;
  void EndForNoSlots();
  uint32_t ListedSlots(bool usable_only) const;
  std::string MissingHosts() const;
  void WarnOfNoGrowth();

  // membership_silence.cc: agents that are not heard, and who may be given up for it.
  void On(const AgentSuspected& event);
  void On(const AgentReattached& event);
  void JudgeSilentAgents();
  void JudgeSilentAgent(const HostId& name);
  bool GoesOn(bool with_state) const;
  bool Silent(const Worker& worker) const { return silent_.contains(worker.slot.host); }
  bool Excused(const Worker& worker) const;
  int64_t SilentWarm() const;

  // membership_start.cc: up to the first world, arrivals.
  void On(const WorkerStarted& event);
  void On(const SpawnFailed& event);
  void On(const WorkerJoined& event);
  void On(const WorkerListening& event);
  void On(const WorkerWarm& event);
  void CheckStart();
  void ArmStart();
  void TryFirstWorld();
  void WatchStart();
  void OnStartTimeout();
  void FailArrival(const Worker& worker);
  void RevokeQuietSuccesses();

  // membership_world.cc: choosing and forming worlds, State.
  void On(const WorkerFormed& event);
  void On(const WorkerLeft& event);
  void On(const WorkerSynced& event);
  std::vector<Incarnation> Select() const;
  void AddHolder(std::vector<const Worker*>& chosen,
                 const std::vector<const Worker*>& leaving) const;
  void NextWorld(Change change);
  bool CloseWorld(Change change);
  Change Classify(Change change, const std::vector<Incarnation>& chosen) const;
  void EndForLostState();
  void Form(const std::vector<Incarnation>& chosen);
  void AdmitLeftOut();
  void LeaveOut(const std::set<Incarnation>& chosen);
  void RevokeWorld();
  void EnterHold();
  void ReconsiderHold();
  void LearnHeld(Worker& worker, const CommitId& held);
  void JudgeHolders();
  void ReleaseDrained(const std::optional<CommitId>& commit);
  uint32_t Need() const;
  uint32_t Bound() const;

  // membership_loss.cc: failures, the PeerLost question.
  void On(const WorkerLost& event);
  void On(const WorkerExited& event);
  void On(const PeerLost& event);
  void On(const SuspectAnswered& event);
  std::vector<Incarnation> SuspectsOf(const PeerLost& event);
  void Lose(Worker& worker, const std::string& how, Kill kill, Fault fault = Fault::kOwn);
  void Blame(const Worker& worker);
  void LoseSiblings(const HostId& host);
  void Erase(Incarnation id);
  void ExitedWhenDone(Worker& worker, const WorkerExited& event);
  void ExitedUnexpectedly(Worker& worker, const WorkerExited& event);
  void RecordExit(Worker& worker, int code, int signal);
  void StopAsking(Incarnation id);
  void BreakWorld();
  void RevokeBroken();
  void Ask(const std::vector<Incarnation>& suspects, const PeerLost& event);
  void RecordBreaks(const std::vector<Incarnation>& suspects, Incarnation reporter);
  void ConcludeAsking();
  void ExpelRepeated();

  // membership_growth.cc: wishes, drains.
  void ReconsiderWish();
  void OrderDrains(int64_t growth);
  void OrderDrain(const std::vector<Incarnation>& workers);
  void Notify(bool pending);
  void Dismiss(Worker& worker);
  int64_t Takeable() const;
  int64_t Growth() const;
  int64_t Arriving() const;

  // membership_end.cc: Done, shutdown, stop, the end.
  void On(const WorkerDone& event);
  void On(const WorkerRunning& event);
  void On(const WorkerBye& event);
  void On(const StopRequested& event);
  void On(const TimerFired& event);
  void OnTimer(TimerKind kind, uint64_t subject);
  void OnElasticTimeout();
  void OnLossWindow();
  void OnFormedTimeout();
  void OnSuspectTimeout();
  void OnGraceOver(Incarnation id);
  void BeginClosing();
  bool Closing() const { return tally_.done + departed_.with_0 + departed_.lost > 0; }
  void ReleaseRank0();
  void EndJob(Verdict verdict, Incarnation decider = {});
  void WarnOfSilentHosts();
  void ForceAll();
  void EndIfNothingIsLeft();
  void Finish();
  void OnFinishTimer();

  void CheckWaits() const;

  // membership.cc: shared small tools.
  void Conclude();
  void Reconsider();
  Worker* Find(Incarnation id);
  const Worker* Find(Incarnation id) const;
  template <class F>
  void Update(Worker& worker, F change) {
    tally_.Add(worker, -1);
    change(worker);
    tally_.Add(worker, 1);
  }
  std::vector<Incarnation> LivingMembers() const;
  Candidate CandidateOf(const Worker& worker) const;
  std::string NameOf(const Worker& worker) const;
  std::string SecondsSinceStart(Instant at) const;
  std::string Describe(const Failure& failure) const;
  void Arm(TimerKind kind, uint64_t subject, Duration delay);
  void Cancel(TimerKind kind, uint64_t subject);
  bool Armed(TimerKind kind, uint64_t subject) const;
  void Emit(Effect effect);
  void WarnOnce(const std::string& message);
  void Because(const std::string& reason);
  template <class P>
  P* In() {
    return std::get_if<P>(&phase_);
  }
  template <class P>
  const P* In() const {
    return std::get_if<P>(&phase_);
  }

  const MembershipOptions options_;
  Instant begun_ = Instant::min();  // Of the first step.
  Instant now_ = Instant::min();    // Of the latest step.
  Transition out_;                  // Of the step that is being taken.
  Todo todo_;
  std::set<TimerKey> armed_;

  Phase phase_;
  World world_;
  std::map<Incarnation, Worker> workers_;  // Until the process is gone.
  Tally tally_;
  uint64_t next_incarnation_ = 1;

  std::map<HostId, Host> hosts_;
  std::map<uint64_t, HostId> host_order_;
  uint64_t next_host_ = 1;
  std::map<HostId, Instant> silent_;  // Suspected agents, and since when.
  bool discovered_ = false;
  std::string discovery_trouble_;
  std::set<std::string> warned_;
  SlotBlame blame_;

  std::optional<Generation> state_since_;  // Of the first commit heard of: State exists.
  bool any_joined_ = false;
  std::set<SlotId> quiet_;  // Slots whose program ended with 0 and never called init().
  Incarnation needed_;      // Holds a newer commit than the world does: a member of the next one.
  Instant first_world_at_ = Instant::min();

  Resets resets_;
  Generation placed_for_;  // The world that the provisional places start from.
  bool settled_ = false;   // Half a second has passed since the last newcomer was warm.
  std::map<std::pair<Incarnation, Incarnation>, std::map<Generation, Instant>> breaks_;
  uint32_t failed_formations_ = 0;
  std::optional<Failure> last_failure_;
  Incarnation last_failed_;
  std::vector<Epilogue> epilogues_;
  Departed departed_;
};

}  // namespace muster::launcher
