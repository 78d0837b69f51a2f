#include "worker/engine.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/version.h"
#include "worker/end_process.h"
#include "worker/fault.h"
#include "worker/thread.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTickPeriod{100};
constexpr seconds kAgentAnswerTimeout{10};
/// For goodbyes: to peers in the log, and to the agent.
constexpr seconds kLeaveTimeout{5};
constexpr milliseconds kCloseTimeout{500};
constexpr int kExitCode = 70;

}  // namespace

Engine::Engine(EngineOptions options, Bulletin& bulletin)
    : options_(std::move(options)),
      bulletin_(bulletin),
      host_(options_.host),
      slot_(options_.slot) {
  session_options_.operation_timeout = options_.operation_timeout;
  session_options_.fusion_bytes = options_.collective.fusion_bytes;
  session_options_.id_limit = options_.collective.cache_capacity;
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
  if (page_) {
    loop_.Unwatch(page_->connection());
  }
  segment_client_.reset();
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
  loop_.Watch(page_->connection(), EPOLLIN, [this](uint32_t) { OnOver(); });
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

// ---------------------------------------------------------------- the user's side

void Engine::Submit(std::span<const std::shared_ptr<Call>> calls) {
  const Generation generation = calls.front()->generation();
  const std::shared_ptr<Session> session = current();
  if (session && session->generation() == generation) {
    return session->Submit(calls);
  }
  std::exception_ptr error = std::make_exception_ptr(WorkersFinished("this worker has shut down"));
  {
    const MutexLock lock(bulletin_.mutex);
    AwaitSessionsEnded(bulletin_);
    if (!bulletin_.stopped) {
      error = LostError(generation, bulletin_.revoke_reason);
    }
  }
  for (const std::shared_ptr<Call>& call : calls) {
    if (call->Complete(error)) {
      executor_.Post([call] { call->RunCallbacks(); });
    }
  }
}

// An operation of a generation that has ended is completed by whoever is still in its backend.
void Engine::HelpComplete(const Operation& operation, Generation generation) {
  const std::shared_ptr<Session> session = current();
  if (session && session->generation() == generation) {
    session->HelpComplete(operation);
  }
}

std::shared_ptr<Session> Engine::current() const {
  const MutexLock lock(mutex_);
  return current_;
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
}

void Engine::BeginShutdown(bool done) {
  if (ending_ != Ending::kNo) {
    return;
  }
  ending_ = Ending::kLeaving;
  if (formation_) {
    Retire(std::shared_ptr<Formation>(std::move(formation_)));
  }
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
    {
      const MutexLock lock(bulletin_.mutex);
      ++bulletin_.ending_sessions;
    }
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
