// The agent's orders, and the generations that they make and end.

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/log.h"
#include "worker/engine.h"
#include "worker/fault.h"
#include "worker/to_place.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// For whoever is in the backend to let go of the user's memory after Abort.
constexpr seconds kDrainTimeout{5};

/// Index of its host, by rank.
std::vector<uint32_t> HostsOf(const v1::Layout& layout) {
  std::vector<uint32_t> hosts;
  for (int host = 0; host < layout.host_sizes_size(); ++host) {
    hosts.insert(hosts.end(), layout.host_sizes(host), static_cast<uint32_t>(host));
  }
  return hosts;
}

}  // namespace

// ---------------------------------------------------------------- orders

void Engine::OnOrder(const v1::WorkerOrder& order) {
  switch (order.order_case()) {
    case v1::WorkerOrder::kJoined:
      return OnJoined(order.joined());
    case v1::WorkerOrder::kWorld:
      return OnWorld(order.world());
    case v1::WorkerOrder::kRevoked:
      return OnRevoked({order.revoked().generation()}, order.revoked().reason());
    case v1::WorkerOrder::kReleased:
      return OnReleased();
    case v1::WorkerOrder::kRefused:
      return EndProcess("this worker was refused: " + order.refused().reason());
    case v1::WorkerOrder::kAdmitted: {
      Place place = ToPlace(order.admitted().provisional());
      place.slot = slot_;
      place.host = host_;
      const MutexLock lock(bulletin_.mutex);
      bulletin_.provisional = std::move(place);
      return bulletin_.changed.NotifyAll();
    }
    case v1::WorkerOrder::kPending: {
      if (Generation{order.pending().generation()} != newest_) {
        return;
      }
      const MutexLock lock(bulletin_.mutex);
      bulletin_.pending = order.pending().pending();
      // A drain that is called off comes as a pending change that has vanished.
      bulletin_.draining = bulletin_.draining && bulletin_.pending;
      return;
    }
    case v1::WorkerOrder::kDraining: {
      const MutexLock lock(bulletin_.mutex);
      bulletin_.draining = true;
      return;
    }
    case v1::WorkerOrder::kListen: {
      // Peers on other hosts will look for this worker there: without it, it is of no use to them.
      const Status listening = ListenAlsoAt(order.listen().address());
      return listening.ok() ? ReportListening() : EndProcess(listening.message());
    }
    case v1::WorkerOrder::ORDER_NOT_SET:
      spdlog::warn("the agent sent an order that this version does not know");
  }
}

void Engine::OnJoined(const v1::WorkerOrder::Joined& order) {
  joined_ = true;
  host_ = order.host();
  slot_ = static_cast<int>(order.slot());
  session_options_.stall_warning = milliseconds(order.stall_warning_ms());
  session_options_.stall_shutdown = milliseconds(order.stall_shutdown_ms());
  const Status faults = ConfigureFaults(std::getenv("MUSTER_FAULT"), order.first_start());
  if (!faults.ok()) {
    Fail(faults.message());
  }
  for (const v1::Address& address : order.listen()) {
    if (const Status listening = ListenAlsoAt(address); !listening.ok()) {
      return Fail(listening.message());
    }
  }
  if (order.listen_size() > 0) {
    ReportListening();
  }
}

// The port of an ordered address is this worker's to choose.
Status Engine::ListenAlsoAt(const v1::Address& address) {
  const Result<HostAndPort> wanted = SplitAddress(address.literal());
  return wanted.ok() ? acceptor_->ListenAt(wanted.value().host, options_.listen.ports)
                     : wanted.status();
}

void Engine::ReportListening() {
  v1::WorkerReport report;
  for (const std::string& address : acceptor_->addresses()) {
    report.mutable_listening()->add_addresses()->set_literal(address);
  }
  Report(std::move(report));
}

void Engine::OnWorld(const v1::WorkerOrder::World& order) {
  const Generation generation{order.generation()};
  if (generation <= newest_) {
    return;
  }
  EndGenerations({generation.value - 1}, order.reason());
  newest_ = generation;
  if (ending_ != Ending::kNo) {
    return;
  }
  Place place = ToPlace(order.placement());
  place.generation = generation;
  place.slot = slot_;
  place.host = host_;
  FormationPlan plan;
  plan.generation = generation;
  plan.rank = order.placement().rank();
  plan.size = order.placement().size();
  plan.link_key = order.link_key();
  for (const v1::Address& address : order.coordinator()) {
    plan.coordinator.push_back(address.literal());
  }
  plan.own_addresses = acceptor_->addresses();
  plan.incarnation = options_.agent->incarnation;
  plan.hosts = HostsOf(order.layout());
  plan.backend = options_.collective.backend;
  plan.sets = set_records_;
  plan.next_set_id = next_set_id_;
  plan.first_sets = options_.process_sets;
  if (plan.rank >= plan.size || plan.size == 0 || plan.hosts.size() != plan.size) {
    return EndProcess("the agent ordered rank " + std::to_string(plan.rank) + " of " +
                      std::to_string(plan.size));
  }
  if (plan.backend == BackendChoice::kShm && plan.hosts.back() > 0) {
    return EndProcess("--cpu-operations shm: generation " + std::to_string(generation.value) +
                      " has workers on " + std::to_string(plan.hosts.back() + 1) +
                      " hosts, which have no memory in common; leave it to auto");
  }
  Form(std::move(place), std::move(plan));
}

void Engine::OnRevoked(Generation generation, const std::string& reason) {
  if (generation >= newest_) {
    newest_ = generation;
    EndGenerations(generation, reason);
  }
}

void Engine::OnOver() {
  for (;;) {
    const Result<GenerationOver> over = page_->Read();
    if (over.ok()) {
      OnRevoked({over.value().generation}, over.value().reason);
    } else {
      if (over.status().code() != StatusCode::kUnavailable) {
        loop_.Unwatch(page_->connection());
      }
      return;
    }
  }
}

void Engine::OnReleased() {
  if (ending_ == Ending::kLeaving && session_) {
    session_->StopCoordinating();
  }
  const MutexLock lock(bulletin_.mutex);
  bulletin_.released = true;
  bulletin_.changed.NotifyAll();
}

void Engine::OnStreamEnd(const std::string& reason) {
  stream_ended_ = true;
  if (ending_ == Ending::kClosing) {
    return StopLoop();
  }
  if (!joined_) {
    return Fail("the agent does not take this worker: " + reason);
  }
  EndProcess("the agent of this host is gone (" + reason + ")");
}

// ---------------------------------------------------------------- generations

// The launcher forms the worlds of a job; without one, every world is this worker.
void Engine::FormAlone() {
  newest_.value += 1;
  Place place;
  place.generation = newest_;
  place.slot = slot_;
  place.host = host_;
  FormedWorld world;
  world.control.resize(1);
  world.data.resize(1);
  OnFormed(place, std::move(world));
}

void Engine::Form(Place place, FormationPlan plan) {
  const Generation generation = plan.generation;
  try {
    FaultPoint("formation", place.rank);
  } catch (const WorkersLost& fault) {  // MUSTER_FAULT's throw: here, a formation that fails.
    return ReportBroken(generation, {{plan.rank}, false, fault.what()});
  }
  Formation::Callbacks callbacks;
  callbacks.on_formed = [this, place](FormedWorld world) {
    Retire(std::shared_ptr<Formation>(std::move(formation_)));
    OnFormed(place, std::move(world));
  };
  callbacks.on_broken = [this, generation](uint32_t suspect, const std::string& evidence) {
    ReportBroken(generation, {{suspect}, false, evidence});
  };
  formation_ =
      std::make_unique<Formation>(loop_, *acceptor_, std::move(plan), std::move(callbacks));
  formation_->Start();
  AskForSegment(place);
}

// A worker that is alone on its host shares no memory, and Gloo alone uses none.
void Engine::AskForSegment(const Place& place) {
  if (place.local_size == 1 || options_.collective.backend == BackendChoice::kGloo) {
    return formation_->SetSegment(nullptr);
  }
  const AgentAccess& agent = *options_.agent;
  segment_client_ = std::make_unique<SegmentClient>(
      loop_,
      agent.directory,
      agent.incarnation,
      agent.key,
      place.generation.value,
      [this, members = place.local_size](Result<UniqueFd> memory) {
        Result<std::unique_ptr<Segment>> segment =
            memory.ok() ? Segment::Map(memory.value(), members) : memory.status();
        if (!segment.ok()) {
          spdlog::warn("no shared memory with the workers of this host: {}",
                       segment.status().message());
        }
        if (formation_) {
          formation_->SetSegment(segment.ok() ? std::move(segment).value() : nullptr);
        }
      });
}

void Engine::OnFormed(const Place& place, FormedWorld world) {
  Session::Callbacks callbacks;
  callbacks.on_broken = [this, generation = place.generation](BrokenReport report) {
    ReportBroken(generation, report);
  };
  callbacks.on_left = [this] { FinishShutdown(); };
  set_records_ = world.sets.ToRecords();
  next_set_id_ = world.sets.next_id();
  const size_t host_count = world.hosts.back() + size_t{1};
  session_ = std::make_shared<Session>(
      loop_, executor_, place, session_options_, std::move(world), std::move(callbacks));
  if (place.rank == 0 && options_.agent) {
    spdlog::info("rank 0: generation {}: {} worker(s) on {} host(s) work through {}",
                 place.generation.value,
                 place.size,
                 host_count,
                 session_->backend_name());
  }
  PinThreads(place);
  {
    const MutexLock lock(mutex_);
    current_ = session_;
  }
  std::optional<CommitId> held;
  {
    const MutexLock lock(bulletin_.mutex);
    bulletin_.formed = place;
    held = bulletin_.held;
    bulletin_.changed.NotifyAll();
  }
  v1::WorkerReport report;
  report.mutable_formed()->set_generation(place.generation.value);
  if (held) {
    report.mutable_formed()->mutable_held()->set_generation(held->generation);
    report.mutable_formed()->mutable_held()->set_sequence(held->sequence);
  }
  Report(std::move(report));
  session_->Start();
}

// The executor's turn comes before any work of the new generation.
void Engine::PinThreads(const Place& place) {
  const std::vector<int>& cores = options_.collective.affinity;
  if (cores.empty()) {
    return;
  }
  const auto pin = [this, local_rank = place.local_rank, local_size = place.local_size] {
    const Status pinned = ApplyThreadAffinity(options_.collective.affinity, local_rank, local_size);
    if (!pinned.ok()) {
      spdlog::debug("{}", pinned.message());
    }
  };
  pin();
  executor_.Post(pin);
}

void Engine::EndGenerations(Generation generation, const std::string& reason) {
  segment_client_.reset();
  if (formation_) {
    Retire(std::shared_ptr<Formation>(std::move(formation_)));
  }
  {
    const MutexLock lock(bulletin_.mutex);
    bulletin_.formed.reset();
    bulletin_.revoked = std::max(bulletin_.revoked, generation);
    bulletin_.ending_sessions += session_ ? 1 : 0;
    bulletin_.revoke_reason = reason;
    bulletin_.pending = false;
    bulletin_.draining = false;
    bulletin_.changed.NotifyAll();
  }
  if (session_) {
    EndSession(reason);
  }
  if (ending_ == Ending::kLeaving) {
    FinishShutdown();  // Nobody of that generation needs this worker any more.
  }
}

// It counts as ending on the bulletin already.
void Engine::EndSession(const std::string& reason) {
  // Shared with the two callbacks, of which either may be the last to need it.
  const std::shared_ptr<Session> session = std::move(session_);
  {
    const MutexLock lock(mutex_);
    current_.reset();
  }
  const Generation generation = session->generation();
  ++draining_sessions_;
  const Loop::TimerId deadline = loop_.After(kDrainTimeout, [this, generation] {
    EndProcess("an operation of generation " + std::to_string(generation.value) +
               " could not be stopped within 5 s");
  });
  session->End(LostError(generation, reason), [this, session, deadline] {
    loop_.Cancel(deadline);
    --draining_sessions_;
    {
      const MutexLock lock(bulletin_.mutex);
      --bulletin_.ending_sessions;
      bulletin_.changed.NotifyAll();
    }
    if (ending_ == Ending::kClosing) {
      StopLoop();
    }
    Retire(session);
  });
  if (session->rank() == 0 && options_.agent) {
    const LogCounters counters = session->counters();
    spdlog::info(
        "rank 0: generation {}: {} operation(s) moved data, in {} step(s), {} of them fused",
        generation.value,
        counters.operations,
        counters.executes,
        counters.fused);
  }
  // After End, so that nothing is added behind this look.
  const ProcessSets sets = session->sets();
  set_records_ = sets.ToRecords();
  next_set_id_ = sets.next_id();
}

void Engine::ReportBroken(Generation generation, const BrokenReport& broken) {
  spdlog::info("generation {} is broken: {}", generation.value, broken.evidence);
  v1::WorkerReport report;
  auto* message = report.mutable_broken_peers();
  message->set_generation(generation.value);
  for (const uint32_t rank : broken.suspects) {
    message->add_suspect_ranks(rank);
  }
  message->set_stalled(broken.stalled);
  message->set_evidence(broken.evidence);
  Report(std::move(report));
}

// Objects that may be in the middle of a call of their own die in the loop's next round.
void Engine::Retire(std::shared_ptr<void> object) {
  loop_.Post([object = std::move(object)] {});
}

}  // namespace muster::worker
