#include "test/sim/membership_sim.h"

#include <algorithm>
#include <utility>

#include "test/launcher/core/scenario.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr size_t kLogLines = 400;
// Far above every timeout that is drawn: what is not over by then never ends.
constexpr Duration kEndAtLatest = minutes(60);
constexpr uint64_t kEntriesMax = 400'000;

}  // namespace

MembershipSim::MembershipSim(uint64_t seed) : random_(seed) {
  Draw();
}

void MembershipSim::Draw() {
  const uint64_t host_count = 1 + random_.Below(5);
  uint32_t slots = 0;
  for (uint64_t i = 0; i < host_count; ++i) {
    const auto count = static_cast<uint32_t>(1 + random_.Below(3));
    all_hosts_.push_back({HostId{std::string(1, static_cast<char>('a' + i))}, count});
    slots += count;
  }
  options_.elastic = Chance(92);
  options_.np_start = static_cast<uint32_t>(1 + random_.Below(slots));
  options_.np_min = static_cast<uint32_t>(1 + random_.Below(options_.np_start));
  if (Chance(70)) {
    options_.np_max = options_.np_start + static_cast<uint32_t>(random_.Below(3));
    options_.spares = static_cast<uint32_t>(random_.Below(3));
  }
  options_.start_timeout = Between(2000, 10'000);
  options_.elastic_timeout = Between(20'000, 120'000);
  options_.grace = Between(500, 8000);
  if (Chance(15)) {
    options_.reset_limit = static_cast<uint32_t>(random_.Below(4));
  }
  if (Chance(10)) {
    options_.failure_limit = static_cast<uint32_t>(random_.Below(4));
  }
  if (Chance(60)) {
    options_.cooldown = CooldownRange{seconds(1), seconds(4)};
  }
  options_.blame_host = Chance(15);
  steps_ = static_cast<int>(10 + random_.Below(80));
  crashing_ = Chance(10);
  hosts_ = all_hosts_;
  membership_.emplace(options_);
}

std::string MembershipSim::Run() {
  Later(Between(0, 50), [this] { Poll(); });
  PlanFaults();
  uint64_t entries = 0;
  while (!queue_.empty() && wrong_.empty() && !finished_) {
    const Entry entry = queue_.top();
    queue_.pop();
    now_ = entry.at;
    entry.action();
    if (now_.time_since_epoch() > kEndAtLatest || ++entries > kEntriesMax) {
      Wrong("the job does not come to an end; phase " + std::string(membership_->phase()));
    }
  }
  if (wrong_.empty() && !finished_) {
    Wrong("nothing is going to happen any more; phase " + std::string(membership_->phase()));
  }
  return wrong_;
}

void MembershipSim::Later(Duration delay, std::function<void()> action) {
  queue_.push({now_ + delay, next_entry_++, std::move(action)});
}

Duration MembershipSim::Between(int64_t low_ms, int64_t high_ms) {
  const int64_t span = (high_ms - low_ms) * 1000;
  return milliseconds(low_ms) + Duration(random_.Below(static_cast<uint64_t>(span) + 1));
}

void MembershipSim::Take(const Event& event) {
  if (finished_) {
    return;
  }
  // What the driver was told of: from then on the state must not be lost.
  const auto* formed = std::get_if<WorkerFormed>(&event);
  const auto* left = std::get_if<WorkerLeft>(&event);
  state_exists_ |= std::holds_alternative<WorkerSynced>(event) ||
                   (formed != nullptr && formed->held) || (left != nullptr && left->held);
  if (const auto* done = std::get_if<WorkerDone>(&event)) {
    processes_.at(done->worker).done = true;
  }
  const Transition transition = membership_->Step(event, now_);
  membership_->CheckInvariants();
  if (!transition.reason.empty()) {
    Note("  [" + std::string(membership_->phase()) + "] " + transition.reason);
  }
  NoteEnding();
  for (const Effect& effect : transition.effects) {
    Perform(effect);
  }
}

// An agent's stream keeps its order, whatever the delays of its events.
void MembershipSim::Report(const HostId& host, const Event& event) {
  SimAgent& agent = agents_[host];
  if (!agent.up) {
    return;
  }
  const auto deliver = [this, host, event, life = agent.life] {
    if (agents_[host].up && agents_[host].life == life) {
      Take(event);
    }
  };
  if (agent.silent) {
    agent.buffered.emplace_back(deliver);
    return;
  }
  Instant& last = last_report_[host];
  last = std::max(last, now_ + Duration(random_.Below(3000)));
  Later(last - now_, deliver);
}

void MembershipSim::Order(const HostId& host, std::function<void()> action) {
  SimAgent& agent = agents_[host];
  if (!agent.up) {
    return;
  }
  const auto deliver = [this, host, action = std::move(action), life = agent.life] {
    if (agents_[host].up && agents_[host].life == life) {
      action();
    }
  };
  if (agent.silent) {
    agent.buffered.emplace_back(deliver);
    return;
  }
  Instant& last = last_order_[host];
  last = std::max(last, now_ + Duration(random_.Below(3000)));
  Later(last - now_, deliver);
}

void MembershipSim::Perform(const Effect& effect) {
  if (const auto text = EffectText(effect)) {
    Note("      " + *text);
  }
  if (finished_) {
    Wrong("an effect after FinishJob");
    return;
  }
  std::visit([this](const auto& concrete) { On(concrete); }, effect);
}

MembershipSim::Process* MembershipSim::Alive(Incarnation id) {
  const auto found = processes_.find(id);
  return found == processes_.end() || found->second.dead ? nullptr : &found->second;
}

void MembershipSim::On(const StartAgent& effect) {
  SimAgent& agent = agents_[effect.host];
  if (agent.up) {
    Wrong("an agent is started twice");
  }
  ++agent.life;
  const HostId host = effect.host;
  const uint64_t life = agent.life;
  const bool cut = !IsReachable(host);
  const bool fails = cut || (!healed_ && Chance(12));
  const bool unreachable = cut || Chance(60);
  Later(Between(1, 150), [this, host, life, fails, unreachable] {
    SimAgent& started = agents_[host];
    if (started.life != life || finished_) {
      return;
    }
    if (fails) {
      ++started.life;
      Take(AgentStartFailed{host, "no route to host", unreachable});
    } else {
      started.up = true;
      Take(AgentAttached{host});
    }
  });
}

void MembershipSim::On(const StopAgent& effect) {
  SimAgent& agent = agents_[effect.host];
  const uint64_t next_life = agent.life + 1;
  agent = SimAgent{};
  agent.life = next_life;
  for (auto& [id, process] : processes_) {
    if (process.slot.host == effect.host && !process.dead) {
      if (!ending_) {
        Wrong("an agent is stopped while its worker " + std::to_string(id.value) + " runs");
      }
      process.dead = true;
    }
  }
}

void MembershipSim::On(const SpawnWorker& effect) {
  CheckSpawn(effect);
  Process process;
  process.id = effect.worker;
  process.slot = effect.slot;
  process.ignores_term = Chance(15);
  // The agent may be dead already; the driver will hear of it.
  process.dead = !agents_[effect.slot.host].up;
  processes_.emplace(effect.worker, process);
  const Incarnation id = effect.worker;
  const SlotId slot = effect.slot;
  if (!healed_ && Chance(3)) {
    processes_.at(id).dead = true;
    Order(slot.host, [this, id, slot] { Report(slot.host, SpawnFailed{id, "fork failed"}); });
    return;
  }
  Order(slot.host, [this, id, slot] {
    if (Alive(id) != nullptr) {
      Report(slot.host, WorkerStarted{id, static_cast<int64_t>(id.value)});
      Boot(id);
    }
  });
}

void MembershipSim::On(const KillWorker& effect) {
  const auto found = processes_.find(effect.worker);
  if (found == processes_.end()) {
    Wrong("a kill for a worker that was never spawned");
    return;
  }
  if (effect.force && !options_.blame_host) {
    CheckGivenUp(found->second);
  }
  found->second.doomed |= effect.force;
  found->second.termed = true;
  const bool force = effect.force;
  Order(found->second.slot.host, [this, id = effect.worker, force] {
    const Process* process = Alive(id);
    if (process != nullptr && (force || (!process->ignores_term && !process->frozen))) {
      Later(Between(0, force ? 60 : 300),
            [this, id, force] { Die(id, force ? 137 : 143, force ? 9 : 15); });
    }
  });
}

void MembershipSim::On(const AskAgent& effect) {
  for (const Incarnation id : effect.suspects) {
    const HostId host = processes_.at(id).slot.host;
    Order(host, [this, id, host, generation = effect.generation] {
      Report(host, SuspectAnswered{id, generation, Alive(id) != nullptr});
    });
  }
}

void MembershipSim::On(const Refuse& effect) {
  Process& process = processes_.at(effect.worker);
  CheckGivenUp(process);
  process.doomed = true;
  Order(process.slot.host,
        [this, id = effect.worker] { Later(Between(0, 50), [this, id] { Die(id, 70, 0); }); });
}

void MembershipSim::On(const Drain& effect) {
  for (const Incarnation id : effect.workers) {
    Order(processes_.at(id).slot.host, [this, id] {
      if (Process* process = Alive(id)) {
        process->pending = true;
      }
    });
  }
}

void MembershipSim::On(const FormWorld& effect) {
  CheckWorld(effect);
  SimWorld& world = worlds_[effect.generation];
  for (const Member& member : effect.members) {
    world.members.push_back(member.worker);
  }
  for (const Member& member : effect.members) {
    Order(member.slot.host,
          [this, id = member.worker, generation = effect.generation] { Receive(id, generation); });
  }
}

void MembershipSim::On(const Revoke& effect) {
  for (const Incarnation id : effect.members) {
    Order(processes_.at(id).slot.host, [this, id, generation = effect.generation] {
      Process* process = Alive(id);
      const bool running =
          process != nullptr && (process->at == At::kForming || process->at == At::kTraining);
      if (running && process->told <= generation) {
        process->at = At::kAwait;
      }
    });
  }
}

void MembershipSim::On(const NotifyPending& effect) {
  for (const Incarnation id : effect.members) {
    Order(processes_.at(id).slot.host,
          [this, id, generation = effect.generation, pending = effect.pending] {
            Process* process = Alive(id);
            if (process != nullptr && process->told == generation) {
              process->pending = pending;
            }
          });
  }
}

void MembershipSim::On(const Release& effect) {
  for (const Incarnation id : effect.workers) {
    Process& process = processes_.at(id);
    if (process.at != At::kEpilogue && process.at != At::kShutdown) {
      process.doomed = true;
    }
    Order(process.slot.host, [this, id] {
      Process* released = Alive(id);
      if (released == nullptr) {
        return;
      }
      released->released = true;
      if (released->at == At::kAwait || released->at == At::kInit) {
        Shutdown(id);
      } else if (released->at == At::kShutdown) {
        ExitByItself(id, 0);
      }
    });
  }
}

void MembershipSim::On(const Admit& effect) {
  Order(processes_.at(effect.worker).slot.host, [this, id = effect.worker] {
    Process* process = Alive(id);
    if (process != nullptr && process->at == At::kInit) {
      process->at = At::kUser;
      Later(Between(1, 1500), [this, id] { ReachFirstSync(id); });
    }
  });
}

void MembershipSim::On(const ArmTimer& effect) {
  const uint64_t arming = ++next_arming_;
  timers_[effect.timer] = arming;
  Later(effect.delay, [this, timer = effect.timer, arming] {
    const auto found = timers_.find(timer);
    if (found != timers_.end() && found->second == arming) {
      timers_.erase(found);
      Note("timer " + std::to_string(static_cast<int>(timer.kind)));
      Take(TimerFired{timer});
    }
  });
}

void MembershipSim::On(const CancelTimer& effect) {
  timers_.erase(effect.timer);
}

void MembershipSim::On(const FinishJob& effect) {
  CheckFinish(effect);
}

void MembershipSim::On(const Warn&) {}

void MembershipSim::Note(const std::string& what) {
  if (log_.size() >= 2 * kLogLines) {
    log_.erase(log_.begin(), log_.begin() + kLogLines);
  }
  log_.push_back(std::to_string(now_.time_since_epoch().count() / 1000) + "ms " + what);
}

std::string MembershipSim::Log() const {
  std::string text;
  for (const std::string& line : log_) {
    text += line + "\n";
  }
  return text;
}

void MembershipSim::Wrong(const std::string& what) {
  if (wrong_.empty()) {
    wrong_ = what;
  }
}

}  // namespace muster::launcher
