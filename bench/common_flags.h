#pragma once

// Flags that several subcommands have, and what they mean when parsed. No state but the values.

#include <string>
#include <vector>

#include "bench/measure.h"

namespace CLI {
class App;
}

namespace muster::bench {

struct CommonFlags {
  std::vector<int> ranks;
  std::vector<std::string> contestants;
  std::vector<std::string> muster_arguments;
  std::string json;
  int rounds = 5;
  int iterations = 0;
  int timeout_s = 120;

  /// The flags, with their defaults as they are set here.
  void Add(CLI::App& app);
  Plan ToPlan() const;
  Launch ToLaunch(int rank_count, int hosts) const;
  /// The lists of names were checked when they were parsed.
  std::vector<Contestant> ToContestants() const;
};

/// Shows on a terminal what is being measured, in one line that the next one replaces. Elsewhere
/// nothing: there the rows of the table tell how far it is.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const std::string& text);
  /// Before anything else is printed.
  void Clear();
  Progress Callback();

 private:
  const bool shown_;
};

/// A line on standard output, at once.
void Print(const std::string& line);
void PrintAbsent(const Field& field);

}  // namespace muster::bench
