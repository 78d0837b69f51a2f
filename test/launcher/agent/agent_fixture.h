#pragma once

// What the tests of whole agents stand on: a driver that records what an agent tells it, and an
// agent process that it speaks to. Every wait ends after kHangBound.

#include <grpcpp/server.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/process.h"
#include "launcher/agent/process_scan.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

inline constexpr std::chrono::seconds kHangBound{20};

class FakeDriver final : public v1::Agents::Service {
 public:
  explicit FakeDriver(std::string secret);
  ~FakeDriver() override;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Answers the hello.
  v1::Welcome welcome;

  void Order(const v1::AgentOrder& order);
  /// Waits for the first report, not given out before, that fulfils the condition.
  v1::AgentReport Await(const std::function<bool(const v1::AgentReport&)>& condition);
  v1::AgentReport Await(v1::AgentReport::ReportCase report_case, uint64_t incarnation = 0);
  /// Waits for this many summaries from now on: the agent's clock, as it were.
  bool AwaitSummaries(ptrdiff_t count);
  /// All reports so far, summaries left out.
  std::vector<v1::AgentReport> reports();
  /// Waits until the stream of reports, or of output, has been ended by the agent.
  bool AwaitEnd();

  /// Breaks all streams and takes no new ones.
  void Shutdown();

  /// Output is not read until released.
  void HoldOutput(bool hold);
  /// Ends the stream of output, this one or the next, with an error; later ones are taken.
  void BreakOutput();
  bool AwaitOutput(const std::string& text);
  std::string output();
  size_t output_bytes();
  std::vector<v1::OutputChunk> chunks();

  grpc::Status Attach(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::AgentOrder, v1::AgentReport>* stream) override;
  grpc::Status ForwardOutput(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::OutputAck, v1::OutputChunk>* stream) override;

 private:
  void WriteLocked(v1::AgentOrder order) MUSTER_REQUIRES(mutex_);
  bool AwaitLocked(const std::function<bool()>& condition) MUSTER_REQUIRES(mutex_);

  const std::string secret_;
  int port_ = 0;
  Mutex mutex_;
  CondVar changed_;
  grpc::ServerReaderWriter<v1::AgentOrder, v1::AgentReport>* stream_ MUSTER_GUARDED_BY(mutex_) =
      nullptr;
  uint64_t orders_sent_ MUSTER_GUARDED_BY(mutex_) = 0;
  uint64_t output_received_ MUSTER_GUARDED_BY(mutex_) = 0;  // The last chunk's number.
  std::vector<v1::AgentReport> all_ MUSTER_GUARDED_BY(mutex_);
  std::vector<v1::AgentReport> fresh_ MUSTER_GUARDED_BY(mutex_);
  std::vector<v1::OutputChunk> chunks_ MUSTER_GUARDED_BY(mutex_);
  bool attach_ended_ MUSTER_GUARDED_BY(mutex_) = false;
  bool hold_output_ MUSTER_GUARDED_BY(mutex_) = false;
  bool break_output_ MUSTER_GUARDED_BY(mutex_) = false;
  bool closing_ MUSTER_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Server> server_;
};

/// An agent's two processes with a FakeDriver.
class AgentUnderTest {
 public:
  /// Workers run the fake worker with these arguments.
  explicit AgentUnderTest(std::vector<std::string> worker_arguments);
  /// The agent's workers run this command.
  struct Command {
    std::vector<std::string> argv;
    std::map<std::string, std::string> environment = {};  // Of the job.
  };
  explicit AgentUnderTest(const Command& command);
  ~AgentUnderTest();

  FakeDriver& driver() { return driver_; }
  const std::string& job() const { return job_; }
  pid_t reaper() const { return process_.pid; }
  pid_t proper() const { return proper_; }
  void CloseStandardInput() { input_.Reset(); }
  /// The exit code of the first process; -1 if it does not end.
  int AwaitExit();
  /// True as soon as no process carries the job's mark any more.
  bool AwaitNoProcess();
  size_t ProcessCount() const;
  /// The directories of sockets that the agent has left.
  size_t DirectoryCount() const;

  void Spawn(uint64_t incarnation, uint32_t slot = 0);
  /// Spawns and waits for the join.
  v1::WorkerJoined SpawnAndJoin(uint64_t incarnation, uint32_t slot = 0);
  void Form(uint64_t generation, const std::vector<uint64_t>& members);
  void Revoke(uint64_t generation, const std::string& reason);
  void NotifyPending(uint64_t generation, bool pending);
  void Release(uint64_t incarnation);
  void Kill(uint64_t incarnation, bool force);
  void Stop();

 private:
  const std::string job_;
  std::string temporary_;  // $TMPDIR of the agent.
  FakeDriver driver_;
  SpawnedProcess process_;
  UniqueFd input_;
  pid_t proper_ = 0;
  int exit_code_ = -1;
};

std::string FakeWorkerPath();
/// False if it does not end.
bool AwaitProcessEnd(const UniqueFd& pidfd);

}  // namespace muster::launcher
