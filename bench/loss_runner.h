#pragma once

// LossRunner: makes a job lose workers, one after the other, and measures each recovery.
//
// One thread, as ElasticJob.

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/distribution.h"
#include "bench/elastic_job.h"
#include "bench/recovery.h"
#include "bench/world_view.h"
#include "common/random.h"

namespace muster::bench {

enum class LossKind : uint8_t { kKill, kStop };
/// "SIGKILL", "SIGSTOP".
const std::string& Name(LossKind kind);

struct LossTimes {
  Distribution to_step;                          // To the first step of the last survivor.
  Distribution to_form;                          // To the driver's order of the next world.
  std::array<Distribution, kMilestones> phases;  // Of the last survivor.
  Distribution to_full;  // Until every member of a world of full size has finished a step.
  int detours = 0;       // Losses that took more than one world.
};

class LossRunner {
 public:
  /// Waits for a job of full size. `timeout` is that of this wait and of each recovery.
  static Result<std::unique_ptr<LossRunner>> Start(const ElasticJobOptions& options,
                                                   std::chrono::seconds timeout,
                                                   uint64_t seed);

  /// One more loss. `times` gets nothing of one that went wrong. After an error the job is of no
  /// more use.
  Status Lose(LossKind kind, LossTimes& times);

 private:
  LossRunner(std::unique_ptr<ElasticJob> job,
             const ElasticJobOptions& options,
             std::chrono::seconds timeout,
             uint64_t seed)
      : job_(std::move(job)), options_(options), timeout_(timeout), random_(seed) {}

  /// Reads the trace until `done`; the message says what did not come in time.
  Status WaitUntil(const std::function<bool()>& done, const std::function<std::string()>& missing);
  Status WaitForFullSize();
  Status WaitForRandomMoment();
  Status Recover(const std::string& what, LossTimes& times);

  const std::unique_ptr<ElasticJob> job_;
  const ElasticJobOptions options_;
  const std::chrono::seconds timeout_;
  Random random_;
  WorldView view_;
  // The last one, until the next: it knows whose end is expected.
  std::optional<Recovery> recovery_;
};

}  // namespace muster::bench
