#pragma once

// Results as a table for people and as JSON for scripts/plot_bench. No state but what is added.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace muster::bench {

struct Row {
  Case measured;
  int ranks = 1;
  int hosts = 1;
  std::vector<Timing> timings;
};

/// The fastest of a contestant's algorithms, by median; null: it did not take part.
const Timing* BestOf(const Row& row, Contestant contestant);
/// Muster's median over the smallest median of `others`; none: one side is missing.
std::optional<double> Ratio(const Row& row, const std::vector<Contestant>& others);

/// A table with a column per contestant, its times in microseconds.
std::string TableHead(const std::vector<Contestant>& contestants);
std::string TableLine(const Row& row, const std::vector<Contestant>& contestants);
/// "4 B", "4 B, back to back".
std::string CaseText(const Case& measured);
/// Three digits or more: "9.87", "98.7", "1234".
std::string TimeText(double value);

nlohmann::json ToJson(const Row& row);
/// What the numbers depend on: processor, cores, kernel.
nlohmann::json MachineJson();

/// Writes it under another name first: readers see all of it or nothing.
Status WriteJson(const std::string& path, const nlohmann::json& json);

}  // namespace muster::bench
