#pragma once

// The modes of test_collectives: each function is one, called on every rank after init(), and says
// in the Report what it found. None returns early: a rank that left would make the others hang.
// They use the thread that called them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "collectives_case.h"
#include "worker_support.h"

namespace muster::test {

/// Counts what was checked and prints what was wrong.
class Report {
 public:
  explicit Report(const EventLog& log) : log_(log) {}

  void Check(bool right, const std::string& what);
  void Check(Running& running);
  void Check(const std::optional<std::string>& wrong);
  void Fail(const std::string& what);
  /// Runs `call`, which has to throw InvalidCollective; returns its message.
  std::string Refused(const std::string& what, const std::function<void()>& call);
  /// One line for the reader, one event for the script.
  void Finish(const std::string& mode);
  int64_t failures() const { return failures_; }

 private:
  const EventLog& log_;
  int64_t checks_ = 0;
  int64_t failures_ = 0;
};

struct Context {
  const Arguments& arguments;
  const EventLog& log;
  Report& report;
};

using Mode = void (*)(Context&);

/// 0, 1, ... of the world.
std::vector<int> Everyone();
Case Single(Kind kind, DType dtype, Shape shape, Op op, uint64_t seed);
/// An allreduce of ones under this name, alone and blocking: is the engine still fit?
void CheckUsable(Context& context, const std::string& name);
/// Compares hashes of the same results on all ranks that have them (through an allgather).
void CompareHashes(Context& context,
                   const std::vector<Case>& cases,
                   const std::vector<uint64_t>& hashes);
/// Makes calls in an order of this rank's own, checks them, and compares them between ranks. Calls
/// without a name keep their order.
void RunInRandomOrder(Context& context, const std::vector<Case>& cases, uint64_t seed);
/// The same on all ranks; `ways` of them are named, grouped, scaled, ....
Case RandomCase(Chance& chance, int64_t index, int64_t elements_max);
/// Until a file exists or a minute has passed.
void AwaitFile(const std::string& path);
/// kB, from /proc/self/status.
int64_t MemoryPeak();

// collectives_worker.cc, collectives_waits.cc
void RunMatrix(Context& context);
void RunRandom(Context& context);
void RunObjects(Context& context);
void RunJoin(Context& context);
void RunSets(Context& context);
void RunThreads(Context& context);
void RunPolling(Context& context);
void RunAbsent(Context& context);
// collectives_load.cc
void RunOutstanding(Context& context);
void RunBig(Context& context);
void RunBigGather(Context& context);
void RunIdle(Context& context);
void RunLatency(Context& context);
// collectives_calls.cc: user cases
void RunMismatches(Context& context);     // 90
void RunEmptyParts(Context& context);     // 91
void RunSplits(Context& context);         // 92
void RunScalars(Context& context);        // 94
void RunAverages(Context& context);       // 95
void RunBFloat(Context& context);         // 97
void RunHalfOverflow(Context& context);   // 98
void RunOddCounts(Context& context);      // 99
void RunReproducible(Context& context);   // 101
void RunGroups(Context& context);         // 102
void RunSameName(Context& context);       // 103
void RunRenegotiation(Context& context);  // 104
// collectives_story.cc: user cases on late, finished and joined ranks
void RunLateGroup(Context& context);        // 101
void RunJoinBatches(Context& context);      // 105
void RunLateRanks(Context& context);        // 114, 115
void RunUnevenSteps(Context& context);      // 116
void RunUnevenJoin(Context& context);       // 116
void RunAllocationFails(Context& context);  // 107
// collectives_elastic.cc: inside elastic::run
void RunOperations(Context& context);
void RunPendingLoss(Context& context);  // 108
void RunReset(Context& context);        // 92, 104, 106
void RunJoinedLoss(Context& context);   // 105
void RunElasticLate(Context& context);  // 114

}  // namespace muster::test
