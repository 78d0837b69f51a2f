#include "test/launcher/agent/agent_fixture.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "common/secret.h"
#include "common/version.h"
#include "common/worker_page.h"
#include "launcher/agent/bootstrap.h"

namespace muster::launcher {
namespace {

constexpr const char* kHost = "127.0.0.1";
constexpr const char* kSecret = "s3cret";

std::string Beside(const std::string& name) {
  std::string path(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  path.resize(static_cast<size_t>(size));
  return path.substr(0, path.rfind('/') + 1) + name;
}

uint64_t IncarnationOf(const v1::AgentReport& report) {
  const google::protobuf::Descriptor* descriptor = report.GetDescriptor();
  const auto* field =
      report.GetReflection()->GetOneofFieldDescriptor(report, descriptor->oneof_decl(0));
  const google::protobuf::Message& inner = report.GetReflection()->GetMessage(report, field);
  const auto* incarnation = inner.GetDescriptor()->FindFieldByName("incarnation");
  return incarnation == nullptr ? 0 : inner.GetReflection()->GetUInt64(inner, incarnation);
}

}  // namespace

std::string FakeWorkerPath() {
  return Beside("fake_worker");
}

bool AwaitProcessEnd(const UniqueFd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  const auto bound = std::chrono::duration_cast<std::chrono::milliseconds>(kHangBound);
  return ::poll(&entry, 1, static_cast<int>(bound.count())) == 1;
}

FakeDriver::FakeDriver(std::string secret) : secret_(std::move(secret)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

FakeDriver::~FakeDriver() {
  Shutdown();
}

void FakeDriver::Shutdown() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.NotifyAll();
  server_->Shutdown(std::chrono::system_clock::now());
}

grpc::Status FakeDriver::Attach(grpc::ServerContext* context,
                                grpc::ServerReaderWriter<v1::AgentOrder, v1::AgentReport>* stream) {
  const auto [first, last] = context->client_metadata().equal_range("muster-secret");
  if (std::distance(first, last) != 1 ||
      std::string(first->second.data(), first->second.size()) != secret_) {
    return {grpc::StatusCode::PERMISSION_DENIED, "wrong secret"};
  }
  v1::AgentReport report;
  while (stream->Read(&report)) {
    const MutexLock lock(mutex_);
    if (report.has_hello()) {
      v1::AgentOrder order;
      *order.mutable_welcome() = welcome;
      stream_ = stream;
      WriteLocked(order);
    }
    if (!report.has_summary()) {
      all_.push_back(report);
    }
    fresh_.push_back(report);
    changed_.NotifyAll();
  }
  const MutexLock lock(mutex_);
  stream_ = nullptr;
  attach_ended_ = true;
  changed_.NotifyAll();
  return grpc::Status::OK;
}

grpc::Status FakeDriver::ForwardOutput(
    grpc::ServerContext* /*context*/,
    grpc::ServerReaderWriter<v1::OutputAck, v1::OutputChunk>* stream) {
  v1::OutputChunk chunk;
  while (true) {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(break_output_, false)) {
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "not now"};
      }
      while (hold_output_ && !closing_) {
        changed_.Wait(mutex_);
      }
    }
    if (!stream->Read(&chunk)) {
      return grpc::Status::OK;
    }
    v1::OutputAck ack;
    ack.set_received(chunk.sequence());
    stream->Write(ack);
    const MutexLock lock(mutex_);
    if (chunk.sequence() > output_received_) {  // Else it was sent again after a break.
      output_received_ = chunk.sequence();
      chunks_.push_back(chunk);
    }
    changed_.NotifyAll();
  }
}

void FakeDriver::WriteLocked(v1::AgentOrder order) {
  order.set_sequence(++orders_sent_);
  stream_->Write(order);
}

bool FakeDriver::AwaitLocked(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kHangBound;
  while (!condition()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0 || (!changed_.WaitFor(mutex_, left) && !condition())) {
      return false;
    }
  }
  return true;
}

void FakeDriver::Order(const v1::AgentOrder& order) {
  const MutexLock lock(mutex_);
  if (!AwaitLocked([this] { return stream_ != nullptr; })) {
    throw std::runtime_error("the agent has not attached");
  }
  WriteLocked(order);
}

v1::AgentReport FakeDriver::Await(const std::function<bool(const v1::AgentReport&)>& condition) {
  const MutexLock lock(mutex_);
  auto found = fresh_.end();
  const bool ok = AwaitLocked([&] {
    found = std::find_if(fresh_.begin(), fresh_.end(), condition);
    return found != fresh_.end();
  });
  if (!ok) {
    std::string seen;
    for (const v1::AgentReport& report : all_) {
      seen += report.ShortDebugString() + "\n";
    }
    throw std::runtime_error("the awaited report did not come; these did:\n" + seen);
  }
  v1::AgentReport report = *found;
  fresh_.erase(found);
  return report;
}

v1::AgentReport FakeDriver::Await(v1::AgentReport::ReportCase report_case, uint64_t incarnation) {
  return Await([&](const v1::AgentReport& report) {
    return report.report_case() == report_case &&
           (incarnation == 0 || IncarnationOf(report) == incarnation);
  });
}

bool FakeDriver::AwaitSummaries(ptrdiff_t count) {
  const auto is_summary = [](const v1::AgentReport& report) { return report.has_summary(); };
  const MutexLock lock(mutex_);
  std::erase_if(fresh_, is_summary);
  return AwaitLocked(
      [&] { return std::count_if(fresh_.begin(), fresh_.end(), is_summary) >= count; });
}

std::vector<v1::AgentReport> FakeDriver::reports() {
  const MutexLock lock(mutex_);
  return all_;
}

bool FakeDriver::AwaitEnd() {
  const MutexLock lock(mutex_);
  return AwaitLocked([this] { return attach_ended_; });
}

void FakeDriver::HoldOutput(bool hold) {
  const MutexLock lock(mutex_);
  hold_output_ = hold;
  changed_.NotifyAll();
}

void FakeDriver::BreakOutput() {
  const MutexLock lock(mutex_);
  break_output_ = true;
}

bool FakeDriver::AwaitOutput(const std::string& text) {
  const MutexLock lock(mutex_);
  return AwaitLocked([&] {
    std::string all;
    for (const v1::OutputChunk& chunk : chunks_) {
      all += chunk.lines();
    }
    return all.find(text) != std::string::npos;
  });
}

std::string FakeDriver::output() {
  std::string all;
  for (const v1::OutputChunk& chunk : chunks()) {
    all += chunk.lines();
  }
  return all;
}

size_t FakeDriver::output_bytes() {
  return output().size();
}

std::vector<v1::OutputChunk> FakeDriver::chunks() {
  const MutexLock lock(mutex_);
  return chunks_;
}

AgentUnderTest::AgentUnderTest(std::vector<std::string> worker_arguments)
    : AgentUnderTest(Command{[&] {
        worker_arguments.insert(worker_arguments.begin(), FakeWorkerPath());
        return worker_arguments;
      }()}) {}

AgentUnderTest::AgentUnderTest(const Command& command) : job_(RandomHex(8)), driver_(kSecret) {
  driver_.welcome.mutable_argv()->Add(command.argv.begin(), command.argv.end());
  (*driver_.welcome.mutable_environment())["PATH"] = "/usr/local/bin:/usr/bin:/bin";
  (*driver_.welcome.mutable_environment())["GREETING"] = "hello";
  for (const auto& [name, value] : command.environment) {
    (*driver_.welcome.mutable_environment())[name] = value;
  }
  driver_.welcome.set_elastic(true);
  temporary_ = (std::filesystem::temp_directory_path() / "agent-test-XXXXXX").string();
  if (::mkdtemp(temporary_.data()) == nullptr) {
    throw std::runtime_error("no temporary directory");
  }
  Result<Pipe> input = MakePipe();
  SpawnOptions options;
  options.argv = {Beside("agent_under_test")};
  options.environment = {"TMPDIR=" + temporary_};
  options.stdin_fd = input.value().read.get();
  process_ = muster::Spawn(options).value();
  input_ = std::move(input.value().write);
  v1::AgentBootstrap bootstrap;
  bootstrap.set_host(kHost);
  bootstrap.set_job_id(job_);
  bootstrap.set_secret(kSecret);
  bootstrap.add_driver()->set_literal(driver_.address());
  bootstrap.set_log_level("INFO");
  bootstrap.set_protocol(kProtocolVersion);
  const std::string bytes = EncodeBootstrap(bootstrap);
  if (::write(input_.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    throw std::runtime_error("the bootstrap cannot be written");
  }
  proper_ = static_cast<pid_t>(driver_.Await(v1::AgentReport::kHello).hello().pid());
}

AgentUnderTest::~AgentUnderTest() {
  input_.Reset();
  if (exit_code_ < 0) {
    AwaitExit();
  }
  std::filesystem::remove_all(temporary_);
}

size_t AgentUnderTest::DirectoryCount() const {
  const std::filesystem::directory_iterator entries(temporary_);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

int AgentUnderTest::AwaitExit() {
  if (!AwaitProcessEnd(process_.pidfd)) {
    ::kill(process_.pid, SIGKILL);
    return -1;
  }
  const Result<ExitStatus> status = Reap(process_.pid);
  exit_code_ = status.ok() ? status.value().code : -1;
  return exit_code_;
}

size_t AgentUnderTest::ProcessCount() const {
  const std::vector<std::string> marks{std::string(kEnvJob) + "=" + job_};
  const std::vector<ProcessEntry> all = ListProcesses();
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const ProcessEntry& entry) {
    return EnvironmentHolds(entry.pid, marks);
  }));
}

// Five seconds is what is promised; /proc tells of no change, hence the poll.
bool AgentUnderTest::AwaitNoProcess() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (ProcessCount() > 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    ::poll(nullptr, 0, 10);
  }
  return true;
}

void AgentUnderTest::Spawn(uint64_t incarnation, uint32_t slot) {
  v1::AgentOrder order;
  order.mutable_spawn_worker()->set_incarnation(incarnation);
  order.mutable_spawn_worker()->set_slot(slot);
  order.mutable_spawn_worker()->mutable_provisional()->set_rank(slot);
  order.mutable_spawn_worker()->mutable_provisional()->set_size(2);
  driver_.Order(order);
}

v1::WorkerJoined AgentUnderTest::SpawnAndJoin(uint64_t incarnation, uint32_t slot) {
  Spawn(incarnation, slot);
  return driver_.Await(v1::AgentReport::kWorkerJoined, incarnation).worker_joined();
}

void AgentUnderTest::Form(uint64_t generation, const std::vector<uint64_t>& members) {
  v1::AgentOrder order;
  v1::FormWorld& form = *order.mutable_form_world();
  form.set_generation(generation);
  form.set_link_key("link");
  form.mutable_layout()->add_host_sizes(1);
  form.mutable_layout()->add_host_sizes(static_cast<uint32_t>(members.size()));
  form.set_host_index(1);
  form.add_coordinator()->set_literal("127.0.0.1:99");
  form.mutable_members()->Add(members.begin(), members.end());
  driver_.Order(order);
}

void AgentUnderTest::Revoke(uint64_t generation, const std::string& reason) {
  v1::AgentOrder order;
  order.mutable_revoke()->set_generation(generation);
  order.mutable_revoke()->set_reason(reason);
  driver_.Order(order);
}

void AgentUnderTest::NotifyPending(uint64_t generation, bool pending) {
  v1::AgentOrder order;
  order.mutable_notify_pending()->set_generation(generation);
  order.mutable_notify_pending()->set_pending(pending);
  driver_.Order(order);
}

void AgentUnderTest::Release(uint64_t incarnation) {
  v1::AgentOrder order;
  order.mutable_release()->add_incarnations(incarnation);
  driver_.Order(order);
}

void AgentUnderTest::Kill(uint64_t incarnation, bool force) {
  v1::AgentOrder order;
  order.mutable_kill_worker()->set_incarnation(incarnation);
  order.mutable_kill_worker()->set_force(force);
  driver_.Order(order);
}

void AgentUnderTest::Stop() {
  v1::AgentOrder order;
  order.mutable_stop_agent();
  driver_.Order(order);
}

}  // namespace muster::launcher
