// muster-bench small: many small tensors at once, as the gradients of a model with many layers.

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <memory>

#include "bench/commands.h"
#include "bench/common_flags.h"
#include "bench/sizes.h"
#include "bench/table.h"

namespace muster::bench {
namespace {

struct Flags {
  CommonFlags common{.ranks = {2, 4}, .contestants = {"muster", "gloo", "mpi"}};
  int count = 500;
  std::string bytes = "4096";
};

// How a contestant may go about many tensors.
std::vector<Entrant> EntrantsOf(const Field& field) {
  std::vector<Entrant> entrants = field.EntrantsFor(Operation::kAllreduce, Pace::kBarrier);
  if (RankGroup* mpi = field.group(Contestant::kMpi); mpi != nullptr) {
    entrants.push_back({.contestant = Contestant::kMpi, .algorithm = "nonblocking", .group = mpi});
  }
  return entrants;
}

std::string How(const Timing& timing) {
  if (timing.contestant == Contestant::kMuster) {
    return "asynchronous, named, then wait";
  }
  if (timing.algorithm == "nonblocking") {
    return "nonblocking, then wait";
  }
  return "one by one" + (timing.algorithm.empty() ? "" : ", " + timing.algorithm);
}

void PrintRow(const Row& row) {
  std::array<char, 160> line{};
  std::snprintf(line.data(),
                line.size(),
                "%10s  %-30s %10s %10s %12s",
                "",
                "how",
                "median ms",
                "min ms",
                "muster/this");
  Print(line.data());
  const Timing* muster = BestOf(row, Contestant::kMuster);
  for (const Timing& timing : row.timings) {
    const std::string ratio =
        muster == nullptr ? "-" : TimeText(muster->median_us() / timing.median_us());
    std::snprintf(line.data(),
                  line.size(),
                  "%10s  %-30s %10s %10s %12s",
                  Name(timing.contestant).c_str(),
                  How(timing).c_str(),
                  TimeText(timing.median_us() / 1e3).c_str(),
                  TimeText(timing.Microseconds(0) / 1e3).c_str(),
                  ratio.c_str());
    Print(line.data());
  }
}

Status RunRanks(const Flags& flags, const Case& measured, int ranks, nlohmann::json& json) {
  ProgressLine progress;
  const Plan plan = flags.common.ToPlan();
  const Result<std::unique_ptr<Field>> field = Field::Start(
      flags.common.ToContestants(), flags.common.ToLaunch(ranks, 1), plan, progress.Callback());
  if (!field.ok()) {
    return field.status();
  }
  Result<std::vector<Timing>> timings =
      Measure(measured, EntrantsOf(*field.value()), plan, progress.Callback());
  progress.Clear();
  if (!timings.ok()) {
    return timings.status();
  }
  const Row row{.measured = measured, .ranks = ranks, .timings = std::move(timings).value()};
  Print("\n" + std::to_string(flags.count) + " allreduces of " + SizeText(measured.bytes) + ", " +
        std::to_string(ranks) + " ranks: time for all of them");
  PrintAbsent(*field.value());
  PrintRow(row);
  json["results"].push_back(ToJson(row));
  return flags.common.json.empty() ? Status::Ok() : WriteJson(flags.common.json, json);
}

Status Run(const Flags& flags) {
  const Result<std::vector<size_t>> sizes = ParseSizes(flags.bytes);
  if (!sizes.ok()) {
    return sizes.status();
  }
  nlohmann::json json = {{"command", "small"},
                         {"machine", MachineJson()},
                         {"rounds", flags.common.rounds},
                         {"results", nlohmann::json::array()}};
  for (const int ranks : flags.common.ranks) {
    for (const size_t bytes : sizes.value()) {
      Status status = RunRanks(flags, {.bytes = bytes, .tensors = flags.count}, ranks, json);
      if (!status.ok()) {
        return status;
      }
    }
  }
  return Status::Ok();
}

}  // namespace

Command AddSmall(CLI::App& app) {
  auto flags = std::make_shared<Flags>();  // The command line and the command both need it.
  CLI::App* command = app.add_subcommand(
      "small",
      "Times many small allreduces: Muster's named and asynchronous ones, all waited for at the\n"
      "end, against Gloo's one by one, and Open MPI's one by one and nonblocking.");
  flags->common.Add(*command);
  command->add_option("--count", flags->count, "Tensors")
      ->check(CLI::Range(2, 100'000))
      ->capture_default_str();
  command->add_option("--bytes", flags->bytes, "Bytes per tensor")->capture_default_str();
  return [flags] { return Run(*flags); };
}

}  // namespace muster::bench
