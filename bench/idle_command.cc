// muster-bench idle: what a job costs while it does nothing.

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "bench/commands.h"
#include "bench/common_flags.h"
#include "bench/process_cpu.h"
#include "bench/table.h"

namespace muster::bench {
namespace {

struct Flags {
  CommonFlags common{.ranks = {4}, .contestants = {"muster"}};
  int seconds = 10;
};

Result<std::vector<CpuTime>> TimesOf(const RankGroup& group) {
  std::vector<CpuTime> times;
  for (const pid_t pid : group.pids()) {
    const Result<CpuTime> time = CpuTimeOf(pid);
    if (!time.ok()) {
      return time.status();
    }
    times.push_back(time.value());
  }
  return times;
}

// Some work first: what idles is a job with its connections made and its tensors known.
Status WarmUp(const Field& field, const Flags& flags, const Progress& progress) {
  Plan plan = flags.common.ToPlan();
  plan.rounds = 1;
  for (const size_t bytes : {size_t{4}, size_t{1} << 20}) {
    const Result<std::vector<Timing>> timings = Measure(
        {.bytes = bytes}, field.EntrantsFor(Operation::kAllreduce, Pace::kBarrier), plan, progress);
    if (!timings.ok()) {
      return timings.status();
    }
  }
  return Status::Ok();
}

nlohmann::json Show(const std::string& name,
                    int rank,
                    const CpuTime& before,
                    const CpuTime& after,
                    double elapsed_s) {
  const double used_s = static_cast<double>(after.total_ns - before.total_ns) / 1e9;
  const double user_s = after.user_s - before.user_s;
  const double system_s = after.system_s - before.system_s;
  std::array<char, 160> line{};
  std::snprintf(line.data(),
                line.size(),
                "%10s %6d %12.3f %10.2f %10.2f %9.3f%%",
                name.c_str(),
                rank,
                used_s * 1e3,
                user_s,
                system_s,
                used_s / elapsed_s * 100);
  Print(line.data());
  return {{"contestant", name},
          {"rank", rank},
          {"seconds", elapsed_s},
          {"cpu_ms", used_s * 1e3},
          {"user_s", user_s},
          {"system_s", system_s},
          {"percent", used_s / elapsed_s * 100}};
}

Status Watch(const Field& field, const Flags& flags, nlohmann::json& results) {
  for (const Contestant contestant : flags.common.ToContestants()) {
    const RankGroup* group = field.group(contestant);
    if (group == nullptr) {
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    const Result<std::vector<CpuTime>> before = TimesOf(*group);
    if (!before.ok()) {
      return before.status();
    }
    std::this_thread::sleep_for(std::chrono::seconds(flags.seconds));
    const Result<std::vector<CpuTime>> after = TimesOf(*group);
    if (!after.ok()) {
      return after.status();
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    for (size_t i = 0; i < before.value().size(); ++i) {
      results.push_back(Show(group->name(),
                             static_cast<int>(i),
                             before.value()[i],
                             after.value()[i],
                             elapsed.count()));
    }
  }
  return Status::Ok();
}

Status Run(const Flags& flags) {
  nlohmann::json json = {
      {"command", "idle"}, {"machine", MachineJson()}, {"results", nlohmann::json::array()}};
  for (const int ranks : flags.common.ranks) {
    ProgressLine progress;
    const Result<std::unique_ptr<Field>> field = Field::Start(flags.common.ToContestants(),
                                                              flags.common.ToLaunch(ranks, 1),
                                                              flags.common.ToPlan(),
                                                              progress.Callback());
    if (!field.ok()) {
      return field.status();
    }
    Status status = WarmUp(*field.value(), flags, progress.Callback());
    progress.Clear();
    if (!status.ok()) {
      return status;
    }
    Print("\n" + std::to_string(ranks) + " ranks, idle for " + std::to_string(flags.seconds) +
          " s each");
    PrintAbsent(*field.value());
    Print("contestant   rank  cpu time ms     user s   system s   of a core");
    status = Watch(*field.value(), flags, json["results"]);
    if (!status.ok()) {
      return status;
    }
  }
  return flags.common.json.empty() ? Status::Ok() : WriteJson(flags.common.json, json);
}

}  // namespace

Command AddIdle(CLI::App& app) {
  auto flags = std::make_shared<Flags>();  // The command line and the command both need it.
  CLI::App* command = app.add_subcommand(
      "idle", "Shows the processor time that each rank uses while it waits for its program.");
  flags->common.Add(*command);
  command->add_option("--seconds", flags->seconds, "How long to watch")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  return [flags] { return Run(*flags); };
}

}  // namespace muster::bench
