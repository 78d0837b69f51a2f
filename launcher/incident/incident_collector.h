#pragma once

// IncidentCollector: makes one Incident of each change of world from what the driver sees anyway:
// the events that it feeds to Membership, what came back, and when. It decides nothing and asks
// nobody; its cost per event does not grow with the job, but for effects that name workers.
//
// A change begins with the first word of trouble that has an effect, with the order to leave, or
// with the next world; it is over when all members of that world have synced, when the next change
// begins, or when the job ends. Evidence that comes before it is known what it is evidence of is
// kept as a clue.
//
// It does no I/O, has no clock and no thread: the same story gives the same incidents.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/core/membership.h"
#include "launcher/incident/incident.h"

namespace muster::launcher {

/// A record holds so many victims, newcomers and pieces of evidence, of so many bytes each: with a
/// thousand ranks it stays a few KB.
inline constexpr size_t kIncidentEntriesMax = 32;
inline constexpr size_t kIncidentTextMax = 300;
/// The exit code of a victim comes after the loss. So long after the change it is not awaited.
inline constexpr Duration kLateFactsTime = std::chrono::seconds(2);

class IncidentCollector {
 public:
  explicit IncidentCollector(Instant begun) : begun_(begun) {}

  /// After each Membership::Step: what went in, what came out, and Membership as that step has left
  /// it. Gives the records that are to be written now.
  std::vector<Incident> Observe(const Event& event,
                                const Transition& transition,
                                const Membership& membership,
                                Instant now);

  /// The job ends with this code. Observe sees that in FinishJob; this is for an end that
  /// Membership has no part in. Further events lead to nothing.
  std::vector<Incident> End(int code, const std::string& cause, Instant now);

 private:
  struct Worker {
    SlotId slot;
    int64_t pid = 0;
    std::optional<uint32_t> rank;  // In the newest world.
    bool draining = false;
    bool done = false;
    bool dismissed = false;  // It may go; how it ends is no news.
    bool kill_sent = false;  // Muster ends its process.
    bool lost = false;
  };
  /// What a clue may be evidence of.
  enum class Topic : uint8_t { kTrouble, kRemoval, kGrowth, kEnd };
  struct Clue {
    Topic topic = Topic::kTrouble;
    HostId host;         // Empty: it concerns no host.
    Incarnation worker;  // 0: no single one.
    Evidence evidence;
  };
  struct Change {
    Incident incident;
    std::map<Topic, Duration> first_word;
    bool revoked = false;
    bool link_broke = false;
    bool formation_failed = false;
    bool hold_told = false;
    std::set<Incarnation> unformed;
    std::set<Incarnation> unsynced;
    Instant closed;  // Since when it only waits for late facts.
  };

  // incident_evidence.cc: what an event says by itself.
  void Note(const HostsDiscovered& event);
  void Note(const AgentReattached& event);
  void Note(const AgentSuspected& event);
  void Note(const AgentLost& event);
  void Note(const AgentStartFailed& event);
  void Note(const WorkerStarted& event);
  void Note(const SpawnFailed& event);
  void Note(const WorkerWarm& event);
  void Note(const WorkerFormed& event);
  void Note(const WorkerLeft& event);
  void Note(const WorkerSynced& event);
  void Note(const WorkerDone& event);
  void Note(const WorkerRunning& event);
  void Note(const WorkerLost& event);
  void Note(const WorkerExited& event);
  void Note(const PeerLost& event);
  void Note(const SuspectAnswered& event);
  void Note(const DrainRequested& event);
  void Note(const StopRequested& event);
  void Note(const TimerFired& event);
  template <class Other>
  void Note(const Other& /*event*/) {}
  void Say(Topic topic, Clue clue);
  void SayOf(Topic topic, Incarnation worker, const std::string& text);
  void LearnHeld(const std::optional<CommitId>& held);
  Worker* Find(Incarnation worker);
  std::string NameOf(Incarnation worker) const;

  // incident_losses.cc: who was lost by a step, and what became of it.
  void SeeLosses(const Event& event, const Transition& transition, const Membership& membership);
  bool JustLost(Incarnation id, const Event& event, const Membership& membership);
  Victim MakeVictim(Incarnation id, const Event& event) const;
  Fate FateOf(Incarnation id, const Event& event) const;
  void LoseMember(Incarnation id, const Event& event);
  void LoseNewcomer(Incarnation id, const Event& event, bool job_ends);
  void LearnExit(const WorkerExited& event);
  void ForgetGone(const Event& event);

  // incident_collector.cc: the changes.
  void See(const SpawnWorker& effect, const Event& event);
  void See(const KillWorker& effect, const Event& event);
  void See(const Release& effect, const Event& event);
  void See(const Drain& effect, const Event& event);
  void See(const NotifyPending& effect, const Event& event);
  void See(const FormWorld& effect, const Event& event);
  template <class Other>
  void See(const Other& /*effect*/, const Event& /*event*/) {}
  void SeeRevoke(const Event& event);
  void SeePhase(const Membership& membership);
  Change& Begin(Topic topic);
  void Adopt(Change& change, Topic topic, const std::set<HostId>* hosts = nullptr);
  static void Add(Change& change, Topic topic, const Evidence& evidence);
  static void Add(Change& change, const Victim& victim);
  void Decide(const std::string& reason);
  void LeaveBehind(const std::set<Incarnation>& next);
  void TakeIn(const FormWorld& effect);
  bool IsWithdrawn(const Worker& worker) const;
  void Close(Outcome outcome);
  Duration FirstWord(const Change& change, Topic topic) const;
  void Complete(Change& change, Outcome outcome);
  void WriteHold();
  void WriteLate(bool all);
  void EndNow(int code, const std::string& cause);
  Duration At() const { return now_ - begun_; }

  const Instant begun_;
  Instant now_ = begun_;
  uint64_t last_number_ = 0;
  std::map<Incarnation, Worker> workers_;  // Until the process is gone.
  std::vector<Incarnation> members_;       // Of the newest world, in rank order.
  Generation generation_;
  std::map<HostId, uint32_t> listed_;
  std::set<HostId> drain_requested_;
  std::set<HostId> suspected_;
  std::optional<CommitId> newest_known_;
  std::deque<Clue> clues_;
  std::optional<Change> change_;  // Under way.
  std::deque<Change> late_;       // Over; the code of a victim may still come.
  std::vector<Incident> out_;     // Of this step.
  bool significant_ = false;      // Of this step: its reason is a decision.
  bool ending_ = false;
  bool ended_ = false;
};

}  // namespace muster::launcher
