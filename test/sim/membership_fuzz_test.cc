#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "launcher/core/membership.h"

namespace muster::launcher {
namespace {

// Events that no honest agent would send, in any order: late, doubled, about workers and
// generations that never were. Membership may do what it likes with them, but its invariants hold,
// it comes to rest after each, and it never speaks after the end.
class Fuzz {
 public:
  explicit Fuzz(uint64_t seed) : random_(seed), membership_(std::in_place, Options()) {}

  /// Empty if all went well.
  std::string Run(int events) {
    for (int i = 0; i < events && wrong_.empty(); ++i) {
      now_ += Duration(random_.Below(Chance(10) ? 20'000'000 : 20'000));
      Take(Chance(60) ? LikelyEvent() : AnyEvent());
      membership_->CheckInvariants();
    }
    return wrong_;
  }

 private:
  MembershipOptions Options() {
    MembershipOptions options;
    options.elastic = Chance(85);
    options.np_start = static_cast<uint32_t>(1 + random_.Below(4));
    options.np_min = static_cast<uint32_t>(1 + random_.Below(options.np_start));
    if (Chance(50)) {
      options.np_max = options.np_start + static_cast<uint32_t>(random_.Below(3));
    }
    options.spares = static_cast<uint32_t>(random_.Below(2));
    options.grace = std::chrono::seconds(1);
    options.blame_host = Chance(20);
    if (Chance(50)) {
      options.cooldown = CooldownRange{std::chrono::seconds(1), std::chrono::seconds(2)};
    }
    return options;
  }

  bool Chance(uint64_t percent) { return random_.Below(100) < percent; }
  HostId AnyHost() { return HostId{std::string(1, static_cast<char>('a' + random_.Below(4)))}; }
  Incarnation AnyWorker() { return Incarnation{random_.Below(newest_worker_ + 2)}; }
  Generation AnyGeneration() {
    const uint64_t now = membership_->generation().value;
    return Generation{Chance(80) ? now : random_.Below(now + 2)};
  }
  std::optional<CommitId> AnyHeld() {
    if (Chance(30)) {
      return std::nullopt;
    }
    return AnyCommit();
  }
  CommitId AnyCommit() {
    return {random_.Below(membership_->generation().value + 1), random_.Below(5)};
  }
  LossKind AnyLoss() { return static_cast<LossKind>(random_.Below(4)); }

  HostsDiscovered AnyHosts() {
    HostsDiscovered hosts;
    for (char name = 'a'; name < 'e'; ++name) {
      if (Chance(70)) {
        hosts.hosts.push_back(
            {HostId{std::string(1, name)}, static_cast<uint32_t>(random_.Below(4))});
      }
    }
    return hosts;
  }

  // What brings a job forward: without these most stories would end in its first world.
  Event LikelyEvent() {
    switch (random_.Below(9)) {
      case 0:
        return HostsDiscovered{
            {{HostId{"a"}, 2}, {HostId{"b"}, 2}, {HostId{"c"}, 1}, {HostId{"d"}, 1}}};
      case 1:
        return AgentAttached{AnyHost()};
      case 2:
        return WorkerJoined{AnyWorker(), {"127.0.0.1:1"}};
      case 3:
        return WorkerWarm{AnyWorker()};
      case 4:
        return WorkerFormed{AnyWorker(), membership_->generation(), AnyHeld()};
      case 5:
        return WorkerSynced{AnyWorker(), membership_->generation(), AnyCommit()};
      case 6:
        return WorkerLeft{AnyWorker(), membership_->generation(), AnyHeld()};
      case 7:
        return WorkerExited{AnyWorker(), static_cast<int>(random_.Below(3)), 0};
      default:
        return AnyTimer();
    }
  }

  Event AnyTimer() {
    if (timers_.empty() || Chance(10)) {
      return TimerFired{{static_cast<TimerKind>(random_.Below(11)), random_.Below(5)}};
    }
    return TimerFired{timers_[random_.Below(timers_.size())]};
  }

  Event AnyEvent() {
    switch (random_.Below(24)) {
      case 0:
        return AnyHosts();
      case 1:
        return DiscoveryFailed{"it failed"};
      case 2:
        return AgentReattached{AnyHost()};
      case 3:
        return AgentSuspected{{AnyHost(), AnyHost()}};
      case 4:
        return AgentLost{AnyHost(), "gone"};
      case 5:
        return AgentStartFailed{AnyHost(), "cannot", Chance(50)};
      case 6:
        return WorkerStarted{AnyWorker(), 1};
      case 7:
        return SpawnFailed{AnyWorker(), "cannot"};
      case 8:
        return WorkerWarm{AnyWorker()};
      case 9:
        return WorkerFormed{AnyWorker(), AnyGeneration(), AnyHeld()};
      case 10:
        return WorkerLeft{AnyWorker(), AnyGeneration(), AnyHeld()};
      case 11:
        return WorkerSynced{AnyWorker(), AnyGeneration(), AnyCommit()};
      case 12:
        return WorkerLost{AnyWorker(), AnyLoss(), "seen"};
      case 13:
        return WorkerExited{AnyWorker(), 137, 9};
      case 14:
        return PeerLost{
            AnyWorker(),
            AnyGeneration(),
            {static_cast<uint32_t>(random_.Below(6)), static_cast<uint32_t>(random_.Below(6))},
            Chance(20),
            "reset"};
      case 15:
        return SuspectAnswered{AnyWorker(), AnyGeneration(), Chance(70)};
      case 16:
        return DrainRequested{AnyHost()};
      case 17:
        return WorkerBye{AnyWorker()};
      case 18:
        // These two end a story soon, so they are rare.
        return Chance(20) ? Event(WorkerDone{AnyWorker(), AnyGeneration()}) : AnyTimer();
      case 19:
        return WorkerRunning{AnyWorker(), AnyGeneration()};
      case 20:
        return WorkerListening{AnyWorker(), {"127.0.0.1:1", "10.0.0.1:1"}};
      case 21:
        return Chance(5) ? Event(StopRequested{15}) : AnyTimer();
      default:
        return AnyTimer();
    }
  }

  void Take(const Event& event) {
    const bool over = membership_->finished();
    const Generation before = membership_->generation();
    const Transition transition = membership_->Step(event, now_);
    if (over && !transition.effects.empty()) {
      wrong_ = "an effect after FinishJob";
    }
    int finishes = 0;
    for (const Effect& effect : transition.effects) {
      if (const auto* spawn = std::get_if<SpawnWorker>(&effect)) {
        newest_worker_ = std::max(newest_worker_, spawn->worker.value);
      } else if (const auto* arm = std::get_if<ArmTimer>(&effect)) {
        timers_.push_back(arm->timer);
      } else if (const auto* form = std::get_if<FormWorld>(&effect)) {
        CheckForm(*form, before);
      }
      finishes += std::holds_alternative<FinishJob>(effect) ? 1 : 0;
    }
    if (finishes > 1 || (finishes == 1) != (!over && membership_->finished())) {
      wrong_ = "FinishJob is not the one end";
    }
    if (finishes == 1 && !std::holds_alternative<FinishJob>(transition.effects.back())) {
      wrong_ = "FinishJob is not the last effect";
    }
  }

  void CheckForm(const FormWorld& form, Generation before) {
    if (form.members.empty() || form.generation <= before) {
      wrong_ = "a world without members or of an old generation";
    }
  }

  Random random_;
  std::optional<Membership> membership_;
  Instant now_{};
  uint64_t newest_worker_ = 1;
  std::vector<TimerKey> timers_;
  std::string wrong_;
};

TEST_CASE("membership keeps its invariants whatever events come") {
  const char* only = std::getenv("MUSTER_SIM_SEED");
  const uint64_t first = only != nullptr ? std::stoull(only) : 1;
  const char* many = std::getenv("MUSTER_SIM_COUNT");
  const uint64_t count = only != nullptr ? 1 : many != nullptr ? std::stoull(many) : 3000;
  std::cout << "seeds " << first << " to " << first + count - 1 << std::endl;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed << " replays it");
    REQUIRE(Fuzz(seed).Run(400) == "");
  }
}

}  // namespace
}  // namespace muster::launcher
