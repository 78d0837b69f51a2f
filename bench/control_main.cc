// muster-bench-control: how fast the driver re-forms a world of thousands of workers.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "bench/common_flags.h"
#include "bench/control_plane.h"
#include "bench/process_waits.h"
#include "bench/table.h"

namespace muster::bench {
namespace {

constexpr int kUsage = 2;

struct Flags {
  ControlPlaneOptions plane;
  int count = 20;
  int timeout_s = 60;
  std::string json;
};

std::string TrafficText(const std::string& change, const ControlTraffic& traffic, int agents) {
  return change + ": at most " + std::to_string(traffic.bytes_max) + " bytes in " +
         std::to_string(traffic.orders_max) + " orders to one agent, " +
         std::to_string(traffic.bytes_total / static_cast<size_t>(agents)) + " bytes on average";
}

nlohmann::json ToJson(const ControlTraffic& traffic) {
  return {{"bytes_max", traffic.bytes_max},
          {"bytes_total", traffic.bytes_total},
          {"orders_max", traffic.orders_max}};
}

nlohmann::json ToJson(const Flags& flags, const ControlTimes& times, int64_t started_ms) {
  return {{"command", "control"},
          {"machine", MachineJson()},
          {"agents", flags.plane.agents},
          {"workers_per_agent", flags.plane.workers},
          {"seed", flags.plane.seed},
          {"start_ms", started_ms},
          {"told", ToJson(times.told)},
          {"formed", ToJson(times.formed)},
          {"grown", ToJson(times.grown)},
          {"loss", ToJson(times.loss)},
          {"growth", ToJson(times.growth)}};
}

Status Lose(ControlPlane& plane, const Flags& flags, ControlTimes& times) {
  ProgressLine progress;
  Status status;
  for (int i = 1; i <= flags.count && status.ok(); ++i) {
    progress.Show("loss " + std::to_string(i) + " of " + std::to_string(flags.count));
    status = plane.Lose(times);
  }
  return status;
}

Status Run(const Flags& flags) {
  std::chrono::milliseconds started{};
  Result<std::unique_ptr<ControlPlane>> plane = ControlPlane::Start(flags.plane, started);
  if (!plane.ok()) {
    return plane.status();
  }
  const int agents = flags.plane.agents;
  Print(std::to_string(agents) + " agents of " + std::to_string(flags.plane.workers) +
        " workers; the first world stood " + std::to_string(started.count()) +
        " ms after the first agent dialled in");
  ControlTimes times;
  const Status status = Lose(*plane.value(), flags, times);
  if (times.formed.count() == 0) {
    return status;
  }
  Print(DistributionHead("milliseconds"));
  Print(DistributionLine("one lost: all agents told", times.told));
  Print(DistributionLine("one lost: all re-formed", times.formed));
  Print(DistributionLine("one more: told to re-formed", times.grown));
  Print(TrafficText("loss", times.loss, agents));
  Print(TrafficText("growth", times.growth, agents));
  const Status written = flags.json.empty()
                             ? Status::Ok()
                             : WriteJson(flags.json, ToJson(flags, times, started.count()));
  return status.ok() ? written : status;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--agents", flags.plane.agents, "Agents, all in this process")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--workers", flags.plane.workers, "Workers of each agent")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--count", flags.count, "Losses")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--seed", flags.plane.seed, "Chooses the victims")->capture_default_str();
  app.add_option(
         "--timeout", flags.timeout_s, "Seconds until a world that does not form is an error")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_option("--json", flags.json, "Write the results to this file as well");
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  CLI::App app(
      "Times a real driver that re-forms a world of fake agents and workers after a loss, and\n"
      "counts the bytes of its orders.",
      "muster-bench-control");
  muster::bench::Flags flags;
  muster::bench::AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : muster::bench::kUsage;
  }
  flags.plane.timeout = std::chrono::seconds(flags.timeout_s);
  muster::bench::BlockInterrupts();
  const muster::Status status = muster::bench::Run(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "muster-bench-control: %s\n", status.message().c_str());
    return 1;
  }
  return 0;
}
