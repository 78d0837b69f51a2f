#include "launcher/core/membership.h"

#include <csignal>
#include <cstdio>
#include <utility>

#include "common/check.h"

namespace muster::launcher {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// A step that does not come to rest would be a rule that undoes what another one does.
constexpr int kRoundsMax = 100;

}  // namespace

void Tally::Add(const Worker& worker, int sign) {
  const auto add = [sign](int64_t& sum, bool applies) { sum += applies ? sign : 0; };
  const bool member = worker.IsMember();
  stages[static_cast<size_t>(worker.stage)] += sign;
  add(first_attempts,
      worker.first_attempt && (worker.stage == Stage::kPlanned || worker.stage == Stage::kSpawned));
  add(staying, member && !worker.draining);
  add(draining, member && worker.draining && !worker.done);
  add(ordered, member && worker.draining && !worker.done && worker.drain_ordered);
  add(unformed, member && !worker.formed);
  add(open, worker.IsOpen());
  add(left, member && worker.left);
  add(at_work, member && !worker.done);
  add(done, worker.done && (member || worker.stage == Stage::kEpilogue));
  add(present, member && !worker.bye);
  add(returned, worker.stage == Stage::kWarm && worker.returned);
  add(holders, worker.IsHolder());
}

Membership::Membership(MembershipOptions options)
    : options_(options), blame_(options.cooldown, options.blame_host) {}

Transition Membership::Step(const Event& event, Instant now) {
  MUSTER_CHECK(now >= now_, "time went back");
  if (begun_ == Instant::min()) {
    begun_ = now;
  }
  now_ = now;
  out_ = {};
  if (!finished()) {
    std::visit([this](const auto& concrete) { On(concrete); }, event);
    Conclude();
  }
  return std::exchange(out_, {});
}

// Handlers record what happened; what follows from it is decided here, once per event.
void Membership::Conclude() {
  for (int round = 0; todo_.Any(); ++round) {
    MUSTER_CHECK(round < kRoundsMax, "a step does not come to rest");
    if (In<Ending>() != nullptr || finished()) {
      todo_ = {};
    } else if (todo_.judge_silent) {
      todo_.judge_silent = false;
      JudgeSilentAgents();
    } else if (todo_.reconsider) {
      todo_.reconsider = false;
      Reconsider();
    } else {
      todo_.replan = false;
      Replan();
    }
  }
  if (Closing()) {
    ReleaseRank0();
  }
  EndIfNothingIsLeft();
  WatchStart();
}

void Membership::Reconsider() {
  std::visit(Overloaded{[this](Gathering&) { TryFirstWorld(); },
                        [this](Running& running) {
                          if (running.window) {
                            RevokeBroken();
                          } else {
                            ReconsiderWish();
                          }
                        },
                        [this](Asking&) { ConcludeAsking(); },
                        [this](Holding&) { ReconsiderHold(); },
                        [](Ending&) {},
                        [](Finished&) {}},
             phase_);
}

std::string_view Membership::phase() const {
  static constexpr std::string_view kNames[] = {
      "gathering", "running", "asking", "holding", "ending", "finished"};
  return kNames[phase_.index()];
}

std::optional<uint32_t> Membership::RankOf(Incarnation worker) const {
  const Worker* found = Find(worker);
  if (found == nullptr || !found->IsMember()) {
    return std::nullopt;
  }
  return found->rank;
}

std::optional<SlotId> Membership::SlotOf(Incarnation worker) const {
  const Worker* found = Find(worker);
  if (found == nullptr) {
    return std::nullopt;
  }
  return found->slot;
}

Worker* Membership::Find(Incarnation id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

const Worker* Membership::Find(Incarnation id) const {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

std::vector<Incarnation> Membership::LivingMembers() const {
  std::vector<Incarnation> living;
  for (const Incarnation id : world_.members) {
    const Worker* worker = Find(id);
    if (worker != nullptr && worker->IsMember()) {
      living.push_back(id);
    }
  }
  return living;
}

Candidate Membership::CandidateOf(const Worker& worker) const {
  const Generation next{world_.generation.value + 1};
  return {worker.id, worker.slot, worker.since.value == 0 ? next : worker.since};
}

std::string Membership::NameOf(const Worker& worker) const {
  if (worker.IsMember()) {
    return "rank " + std::to_string(worker.rank) + " on host " + worker.slot.host.value;
  }
  return "the worker on slot " + std::to_string(worker.slot.index) + " of host " +
         worker.slot.host.value;
}

std::string Membership::SecondsSinceStart(Instant at) const {
  char text[32];
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(at - begun_);
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(milliseconds.count()) / 1000);
  return text;
}

std::string SignalText(int signal) {
  const char* name = signal == SIGKILL   ? " (SIGKILL)"
                     : signal == SIGTERM ? " (SIGTERM)"
                     : signal == SIGINT  ? " (SIGINT)"
                     : signal == SIGHUP  ? " (SIGHUP)"
                     : signal == SIGSEGV ? " (SIGSEGV)"
                     : signal == SIGABRT ? " (SIGABRT)"
                     : signal == SIGBUS  ? " (SIGBUS)"
                                         : "";
  return "signal " + std::to_string(signal) + name;
}

std::string Membership::Describe(const Failure& failure) const {
  const std::string after = "after " + SecondsSinceStart(failure.at);
  if (!failure.how.empty()) {
    return failure.who + " " + failure.how + " (" + after + ")";
  }
  const std::string how = failure.signal != 0 ? "was killed by " + SignalText(failure.signal)
                          : !failure.code.has_value() ? "was lost"
                          : *failure.code == 0
                              ? "exited with code 0 before it was done"
                              : "exited with code " + std::to_string(*failure.code);
  return failure.who + " " + how + " " + after;
}

void Membership::Arm(TimerKind kind, uint64_t subject, Duration delay) {
  armed_.insert({kind, subject});
  Emit(ArmTimer{{kind, subject}, delay});
}

void Membership::Cancel(TimerKind kind, uint64_t subject) {
  if (armed_.erase({kind, subject}) > 0) {
    Emit(CancelTimer{{kind, subject}});
  }
}

bool Membership::Armed(TimerKind kind, uint64_t subject) const {
  return armed_.contains({kind, subject});
}

void Membership::Emit(Effect effect) {
  out_.effects.push_back(std::move(effect));
}

void Membership::WarnOnce(const std::string& message) {
  if (warned_.insert(message).second) {
    Emit(Warn{message});
  }
}

void Membership::Because(const std::string& reason) {
  out_.reason += (out_.reason.empty() ? "" : "; ") + reason;
}

}  // namespace muster::launcher
