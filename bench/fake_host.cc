#include "bench/fake_host.h"

#include <signal.h>

#include <numeric>

namespace muster::bench {
namespace {

// It is only shown in messages.
constexpr uint64_t kPid = 1;
constexpr int kSignalled = 128;

}  // namespace

FakeHost::Reports FakeHost::Perform(const v1::AgentOrder& order) {
  switch (order.order_case()) {
    case v1::AgentOrder::kSpawnWorker:
      return Start(order.spawn_worker());
    case v1::AgentOrder::kKillWorker:
      return End(order.kill_worker().incarnation(), SIGKILL);
    case v1::AgentOrder::kAskSuspects:
      return Answer(order.ask_suspects());
    case v1::AgentOrder::kFormWorld:
      return Form(order.form_world());
    case v1::AgentOrder::kNotifyPending:
      if (order.notify_pending().generation() != generation_) {
        return {};
      }
      pending_ = order.notify_pending().pending();
      return pending_ && synced_ ? Leave() : Reports{};
    case v1::AgentOrder::kAdmit: {
      Reports reports(1);
      reports[0].mutable_worker_warm()->set_incarnation(order.admit().incarnation());
      return reports;
    }
    case v1::AgentOrder::kStopAgent: {
      stopped_ = true;
      Reports reports;
      for (const uint64_t incarnation : std::set<uint64_t>(workers_)) {
        const Reports ended = End(incarnation, SIGKILL);
        reports.insert(reports.end(), ended.begin(), ended.end());
      }
      return reports;
    }
    default:
      return {};  // Only the workers' own business.
  }
}

FakeHost::Reports FakeHost::Start(const v1::SpawnWorker& order) {
  workers_.insert(order.incarnation());
  Reports reports(2);
  reports[0].mutable_worker_started()->set_incarnation(order.incarnation());
  reports[0].mutable_worker_started()->set_pid(kPid);
  v1::WorkerJoined& joined = *reports[1].mutable_worker_joined();
  joined.set_incarnation(order.incarnation());
  joined.set_pid(kPid);
  joined.add_addresses()->set_literal(address_);
  return reports;
}

FakeHost::Reports FakeHost::Form(const v1::FormWorld& order) {
  generation_ = order.generation();
  synced_ = pending_ = false;
  const auto& sizes = order.layout().host_sizes();
  world_size_ = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  members_.assign(order.members().begin(), order.members().end());
  Reports reports;
  for (const uint64_t member : members_) {
    v1::WorkerFormed& formed = *reports.emplace_back().mutable_worker_formed();
    formed.set_incarnation(member);
    formed.set_generation(generation_);
    if (held_) {
      *formed.mutable_held() = *held_;
    }
  }
  return reports;
}

FakeHost::Reports FakeHost::Sync() {
  // The first world's: nobody trains, so there is no newer one.
  held_.emplace();
  held_->set_generation(1);
  synced_ = true;
  Reports reports;
  for (const uint64_t member : members_) {
    v1::WorkerSynced& synced = *reports.emplace_back().mutable_worker_synced();
    synced.set_incarnation(member);
    synced.set_generation(generation_);
    *synced.mutable_commit() = *held_;
  }
  if (pending_) {
    const Reports left = Leave();
    reports.insert(reports.end(), left.begin(), left.end());
  }
  return reports;
}

FakeHost::Reports FakeHost::Leave() const {
  Reports reports;
  for (const uint64_t member : members_) {
    v1::WorkerLeft& left = *reports.emplace_back().mutable_worker_left();
    left.set_incarnation(member);
    left.set_generation(generation_);
    if (held_) {
      *left.mutable_held() = *held_;
    }
  }
  return reports;
}

FakeHost::Reports FakeHost::Answer(const v1::AskSuspects& order) const {
  Reports reports;
  for (const uint64_t incarnation : order.incarnations()) {
    v1::SuspectAnswered& answer = *reports.emplace_back().mutable_suspect_answered();
    answer.set_incarnation(incarnation);
    answer.set_generation(order.generation());
    answer.set_alive(workers_.contains(incarnation));
  }
  return reports;
}

FakeHost::Reports FakeHost::Lose(uint64_t incarnation) {
  Reports reports(1);
  v1::WorkerLost& lost = *reports[0].mutable_worker_lost();
  lost.set_incarnation(incarnation);
  lost.set_kind(v1::WorkerLost::KIND_OWNER_DIED);
  lost.set_evidence("its process died");
  const Reports ended = End(incarnation, SIGKILL);
  reports.insert(reports.end(), ended.begin(), ended.end());
  return reports;
}

FakeHost::Reports FakeHost::End(uint64_t incarnation, int signal) {
  Reports reports;
  if (workers_.erase(incarnation) > 0) {
    std::erase(members_, incarnation);
    v1::WorkerExited& exited = *reports.emplace_back().mutable_worker_exited();
    exited.set_incarnation(incarnation);
    exited.set_code(kSignalled + signal);
    exited.set_signal(signal);
  }
  return reports;
}

}  // namespace muster::bench
