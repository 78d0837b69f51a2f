// Races, all of them: a few events that can cross in a real job, in every order. After each order
// the job is brought to its end by cooperative workers, which has to work whatever came first.

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "launcher/core/membership.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Workers that do at once what they are told, and finish.
class Cooperative {
 public:
  explicit Cooperative(MembershipOptions options) : membership_(options) {}

  void Take(const Event& event) {
    now_ += milliseconds(1);
    const Transition transition = membership_.Step(event, now_);
    membership_.CheckInvariants();
    for (const Effect& effect : transition.effects) {
      Note(effect);
    }
  }

  void Start() {
    Take(HostsDiscovered{{{HostId{"a"}, 2}, {HostId{"b"}, 2}}});
    Take(AgentAttached{HostId{"a"}});
    Take(AgentAttached{HostId{"b"}});
    for (uint64_t id = 1; id <= 4; ++id) {
      Take(WorkerJoined{Incarnation{id}, {}});
    }
    FormAndSync();
  }

  void FormAndSync() {
    const auto members = membership_.members();
    const Generation generation = membership_.generation();
    for (const Incarnation id : members) {
      Take(WorkerFormed{id, generation, held_});
    }
    held_ = held_.value_or(CommitId{1, 0});
    for (const Incarnation id : members) {
      Take(WorkerSynced{id, generation, *held_});
    }
  }

  /// Everything that was asked for happens, in rounds, until the job is over. False if it is not
  /// over after many rounds.
  bool Finish() {
    for (int round = 0; round < 60 && !membership_.finished(); ++round) {
      now_ += seconds(40);
      Obey();
      FireAll();
      if (membership_.phase() == "running") {
        FormAndSync();
        FireAll();
      }
      if (membership_.phase() == "running" && round > 5) {
        for (const Incarnation id : std::vector(membership_.members())) {
          Take(WorkerDone{id, membership_.generation()});
        }
        for (const auto& [id, process] : std::map(processes_)) {
          Take(WorkerBye{id});
          Exit(id, 0);
        }
      }
    }
    return membership_.finished();
  }

  const std::vector<FormWorld>& worlds() const { return worlds_; }
  int code() const { return code_; }
  const std::string& cause() const { return cause_; }
  Membership& membership() { return membership_; }

 private:
  struct Process {
    bool killed = false;
  };

  void Note(const Effect& effect) {
    if (const auto* spawn = std::get_if<SpawnWorker>(&effect)) {
      processes_[spawn->worker] = {};
      newborn_.insert(spawn->worker);
    } else if (const auto* kill = std::get_if<KillWorker>(&effect)) {
      const auto found = processes_.find(kill->worker);
      if (found != processes_.end()) {
        found->second.killed = true;
      }
    } else if (const auto* release = std::get_if<Release>(&effect)) {
      for (const Incarnation id : release->workers) {
        released_.insert(id);
      }
    } else if (const auto* arm = std::get_if<ArmTimer>(&effect)) {
      timers_.insert(arm->timer);
    } else if (const auto* cancel = std::get_if<CancelTimer>(&effect)) {
      timers_.erase(cancel->timer);
    } else if (const auto* form = std::get_if<FormWorld>(&effect)) {
      worlds_.push_back(*form);
    } else if (const auto* start = std::get_if<StartAgent>(&effect)) {
      starting_.insert(start->host);
    } else if (const auto* ask = std::get_if<AskAgent>(&effect)) {
      for (const Incarnation id : ask->suspects) {
        asked_.insert(id);
      }
    } else if (const auto* finish = std::get_if<FinishJob>(&effect)) {
      code_ = finish->code;
      cause_ = finish->cause;
    }
  }

  void Obey() {
    for (const HostId& host : std::exchange(starting_, {})) {
      Take(AgentAttached{host});
    }
    for (const Incarnation id : std::exchange(asked_, {})) {
      Take(SuspectAnswered{id, membership_.generation(), processes_.contains(id)});
    }
    for (const Incarnation id : std::exchange(newborn_, {})) {
      Take(WorkerJoined{id, {}});
      Take(WorkerWarm{id});
    }
    for (const auto& [id, process] : std::map(processes_)) {
      if (process.killed) {
        Exit(id, 137);
      }
    }
    for (const Incarnation id : std::exchange(released_, {})) {
      Take(WorkerBye{id});
      Exit(id, 0);
    }
    if (membership_.phase() == "running") {
      for (const Incarnation id : std::vector(membership_.members())) {
        Take(WorkerLeft{id, membership_.generation(), held_});
      }
    }
  }

  void FireAll() {
    for (const TimerKey& timer : std::set(timers_)) {
      const bool formation = timer.kind == TimerKind::kFormed;
      // These would end a job whose workers do answer, only later than this model has time for.
      if (formation || timer.kind == TimerKind::kElastic || timer.kind == TimerKind::kGrace) {
        continue;
      }
      timers_.erase(timer);
      Take(TimerFired{timer});
    }
  }

  void Exit(Incarnation id, int code) {
    if (processes_.erase(id) > 0) {
      newborn_.erase(id);
      Take(WorkerExited{id, code, code > 128 ? code - 128 : 0});
    }
  }

  Membership membership_;
  Instant now_{seconds(10)};
  std::optional<CommitId> held_;
  std::map<Incarnation, Process> processes_;
  std::set<Incarnation> newborn_;
  std::set<Incarnation> released_;
  std::set<Incarnation> asked_;
  std::set<HostId> starting_;
  std::set<TimerKey> timers_;
  std::vector<FormWorld> worlds_;
  int code_ = -1;
  std::string cause_;
};

MembershipOptions FourWorkers() {
  MembershipOptions options;
  options.elastic = true;
  options.np_start = 4;
  options.np_min = 1;
  options.np_max = 6;
  return options;
}

void InEveryOrder(const std::vector<Event>& events, int expected_code) {
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), 0);
  size_t orders = 0;
  do {
    std::string text;
    for (const size_t index : order) {
      text += " " + std::to_string(index);
    }
    INFO("order" << text);
    Cooperative job(FourWorkers());
    job.Start();
    for (const size_t index : order) {
      job.Take(events[index]);
    }
    const bool finished = job.Finish();
    INFO("phase " << job.membership().phase() << ", cause " << job.cause());
    REQUIRE(finished);
    REQUIRE(job.code() == expected_code);
    for (size_t i = 1; i < job.worlds().size(); ++i) {
      REQUIRE(job.worlds()[i].generation.value == job.worlds()[i - 1].generation.value + 1);
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  REQUIRE(orders > 1);
}

const Generation kFirst{1};
const CommitId kHeld{1, 7};

TEST_CASE("two losses, the news of them and the exits may cross") {
  InEveryOrder({WorkerLost{Incarnation{2}, LossKind::kOwnerDied, ""},
                WorkerLost{Incarnation{3}, LossKind::kOwnerDied, ""},
                WorkerExited{Incarnation{2}, 137, 9},
                WorkerExited{Incarnation{3}, 137, 9},
                PeerLost{Incarnation{1}, kFirst, {1, 2}, false, "reset"},
                TimerFired{{TimerKind::kLossWindow, 0}}},
               0);
}

TEST_CASE("a growth, a loss and the members that leave may cross") {
  InEveryOrder({HostsDiscovered{{{HostId{"a"}, 2}, {HostId{"b"}, 2}, {HostId{"c"}, 1}}},
                AgentAttached{HostId{"c"}},
                WorkerJoined{Incarnation{5}, {}},
                WorkerWarm{Incarnation{5}},
                WorkerLeft{Incarnation{1}, kFirst, kHeld},
                WorkerLost{Incarnation{4}, LossKind::kOwnerDied, ""}},
               0);
}

TEST_CASE("a removal, its return and the members that leave may cross") {
  InEveryOrder({HostsDiscovered{{{HostId{"a"}, 2}}},
                HostsDiscovered{{{HostId{"a"}, 2}}},
                HostsDiscovered{{{HostId{"a"}, 2}, {HostId{"b"}, 2}}},
                WorkerLeft{Incarnation{1}, kFirst, kHeld},
                WorkerLeft{Incarnation{2}, kFirst, kHeld},
                WorkerLeft{Incarnation{3}, kFirst, kHeld}},
               0);
}

TEST_CASE("a removal, a drain and losses may cross") {
  InEveryOrder({HostsDiscovered{{{HostId{"b"}, 2}}},
                HostsDiscovered{{{HostId{"b"}, 2}}},
                DrainRequested{HostId{"a"}},
                WorkerLost{Incarnation{1}, LossKind::kFrozen, "stopped"},
                WorkerExited{Incarnation{1}, 137, 9},
                TimerFired{{TimerKind::kLossWindow, 0}}},
               0);
}

TEST_CASE("the ends of members and a loss may cross") {
  InEveryOrder({WorkerDone{Incarnation{1}, kFirst},
                WorkerDone{Incarnation{2}, kFirst},
                WorkerDone{Incarnation{3}, kFirst},
                WorkerLost{Incarnation{4}, LossKind::kOwnerDied, ""},
                WorkerExited{Incarnation{4}, 137, 9},
                TimerFired{{TimerKind::kLossWindow, 0}}},
               0);
}

TEST_CASE("a broken link, the answers and the death of the suspect may cross") {
  InEveryOrder({PeerLost{Incarnation{1}, kFirst, {2}, false, "reset"},
                PeerLost{Incarnation{3}, kFirst, {0}, false, "reset"},
                SuspectAnswered{Incarnation{3}, kFirst, true},
                SuspectAnswered{Incarnation{1}, kFirst, true},
                WorkerLost{Incarnation{3}, LossKind::kOwnerDied, ""},
                TimerFired{{TimerKind::kSuspect, 1}}},
               0);
}

TEST_CASE("a silent agent, its return and a broken link may cross") {
  InEveryOrder({AgentSuspected{{HostId{"b"}}},
                AgentReattached{HostId{"b"}},
                PeerLost{Incarnation{1}, kFirst, {2, 3}, false, "reset"},
                WorkerLost{Incarnation{2}, LossKind::kOwnerDied, ""},
                TimerFired{{TimerKind::kLossWindow, 0}},
                TimerFired{{TimerKind::kSuspect, 1}}},
               0);
}

TEST_CASE("a cut of all hosts, their return, what they say then and a loss may cross") {
  InEveryOrder({AgentSuspected{{HostId{"a"}, HostId{"b"}}},
                AgentReattached{HostId{"b"}},
                AgentReattached{HostId{"a"}},
                WorkerSynced{Incarnation{3}, kFirst, kHeld},
                WorkerLost{Incarnation{4}, LossKind::kOwnerDied, ""},
                TimerFired{{TimerKind::kSilence, 0}},
                TimerFired{{TimerKind::kLossWindow, 0}}},
               0);
}

TEST_CASE("a lost agent, the exits it has told of and a removal may cross") {
  InEveryOrder({AgentLost{HostId{"b"}, "its process ended"},
                WorkerExited{Incarnation{3}, 137, 9},
                WorkerLost{Incarnation{4}, LossKind::kSilent, ""},
                HostsDiscovered{{{HostId{"a"}, 2}}},
                AgentAttached{HostId{"b"}},
                TimerFired{{TimerKind::kLossWindow, 0}}},
               0);
}

TEST_CASE("a stop ends the job with its code whatever it crosses") {
  InEveryOrder({StopRequested{15},
                WorkerLost{Incarnation{2}, LossKind::kOwnerDied, ""},
                AgentSuspected{{HostId{"b"}}},
                HostsDiscovered{{{HostId{"a"}, 2}}},
                WorkerLeft{Incarnation{1}, kFirst, kHeld},
                PeerLost{Incarnation{1}, kFirst, {1}, false, "reset"}},
               143);
}

}  // namespace
}  // namespace muster::launcher
