#pragma once

// Contestants side by side: all are up at once, one at a time works, and they take turns within
// each round, so that whatever else the machine does meets all of them alike.
//
// One thread.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/contestants.h"
#include "bench/temp_directory.h"

namespace muster::bench {

struct Case {
  Operation operation = Operation::kAllreduce;
  size_t bytes = 4;
  int tensors = 1;
  Pace pace = Pace::kBarrier;
};

struct Entrant {
  Contestant contestant = Contestant::kMuster;
  std::string algorithm;
  RankGroup* group = nullptr;
};

struct Timing {
  Contestant contestant = Contestant::kMuster;
  std::string algorithm;
  std::vector<int64_t> times_ns;  // Of all rounds, growing. Never empty.

  double Microseconds(double quantile) const;
  double median_us() const { return Microseconds(0.5); }
};

struct Plan {
  int rounds = 5;
  int iterations = 0;  // Per round; 0: by size, and fewer where they would take seconds.
  std::chrono::seconds timeout{120};  // Of one order, or of starting a contestant.
  size_t offset = 16;                 // As in Order.
};

/// Iterations of a round by size: many of what is short.
int IterationsFor(size_t bytes, int tensors);

using Progress = std::function<void(const std::string&)>;

/// One Timing per entrant, in their order. The time of an iteration is rank 0's, and of a
/// broadcast the slowest rank's: its root is done when it has handed the data over.
Result<std::vector<Timing>> Measure(const Case& measured,
                                    const std::vector<Entrant>& entrants,
                                    const Plan& plan,
                                    const Progress& progress);

/// The groups of one number of ranks, and their folder.
class Field {
 public:
  /// A contestant that cannot take part is left out, with its reason.
  static Result<std::unique_ptr<Field>> Start(const std::vector<Contestant>& contestants,
                                              Launch launch,
                                              const Plan& plan,
                                              const Progress& progress);

  /// Every algorithm of every contestant that has the operation.
  std::vector<Entrant> EntrantsFor(Operation operation, Pace pace) const;
  /// "mpi: not built".
  const std::vector<std::string>& absent() const { return absent_; }
  /// Null: it does not take part.
  RankGroup* group(Contestant contestant) const;

 private:
  struct Member {
    Contestant contestant;
    std::unique_ptr<RankGroup> group;
  };

  explicit Field(TempDirectory directory) : directory_(std::move(directory)) {}

  TempDirectory directory_;  // Outlives the groups, which write into it.
  std::vector<Member> members_;
  std::vector<std::string> absent_;
};

}  // namespace muster::bench
