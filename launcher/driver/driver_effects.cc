// The part of Driver that turns effects into orders for agents, and timers.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/log.h"
#include "common/secret.h"
#include "launcher/driver/convert.h"
#include "launcher/driver/driver.h"

namespace muster::launcher {
namespace {

constexpr size_t kLinkKeyBytes = 16;
// A timer this late means that the driver was stopped: what was sent to it meanwhile is read first.
constexpr Duration kLateTimer = std::chrono::seconds(1);

}  // namespace

std::map<HostId, std::vector<Incarnation>> Driver::ByHost(
    const std::vector<Incarnation>& workers) const {
  std::map<HostId, std::vector<Incarnation>> hosts;
  for (const Incarnation worker : workers) {
    const auto it = workers_.find(worker);
    if (it != workers_.end()) {
      hosts[it->second.host].push_back(worker);
    }
  }
  return hosts;
}

void Driver::SendTo(Incarnation worker, const v1::AgentOrder& order) {
  const auto it = workers_.find(worker);
  if (it != workers_.end()) {
    service_.Send(it->second.host, order);
  }
}

void Driver::Perform(const SpawnWorker& effect, const std::string& /*reason*/) {
  workers_[effect.worker] = effect.slot;
  trace_.Write("spawn",
               {{"host", effect.slot.host.value},
                {"slot", effect.slot.index},
                {"incarnation", effect.worker.value}});
  v1::AgentOrder order;
  auto& spawn = *order.mutable_spawn_worker();
  spawn.set_incarnation(effect.worker.value);
  spawn.set_slot(effect.slot.index);
  *spawn.mutable_provisional() = ToProto(effect.provisional);
  spawn.set_newcomer(membership_.generation() != Generation{});
  service_.Send(effect.slot.host, order);
}

void Driver::Perform(const KillWorker& effect, const std::string& /*reason*/) {
  v1::AgentOrder order;
  order.mutable_kill_worker()->set_incarnation(effect.worker.value);
  order.mutable_kill_worker()->set_force(effect.force);
  SendTo(effect.worker, order);
}

void Driver::Perform(const AskAgent& effect, const std::string& /*reason*/) {
  for (const auto& [host, workers] : ByHost(effect.suspects)) {
    v1::AgentOrder order;
    order.mutable_ask_suspects()->set_generation(effect.generation.value);
    for (const Incarnation worker : workers) {
      order.mutable_ask_suspects()->add_incarnations(worker.value);
    }
    service_.Send(host, order);
  }
}

void Driver::Perform(const Refuse& effect, const std::string& /*reason*/) {
  refused_.insert(effect.worker);
  v1::AgentOrder order;
  order.mutable_refuse()->set_incarnation(effect.worker.value);
  order.mutable_refuse()->set_reason(effect.reason);
  SendTo(effect.worker, order);
}

void Driver::Perform(const Drain& effect, const std::string& /*reason*/) {
  for (const auto& [host, workers] : ByHost(effect.workers)) {
    v1::AgentOrder order;
    for (const Incarnation worker : workers) {
      order.mutable_drain()->add_incarnations(worker.value);
    }
    service_.Send(host, order);
  }
}

void Driver::Perform(const FormWorld& effect, const std::string& reason) {
  nlohmann::json members = nlohmann::json::array();
  for (const Member& member : effect.members) {
    members.push_back({{"incarnation", member.worker.value},
                       {"host", member.slot.host.value},
                       {"slot", member.slot.index}});
  }
  trace_.Write("form",
               {{"generation", effect.generation.value},
                {"size", effect.members.size()},
                {"reset", effect.counts_as_reset},
                {"reason", reason},
                {"members", std::move(members)}});
  const std::string link_key = RandomHex(kLinkKeyBytes);
  for (auto& [host, message] : SplitByHost(effect, link_key, reason)) {
    v1::AgentOrder order;
    *order.mutable_form_world() = std::move(message);
    service_.Send(host, order);
  }
}

void Driver::Perform(const Revoke& effect, const std::string& reason) {
  trace_.Write("revoke", {{"generation", effect.generation.value}, {"reason", reason}});
  v1::AgentOrder order;
  order.mutable_revoke()->set_generation(effect.generation.value);
  order.mutable_revoke()->set_reason(reason);
  for (const auto& [host, workers] : ByHost(effect.members)) {
    service_.Send(host, order);
  }
}

void Driver::Perform(const NotifyPending& effect, const std::string& /*reason*/) {
  v1::AgentOrder order;
  order.mutable_notify_pending()->set_generation(effect.generation.value);
  order.mutable_notify_pending()->set_pending(effect.pending);
  for (const auto& [host, workers] : ByHost(effect.members)) {
    service_.Send(host, order);
  }
}

void Driver::Perform(const Release& effect, const std::string& /*reason*/) {
  for (const auto& [host, workers] : ByHost(effect.workers)) {
    v1::AgentOrder order;
    for (const Incarnation worker : workers) {
      order.mutable_release()->add_incarnations(worker.value);
    }
    service_.Send(host, order);
  }
}

void Driver::Perform(const Admit& effect, const std::string& /*reason*/) {
  v1::AgentOrder order;
  order.mutable_admit()->set_incarnation(effect.worker.value);
  *order.mutable_admit()->mutable_provisional() = ToProto(effect.provisional);
  SendTo(effect.worker, order);
}

void Driver::ArmDriverTimer(TimerKey key, Duration delay) {
  const Instant due = loop_.Now() + delay;
  timers_[key] = loop_.After(delay, [this, key, due] {
    if (loop_.Now() - due > kLateTimer) {
      ArmDriverTimer(key, kLateTimer);
      return;
    }
    timers_.erase(key);
    Apply(TimerFired{key});
  });
}

void Driver::Perform(const ArmTimer& effect, const std::string& reason) {
  Perform(CancelTimer{effect.timer}, reason);
  ArmDriverTimer(effect.timer, std::max(effect.delay, Duration::zero()));
}

void Driver::Perform(const CancelTimer& effect, const std::string& /*reason*/) {
  const auto it = timers_.find(effect.timer);
  if (it != timers_.end()) {
    loop_.Cancel(it->second);
    timers_.erase(it);
  }
}

void Driver::Perform(const FinishJob& effect, const std::string& /*reason*/) {
  Finish(effect.code, effect.cause);
}

void Driver::Perform(const Warn& effect, const std::string& /*reason*/) {
  spdlog::warn("{}", effect.message);
}

}  // namespace muster::launcher
