// muster-bench recovery: how long a job stands still after a loss.

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <memory>

#include "bench/commands.h"
#include "bench/common_flags.h"
#include "bench/loss_runner.h"
#include "bench/table.h"

namespace muster::bench {
namespace {

struct Flags {
  ElasticJobOptions job;
  std::string kind = "kill";
  int count = 100;
  int timeout_s = 30;
  uint64_t seed = 1;
  std::string json;
};

std::vector<LossKind> KindsOf(const std::string& name) {
  if (name == "all") {
    return {LossKind::kKill, LossKind::kStop};
  }
  return {name == "kill" ? LossKind::kKill : LossKind::kStop};
}

std::string TitleOf(LossKind kind, const ElasticJobOptions& job) {
  std::string title = Name(kind) + " of one of " + std::to_string(job.workers) + " workers, " +
                      std::to_string(job.hosts) + (job.hosts == 1 ? " host" : " hosts");
  if (job.spares > 0) {
    title += ", " + std::to_string(job.spares) + (job.spares == 1 ? " spare" : " spares");
  }
  return title + ", " + std::to_string(job.state_mb) + " MiB of extra state";
}

void PrintTimes(const LossTimes& times) {
  Print(DistributionHead("milliseconds"));
  Print(DistributionLine("first step of all survivors", times.to_step));
  Print(DistributionLine("full size again", times.to_full));
  Print(DistributionLine("driver orders the next world", times.to_form));
  Print("of the last survivor:");
  for (size_t i = 0; i < kMilestones; ++i) {
    Print(DistributionLine("  " + PhaseName(static_cast<Milestone>(i)), times.phases[i]));
  }
  if (times.detours > 0) {
    Print(std::to_string(times.detours) + " took more than one new world");
  }
}

nlohmann::json ToJson(LossKind kind, const Flags& flags, const LossTimes& times) {
  nlohmann::json phases = nlohmann::json::array();
  for (size_t i = 0; i < kMilestones; ++i) {
    phases.push_back(
        {{"phase", PhaseName(static_cast<Milestone>(i))}, {"times", ToJson(times.phases[i])}});
  }
  return {{"signal", Name(kind)},
          {"workers", flags.job.workers},
          {"hosts", flags.job.hosts},
          {"spares", flags.job.spares},
          {"state_mb", flags.job.state_mb},
          {"first_step", ToJson(times.to_step)},
          {"full_size", ToJson(times.to_full)},
          {"form", ToJson(times.to_form)},
          {"phases", phases},
          {"more_than_one_world", times.detours}};
}

Status RunKind(LossRunner& runner, LossKind kind, const Flags& flags, nlohmann::json& results) {
  ProgressLine progress;
  LossTimes times;
  Status status;
  const std::string total = std::to_string(flags.count);
  for (int i = 1; i <= flags.count && status.ok(); ++i) {
    progress.Show(Name(kind) + " " + std::to_string(i) + " of " + total +
                  (i == 1 ? "" : ", median " + TimeText(times.to_step.Milliseconds(0.5)) + " ms"));
    status = runner.Lose(kind, times);
  }
  progress.Clear();
  // Also before an error: a long run that is cut short leaves what it has.
  if (times.to_step.count() > 0) {
    Print("\n" + TitleOf(kind, flags.job));
    PrintTimes(times);
    results.push_back(ToJson(kind, flags, times));
  }
  return status;
}

Status Run(const Flags& flags) {
  if (flags.job.hosts > flags.job.workers) {
    return Status::Invalid("two hosts take two workers");
  }
  Print("seed " + std::to_string(flags.seed));
  Result<std::unique_ptr<LossRunner>> runner =
      LossRunner::Start(flags.job, std::chrono::seconds(flags.timeout_s), flags.seed);
  if (!runner.ok()) {
    return runner.status();
  }
  nlohmann::json json = {{"command", "recovery"},
                         {"machine", MachineJson()},
                         {"seed", flags.seed},
                         {"results", nlohmann::json::array()}};
  Status status;
  for (const LossKind kind : KindsOf(flags.kind)) {
    status = RunKind(*runner.value(), kind, flags, json["results"]);
    if (!status.ok()) {
      break;
    }
  }
  const Status written = flags.json.empty() ? Status::Ok() : WriteJson(flags.json, json);
  return status.ok() ? written : status;
}

void AddJobFlags(CLI::App& command, ElasticJobOptions& job) {
  command.add_option("--workers", job.workers, "Workers of the job")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command
      .add_option("--hosts", job.hosts, "2: half of them on another host, this machine, over TCP")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  command.add_option("--spares", job.spares, "Warm workers beside the world")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  command.add_option("--state-mb", job.state_mb, "Extra state, committed after every step, in MiB")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command
      .add_option("--cooldown",
                  job.cooldown_s,
                  "Seconds that a slot rests after a loss, until the job gets its full size back")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command
      .add_option("--muster-arg",
                  job.muster_arguments,
                  "One more argument of `muster run`, such as --muster-arg=--verbose; repeatable")
      ->allow_extra_args(false);
}

}  // namespace

Command AddRecovery(CLI::App& app) {
  auto flags = std::make_shared<Flags>();  // The command line and the command both need it.
  CLI::App* command = app.add_subcommand(
      "recovery",
      "Makes a job that trains lose random workers, one after the other, and times it from the\n"
      "signal to the first step of all survivors, phase by phase.");
  AddJobFlags(*command, flags->job);
  command->add_option("--kind", flags->kind, "How workers are lost: by SIGKILL, SIGSTOP, or both")
      ->check(CLI::IsMember({"kill", "stop", "all"}))
      ->capture_default_str();
  command->add_option("--count", flags->count, "Losses of each kind")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "Chooses victims and moments")->capture_default_str();
  command
      ->add_option(
          "--timeout", flags->timeout_s, "Seconds until a job that stands still is an error")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command->add_option("--json", flags->json, "Write the results to this file as well");
  return [flags] { return Run(*flags); };
}

}  // namespace muster::bench
