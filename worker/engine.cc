#include "worker/engine.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/version.h"
#include "worker/fault.h"
#include "worker/thread.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTickPeriod{100};
constexpr seconds kAgentAnswerTimeout{10};
/// For the executor to let go of the user's memory after Abort.
constexpr seconds kDrainTimeout{5};
/// For goodbyes: to peers in the log, and to the agent.
constexpr seconds kLeaveTimeout{5};
constexpr milliseconds kCloseTimeout{500};
constexpr int kExitCode = 70;

void EndThisProcess(int code, const std::string& why) {
  std::fprintf(stderr, "muster: %s\n", why.c_str());
  ::_exit(code);
}

Place ToPlace(const v1::Placement& placement) {
  Place place;
  place.rank = static_cast<int>(placement.rank());
  place.size = static_cast<int>(placement.size());
  place.local_rank = static_cast<int>(placement.local_rank());
  place.local_size = static_cast<int>(placement.local_size());
  place.cross_rank = static_cast<int>(placement.cross_rank());
  place.cross_size = static_cast<int>(placement.cross_size());
  return place;
}

std::exception_ptr LostError(Generation generation, const std::string& reason) {
  return std::make_exception_ptr(WorkersLost(RevokedText(generation, reason)));
}

void RefuseAfterEnd(Call& call) {
  if (call.Complete(std::make_exception_ptr(WorkersFinished("this worker has shut down")))) {
    call.RunCallbacks();
  }
}

}  // namespace

Engine::Engine(EngineOptions options, Bulletin& bulletin)
    : options_(std::move(options)),
      bulletin_(bulletin),
      host_(options_.host),
      slot_(options_.slot) {
  times_.operation = options_.operation_timeout;
}

Engine::~Engine() {
  Shutdown(false);
}

Status Engine::Start() {
  if (options_.agent) {
    const AgentAccess& agent = *options_.agent;
    Result<std::unique_ptr<PageClient>> page =
        PageClient::Connect(agent.directory, agent.incarnation, agent.key, kAgentAnswerTimeout);
    if (!page.ok()) {
      return page.status();
    }
    page_ = std::move(page).value();
  }
  executor_.Start();
  thread_ = StartThread("muster-engine", [this] { Run(); });
  return Status::Ok();
}

void Engine::Run() {
  if (options_.agent) {
    if (!Join()) {
      return;
    }
  } else {
    const Status faults = ConfigureFaults(std::getenv("MUSTER_FAULT"), true);
    if (!faults.ok()) {
      Fail(faults.message());
    } else {
      FormAlone();
    }
  }
  Tick();
  loop_.Run();
  // On this thread, because they watch descriptors on the loop.
  formation_.reset();
  client_.reset();
  acceptor_.reset();
  const MutexLock lock(bulletin_.mutex);
  bulletin_.stopped = true;
  bulletin_.changed.NotifyAll();
}

// Lock first, then Join: from the first report on the agent can see this thread die.
bool Engine::Join() {
  const auto fail = [this](const Status& status) {
    Fail(status.message());
    return false;
  };
  acceptor_ = std::make_unique<LinkAcceptor>(loop_);
  if (const Status listening = acceptor_->Listen(options_.listen); !listening.ok()) {
    return fail(listening);
  }
  if (const Status locked = page_->Lock(); !locked.ok()) {
    return fail(locked);
  }
  RendezvousClient::Callbacks callbacks;
  callbacks.on_order = [this](v1::WorkerOrder order) {
    loop_.Post([this, order = std::move(order)] { OnOrder(order); });
  };
  callbacks.on_end = [this](const std::string& reason) {
    loop_.Post([this, reason] { OnStreamEnd(reason); });
  };
  client_ = std::make_unique<RendezvousClient>(options_.agent->directory, std::move(callbacks));
  v1::WorkerReport report;
  auto* join = report.mutable_join();
  join->set_incarnation(options_.agent->incarnation);
  join->set_key(options_.agent->key);
  join->set_pid(static_cast<uint64_t>(::getpid()));
  join->set_protocol(kProtocolVersion);
  for (const std::string& address : acceptor_->addresses()) {
    join->add_addresses()->set_literal(address);
  }
  client_->Start(std::move(report));
  loop_.After(kAgentAnswerTimeout, [this] {
    if (!joined_) {
      Fail("the agent did not answer within 10 s");
    }
  });
  return true;
}

void Engine::Fail(const std::string& why) {
  const MutexLock lock(bulletin_.mutex);
  bulletin_.failure = why;
  bulletin_.changed.NotifyAll();
}

void Engine::Tick() {
  if (page_) {
    page_->Tick();
  }
  if (session_) {
    session_->Tick();
  }
  loop_.After(kTickPeriod, [this] { Tick(); });
}

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
  times_.stall_warning = milliseconds(order.stall_warning_ms());
  times_.stall_shutdown = milliseconds(order.stall_shutdown_ms());
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
  if (plan.rank >= plan.size || plan.size == 0) {
    return EndProcess("the agent ordered rank " + std::to_string(plan.rank) + " of " +
                      std::to_string(plan.size));
  }
  Form(std::move(place), std::move(plan));
}

void Engine::OnRevoked(Generation generation, const std::string& reason) {
  if (generation >= newest_) {
    newest_ = generation;
    EndGenerations(generation, reason);
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
  FormedLinks links;
  links.control.resize(1);
  links.data.resize(1);
  OnFormed(place, std::move(links));
}

void Engine::Form(Place place, FormationPlan plan) {
  const Generation generation = plan.generation;
  try {
    FaultPoint("formation", place.rank);
  } catch (const WorkersLost& fault) {  // MUSTER_FAULT's throw: here, a formation that fails.
    return ReportBroken(generation, {{plan.rank}, false, fault.what()});
  }
  Formation::Callbacks callbacks;
  callbacks.on_formed = [this, place](FormedLinks links) {
    Retire(std::shared_ptr<Formation>(std::move(formation_)));
    OnFormed(place, std::move(links));
  };
  callbacks.on_broken = [this, generation](uint32_t suspect, const std::string& evidence) {
    ReportBroken(generation, {{suspect}, false, evidence});
  };
  formation_ =
      std::make_unique<Formation>(loop_, *acceptor_, std::move(plan), std::move(callbacks));
  formation_->Start();
}

void Engine::OnFormed(const Place& place, FormedLinks links) {
  Session::Callbacks callbacks;
  callbacks.on_broken = [this, generation = place.generation](BrokenReport report) {
    ReportBroken(generation, report);
  };
  callbacks.on_left = [this] { FinishShutdown(); };
  session_ = std::make_unique<Session>(
      loop_, executor_, place, times_, std::move(links), std::move(callbacks));
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

void Engine::EndGenerations(Generation generation, const std::string& reason) {
  if (formation_) {
    Retire(std::shared_ptr<Formation>(std::move(formation_)));
  }
  {
    const MutexLock lock(bulletin_.mutex);
    bulletin_.formed.reset();
    bulletin_.revoked = std::max(bulletin_.revoked, generation);
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

void Engine::EndSession(const std::string& reason) {
  // Shared with the two callbacks, of which either may be the last to need it.
  const std::shared_ptr<Session> session = std::move(session_);
  const Generation generation = session->generation();
  ++draining_sessions_;
  const Loop::TimerId deadline = loop_.After(kDrainTimeout, [this, generation] {
    EndProcess("an operation of generation " + std::to_string(generation.value) +
               " could not be stopped within 5 s");
  });
  session->End(LostError(generation, reason), [this, session, deadline] {
    loop_.Cancel(deadline);
    --draining_sessions_;
    if (ending_ == Ending::kClosing) {
      StopLoop();
    }
    Retire(session);
  });
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

// ---------------------------------------------------------------- the user's side

void Engine::Submit(std::shared_ptr<Call> call) {
  bool first = false;
  {
    const MutexLock lock(mutex_);
    first = queued_.empty();
    if (!closed_) {
      queued_.push_back(std::move(call));
    }
  }
  if (call) {
    RefuseAfterEnd(*call);
  } else if (first) {
    loop_.Post([this] { SubmitQueued(); });
  }
}

// Calls that came in while the last ones were being served.
void Engine::CloseQueue() {
  std::vector<std::shared_ptr<Call>> late;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    late.swap(queued_);
  }
  for (const auto& call : late) {
    RefuseAfterEnd(*call);
  }
}

void Engine::SubmitQueued() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    const MutexLock lock(mutex_);
    calls.swap(queued_);
  }
  std::vector<std::shared_ptr<Call>> current;
  for (auto& call : calls) {
    if (session_ && call->generation() == session_->generation()) {
      current.push_back(std::move(call));
      continue;
    }
    std::string reason;
    {
      const MutexLock lock(bulletin_.mutex);
      reason = bulletin_.revoke_reason;
    }
    if (call->Complete(LostError(call->generation(), reason))) {
      executor_.Post([call] { call->RunCallbacks(); });
    }
  }
  if (!current.empty()) {
    session_->Submit(current);
  }
}

void Engine::Report(v1::WorkerReport report) {
  if (client_) {
    client_->Send(std::move(report));
  }
}

void Engine::AbandonGeneration(Generation generation) {
  loop_.Post([this, generation] {
    if (generation < newest_ || !session_) {
      return;
    }
    if (has_agent()) {
      ReportBroken(generation, {{session_->rank()}, false, "the training function left the world"});
    } else {
      EndGenerations(generation, "the training function left the world");
      FormAlone();
    }
  });
}

// ---------------------------------------------------------------- the end

void Engine::Shutdown(bool done) {
  loop_.Post([this, done] { BeginShutdown(done); });
  if (thread_.joinable()) {
    thread_.join();
  }
  executor_.Stop();
  CloseQueue();
}

void Engine::BeginShutdown(bool done) {
  if (ending_ != Ending::kNo) {
    return;
  }
  ending_ = Ending::kLeaving;
  if (formation_) {
    Retire(std::shared_ptr<Formation>(std::move(formation_)));
  }
  SubmitQueued();
  if (!session_) {
    return FinishShutdown();
  }
  if (session_->rank() == 0) {
    SendBye();  // The launcher's Release is what rank 0 will wait for.
  } else {
    loop_.After(kLeaveTimeout, [this] { FinishShutdown(); });
  }
  session_->Leave(done);
  bool released = false;
  {
    const MutexLock lock(bulletin_.mutex);
    released = bulletin_.released;
  }
  if (released && session_) {
    session_->StopCoordinating();
  }
}

void Engine::FinishShutdown() {
  if (ending_ == Ending::kClosing) {
    return;
  }
  ending_ = Ending::kClosing;
  if (session_) {
    EndSession("this worker has shut down");
  }
  if (client_ && !stream_ended_) {
    SendBye();
    client_->Close();
    loop_.After(kCloseTimeout, [this] {
      client_.reset();  // Cancels: the agent did not end the stream in time.
      StopLoop();
    });
  } else {
    StopLoop();
  }
}

void Engine::SendBye() {
  if (!std::exchange(bye_sent_, true)) {
    v1::WorkerReport bye;
    bye.mutable_bye();
    Report(std::move(bye));
  }
}

// Both the stream and the executor have to be done; whoever is last stops the loop.
void Engine::StopLoop() {
  if (draining_sessions_ > 0) {
    return;
  }
  if (client_ && !stream_ended_) {
    return;
  }
  if (page_) {
    page_->Unlock();
  }
  loop_.Stop();
}

void Engine::EndProcess(const std::string& why) {
  (options_.end_process ? options_.end_process : EndThisProcess)(kExitCode, why);
}

}  // namespace muster::worker
