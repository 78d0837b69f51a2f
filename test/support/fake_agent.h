#pragma once

// FakeAgent: an agent in the test's own process, without a driver. It hands out pages, takes the
// workers' streams, keeps their reports for the test to await, and sends the orders that the test
// wants. It spawns and kills nobody.
//
// Threads: the test's, plus gRPC's and the page server's inside.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/v1/workers.pb.h"
#include "worker/engine_runtime.h"

namespace muster::test {

class FakeAgent {
 public:
  FakeAgent();
  ~FakeAgent();
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  /// What a worker with this incarnation is given.
  worker::RuntimeOptions OptionsFor(uint64_t incarnation) const;
  /// Whether Joined says that no world has formed in this job yet.
  void SetFirstStart(bool first_start);
  void SetStallTimes(uint64_t warning_ms, uint64_t shutdown_ms);
  /// What Joined orders to listen at.
  void SetListen(std::vector<std::string> addresses);

  /// The next report of this kind; fails the test if none comes within 10 s. Reports of other kinds
  /// are skipped.
  v1::WorkerReport Await(uint64_t incarnation, v1::WorkerReport::ReportCase kind);
  /// True if such a report is there already.
  bool Has(uint64_t incarnation, v1::WorkerReport::ReportCase kind);

  /// Whether the members of a world get memory in common; they do at first.
  void ShareMemory(bool share);

  void Send(uint64_t incarnation, v1::WorkerOrder order);
  /// Orders a world of these members, in rank order, who have all joined.
  void Form(uint64_t generation,
            const std::vector<uint64_t>& members,
            const std::string& reason = "test");
  void Revoke(uint64_t generation, const std::vector<uint64_t>& members, const std::string& reason);
  void Admit(uint64_t incarnation, uint32_t rank, uint32_t size);
  void Release(uint64_t incarnation);
  void NotifyPending(uint64_t generation, const std::vector<uint64_t>& members, bool pending);
  /// Ends the stream, as a dying agent does.
  void Break(uint64_t incarnation);

  /// Ticks of the worker's page so far.
  uint64_t Ticks(uint64_t incarnation);
  /// True if the worker holds its robust mutex.
  bool HoldsMutex(uint64_t incarnation);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::test
