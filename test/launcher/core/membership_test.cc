#include "launcher/core/membership.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Feeds events and keeps what came of them. Every step moves the clock by a millisecond.
class Job {
 public:
  explicit Job(MembershipOptions options) : membership_(options) {}

  Transition Take(const Event& event) {
    now_ += milliseconds(1);
    Transition transition = membership_.Step(event, now_);
    if (checked_) {
      membership_.CheckInvariants();
    }
    for (const Effect& effect : transition.effects) {
      effects_.push_back(effect);
      if (const auto* arm = std::get_if<ArmTimer>(&effect)) {
        armed_.insert(arm->timer);
      } else if (const auto* cancel = std::get_if<CancelTimer>(&effect)) {
        armed_.erase(cancel->timer);
      }
    }
    return transition;
  }

  void Fire(TimerKind kind, uint64_t subject = 0) {
    REQUIRE(armed_.erase({kind, subject}) == 1);
    Take(TimerFired{{kind, subject}});
  }

  /// All effects of one kind so far.
  template <class E>
  std::vector<E> All() const {
    std::vector<E> found;
    for (const Effect& effect : effects_) {
      if (const auto* concrete = std::get_if<E>(&effect)) {
        found.push_back(*concrete);
      }
    }
    return found;
  }

  /// Brings `hosts` of `slots` each up to a first world that has synced.
  void Start(uint32_t hosts, uint32_t slots) {
    HostsDiscovered discovered;
    for (uint32_t host = 0; host < hosts; ++host) {
      discovered.hosts.push_back({HostId{"h" + std::to_string(host)}, slots});
    }
    Take(discovered);
    for (const HostSlots& host : discovered.hosts) {
      Take(AgentAttached{host.host});
    }
    for (uint64_t id = 1; id <= hosts * slots; ++id) {
      Take(WorkerJoined{Incarnation{id}, {}});
    }
    FormAndSync();
  }

  void FormAndSync() {
    const auto members = membership_.members();
    const Generation generation = membership_.generation();
    for (const Incarnation id : members) {
      Take(WorkerFormed{id, generation, std::nullopt});
    }
    for (const Incarnation id : members) {
      Take(WorkerSynced{id, generation, CommitId{generation.value, 0}});
    }
  }

  Membership& membership() { return membership_; }
  /// Large worlds are checked where the test asks for it: each check walks over all workers.
  void CheckOnlyOnDemand() { checked_ = false; }
  bool Armed(TimerKind kind, uint64_t subject = 0) const {
    return armed_.contains({kind, subject});
  }

 private:
  Membership membership_;
  bool checked_ = true;
  Instant now_{seconds(100)};
  std::vector<Effect> effects_;
  std::set<TimerKey> armed_;
};

MembershipOptions Elastic(uint32_t start, uint32_t least) {
  MembershipOptions options;
  options.elastic = true;
  options.np_start = start;
  options.np_min = least;
  options.np_max = start;
  return options;
}

TEST_CASE("membership begins without a world") {
  const Membership membership(Elastic(2, 1));
  CHECK(membership.generation() == Generation{0});
  CHECK(membership.members().empty());
  CHECK(membership.phase() == "gathering");
  CHECK_FALSE(membership.finished());
  CHECK(membership.RankOf(Incarnation{1}) == std::nullopt);
  CHECK(membership.SlotOf(Incarnation{1}) == std::nullopt);
  membership.CheckInvariants();
}

TEST_CASE("membership shows its world, ranks and slots") {
  Job job(Elastic(4, 1));
  job.Start(2, 2);
  const Membership& membership = job.membership();
  CHECK(membership.phase() == "running");
  CHECK(membership.generation() == Generation{1});
  REQUIRE(membership.members().size() == 4);
  CHECK(membership.RankOf(Incarnation{1}) == 0U);
  CHECK(membership.RankOf(Incarnation{4}) == 3U);
  CHECK(membership.SlotOf(Incarnation{3}) == SlotId{HostId{"h1"}, 0});
  CHECK(membership.resets() == 0);
}

TEST_CASE("a lost member has no rank, keeps its slot until it is gone, and stays listed") {
  Job job(Elastic(2, 1));
  job.Start(2, 1);
  job.Take(WorkerLost{Incarnation{1}, LossKind::kOwnerDied, ""});
  const Membership& membership = job.membership();
  CHECK(membership.RankOf(Incarnation{1}) == std::nullopt);
  CHECK(membership.SlotOf(Incarnation{1}) == SlotId{HostId{"h0"}, 0});
  CHECK(membership.members().size() == 2);
  job.Fire(TimerKind::kLossWindow);
  CHECK(membership.members() == std::vector{Incarnation{2}});
  CHECK(membership.RankOf(Incarnation{2}) == 0U);
  CHECK(membership.resets() == 1);
  job.Take(WorkerExited{Incarnation{1}, 137, 9});
  CHECK(membership.SlotOf(Incarnation{1}) == std::nullopt);
}

TEST_CASE("phases are named for logs") {
  Job job(Elastic(2, 2));
  job.Start(2, 1);
  const Membership& membership = job.membership();
  job.Take(PeerLost{Incarnation{1}, Generation{1}, {1}, false, ""});
  CHECK(membership.phase() == "asking");
  job.Take(WorkerLost{Incarnation{2}, LossKind::kOwnerDied, ""});
  job.Fire(TimerKind::kLossWindow);
  CHECK(membership.phase() == "holding");
  job.Take(StopRequested{15});
  CHECK(membership.phase() == "ending");
  job.Take(WorkerExited{Incarnation{1}, 0, 0});
  job.Take(WorkerExited{Incarnation{2}, 0, 0});
  CHECK(membership.phase() == "finished");
  CHECK(membership.finished());
}

TEST_CASE("a step that changes something says why in words") {
  Job job(Elastic(1, 1));
  const auto discovered = job.Take(HostsDiscovered{{{HostId{"a"}, 1}}});
  CHECK(discovered.reason == "the slots to start with are there");
  CHECK(job.Take(AgentAttached{HostId{"a"}}).reason == "the agent of host a is up");
  CHECK(job.Take(WorkerStarted{Incarnation{1}, 77}).reason ==
        "the worker on slot 0 of host a runs as pid 77");
  CHECK(job.Take(WorkerJoined{Incarnation{1}, {}}).reason ==
        "every slot is warm or has failed; world 1 of 1");
  CHECK(job.Take(WorkerWarm{Incarnation{1}}).reason.empty());
}

TEST_CASE("members travel with the addresses that they joined with") {
  Job job(Elastic(1, 1));
  job.Take(HostsDiscovered{{{HostId{"a"}, 1}}});
  job.Take(AgentAttached{HostId{"a"}});
  job.Take(WorkerJoined{Incarnation{1}, {"127.0.0.1:4711", "[::1]:4711"}});
  const auto worlds = job.All<FormWorld>();
  REQUIRE(worlds.size() == 1);
  REQUIRE(worlds[0].members.size() == 1);
  CHECK(worlds[0].members[0] ==
        Member{Incarnation{1}, SlotId{HostId{"a"}, 0}, {"127.0.0.1:4711", "[::1]:4711"}});
}

TEST_CASE("the next world names the addresses at which a member listens by then") {
  Job job(Elastic(2, 1));
  job.Start(2, 1);
  const std::vector<std::string> both{"127.0.0.1:1", "10.0.0.1:2"};
  job.Take(WorkerListening{Incarnation{1}, both});
  CHECK(job.All<FormWorld>().size() == 1);
  job.Take(WorkerLost{Incarnation{2}, LossKind::kOwnerDied, ""});
  job.Fire(TimerKind::kLossWindow);
  const auto worlds = job.All<FormWorld>();
  REQUIRE(worlds.size() == 2);
  CHECK(worlds[1].members[0].addresses == both);
  CHECK(job.Take(WorkerListening{Incarnation{9}, both}).effects.empty());
}

TEST_CASE("a spawned worker is told its slot's index as its local rank") {
  Job job(Elastic(3, 1));
  job.Take(HostsDiscovered{{{HostId{"a"}, 2}, {HostId{"b"}, 2}}});
  job.Take(AgentAttached{HostId{"a"}});
  job.Take(AgentAttached{HostId{"b"}});
  const auto spawns = job.All<SpawnWorker>();
  REQUIRE(spawns.size() == 3);
  CHECK(spawns[0].provisional == Placement{0, 3, 0, 2, 0, 2});
  CHECK(spawns[1].provisional == Placement{1, 3, 1, 2, 0, 1});
  CHECK(spawns[2].provisional == Placement{2, 3, 0, 1, 1, 2});
}

TEST_CASE("a newcomer is told where it will most likely stand") {
  MembershipOptions options = Elastic(2, 1);
  options.np_max = 4;
  Job job(options);
  job.Take(HostsDiscovered{{{HostId{"a"}, 2}}});
  job.Take(AgentAttached{HostId{"a"}});
  job.Take(WorkerJoined{Incarnation{1}, {}});
  job.Take(WorkerJoined{Incarnation{2}, {}});
  job.FormAndSync();
  job.Take(HostsDiscovered{{{HostId{"a"}, 2}, {HostId{"b"}, 2}}});
  job.Take(AgentAttached{HostId{"b"}});
  job.Take(WorkerJoined{Incarnation{4}, {}});
  const auto admitted = job.All<Admit>();
  REQUIRE(admitted.size() == 1);
  CHECK(admitted[0].worker == Incarnation{4});
  CHECK(admitted[0].provisional == Placement{3, 4, 1, 2, 1, 2});
}

TEST_CASE("the place of a newcomer follows the world that has changed meanwhile") {
  MembershipOptions options = Elastic(2, 1);
  options.np_max = 3;
  Job job(options);
  job.Take(HostsDiscovered{{{HostId{"a"}, 1}, {HostId{"b"}, 1}}});
  job.Take(AgentAttached{HostId{"a"}});
  job.Take(AgentAttached{HostId{"b"}});
  job.Take(WorkerJoined{Incarnation{1}, {}});
  job.Take(WorkerJoined{Incarnation{2}, {}});
  job.FormAndSync();
  job.Take(HostsDiscovered{{{HostId{"a"}, 1}, {HostId{"b"}, 1}, {HostId{"c"}, 1}}});
  job.Take(AgentAttached{HostId{"c"}});
  CHECK(job.All<SpawnWorker>().back().provisional.rank == 2);
  job.Take(WorkerLost{Incarnation{1}, LossKind::kOwnerDied, ""});
  job.Fire(TimerKind::kLossWindow);
  job.Take(WorkerJoined{Incarnation{3}, {}});
  CHECK(job.All<Admit>().back().provisional.rank == 1);
  CHECK(job.All<Admit>().back().provisional.size == 2);
}

TEST_CASE("incarnations grow and are never used again") {
  MembershipOptions options = Elastic(1, 1);
  options.np_max = 2;
  options.cooldown = CooldownRange{seconds(1), seconds(1)};
  Job job(options);
  job.Start(1, 1);
  job.Take(HostsDiscovered{{{HostId{"h0"}, 2}}});
  for (int i = 0; i < 20; ++i) {
    const Incarnation newest = job.All<SpawnWorker>().back().worker;
    job.Take(WorkerExited{newest, 1, 0});
    REQUIRE(job.Armed(TimerKind::kBackoff));
    // The timer is not early: the back-off is over when it fires.
    for (int ms = 0; ms < 1000; ++ms) {
      job.Take(WorkerStarted{newest, 1});
    }
    job.Fire(TimerKind::kBackoff);
  }
  const auto spawns = job.All<SpawnWorker>();
  REQUIRE(spawns.size() == 22);
  for (size_t i = 1; i < spawns.size(); ++i) {
    CHECK(spawns[i].worker > spawns[i - 1].worker);
  }
}

TEST_CASE("an old timer that was cancelled and fires all the same does nothing") {
  Job job(Elastic(2, 1));
  job.Start(2, 1);
  CHECK_FALSE(job.Armed(TimerKind::kFormed, 1));
  CHECK(job.Take(TimerFired{{TimerKind::kFormed, 1}}).effects.empty());
  CHECK(job.Take(TimerFired{{TimerKind::kElastic, 0}}).effects.empty());
  CHECK(job.Take(TimerFired{{TimerKind::kFinish, 0}}).effects.empty());
  CHECK(job.membership().phase() == "running");
}

TEST_CASE("signals are named in the last line") {
  const auto [signal, text] = GENERATE(table<int, std::string>({
      {9, "signal 9 (SIGKILL)"},
      {15, "signal 15 (SIGTERM)"},
      {2, "signal 2 (SIGINT)"},
      {1, "signal 1 (SIGHUP)"},
      {11, "signal 11 (SIGSEGV)"},
      {6, "signal 6 (SIGABRT)"},
      {7, "signal 7 (SIGBUS)"},
      {31, "signal 31"},
  }));
  Job job(Elastic(1, 1));
  job.Start(1, 1);
  job.Take(WorkerExited{Incarnation{1}, 128 + signal, signal});
  job.Fire(TimerKind::kLossWindow);
  const auto finish = job.All<FinishJob>();
  REQUIRE(finish.size() == 1);
  CHECK(finish[0].code == 128 + signal);
  CHECK(finish[0].cause.find("rank 0 on host h0 was killed by " + text) != std::string::npos);
}

TEST_CASE("the exit code of a static job is that of its first failure") {
  const auto [code, signal, expected] = GENERATE(table<int, int, int>({
      {1, 0, 1}, {7, 0, 7}, {255, 0, 255}, {137, 9, 137}, {0, 0, 70},  // Ended with 0, and was not
                                                                       // done.
  }));
  MembershipOptions options;
  options.np_start = 2;
  Job job(options);
  job.Start(1, 2);
  job.Take(WorkerExited{Incarnation{2}, code, signal});
  CHECK(job.membership().phase() == "ending");
  job.Take(WorkerExited{Incarnation{1}, 143, 15});
  REQUIRE(job.All<FinishJob>().size() == 1);
  CHECK(job.All<FinishJob>()[0].code == expected);
}

TEST_CASE("a message counts the workers that were stopped") {
  const auto [workers, text] = GENERATE(table<uint32_t, std::string>({
      {1, ""},
      {2, "; 1 other worker was stopped because of it"},
      {4, "; 3 other workers were stopped because of it"},
  }));
  MembershipOptions options;
  options.np_start = workers;
  Job job(options);
  job.Start(1, workers);
  job.Take(WorkerExited{Incarnation{1}, 7, 0});
  for (uint64_t id = 2; id <= workers; ++id) {
    job.Take(WorkerExited{Incarnation{id}, 143, 15});
  }
  REQUIRE(job.All<FinishJob>().size() == 1);
  const std::string cause = job.All<FinishJob>()[0].cause;
  CHECK(cause.find("rank 0 on host h0 exited with code 7 after 0.0 s" + text) == 0);
  CHECK((text.empty() == (cause.find("stopped") == std::string::npos)));
}

TEST_CASE("all effects of a static job come in the order in which they are to be performed") {
  MembershipOptions options;
  options.np_start = 1;
  Job job(options);
  job.Start(1, 1);
  const auto transition = job.Take(WorkerExited{Incarnation{1}, 3, 0});
  // What is armed is cancelled, the agent is stopped, and nothing follows the end.
  REQUIRE_FALSE(transition.effects.empty());
  CHECK(std::holds_alternative<FinishJob>(transition.effects.back()));
  CHECK(job.All<StopAgent>().size() == 1);
  CHECK(job.Take(HostsDiscovered{}).effects.empty());
}

// A world of 4,096 workers on 64 hosts, as large as the design is made for. What is checked is how
// much is said, which is what a driver has to carry.
TEST_CASE("a world of 4096 forms, loses one and forms again, and little is said") {
  Job job(Elastic(4096, 1));
  job.CheckOnlyOnDemand();
  job.Start(64, 64);
  job.membership().CheckInvariants();
  CHECK(job.membership().members().size() == 4096);
  CHECK(job.All<FormWorld>().size() == 1);
  CHECK(job.All<StartAgent>().size() == 64);
  job.Take(WorkerLost{Incarnation{1000}, LossKind::kOwnerDied, ""});
  job.Fire(TimerKind::kLossWindow);
  const auto worlds = job.All<FormWorld>();
  REQUIRE(worlds.size() == 2);
  CHECK(worlds[1].members.size() == 4095);
  CHECK(worlds[1].counts_as_reset);
  CHECK(job.All<Revoke>().size() == 1);  // At once; the world of the rest 3 ms later.
  CHECK(job.All<KillWorker>().size() == 1);
}

TEST_CASE("the loss of a host of 64 in a world of 4096 is one change") {
  Job job(Elastic(4096, 1));
  job.CheckOnlyOnDemand();
  job.Start(64, 64);
  job.membership().CheckInvariants();
  job.Take(AgentLost{HostId{"h0"}, "its process ended"});
  job.Fire(TimerKind::kLossWindow);
  const auto worlds = job.All<FormWorld>();
  REQUIRE(worlds.size() == 2);
  CHECK(worlds[1].members.size() == 4032);
  CHECK(job.membership().resets() == 1);
  CHECK(job.membership().RankOf(Incarnation{65}) == 0U);
}

}  // namespace
}  // namespace muster::launcher
