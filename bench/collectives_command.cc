// muster-bench collectives: time against size, all contestants side by side.

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/commands.h"
#include "bench/common_flags.h"
#include "bench/sizes.h"
#include "bench/table.h"

namespace muster::bench {
namespace {

struct Flags {
  CommonFlags common{.ranks = {1, 2, 4, 8}, .contestants = ContestantNames()};
  std::string sizes = "4..256MiB";
  std::vector<std::string> operations = {"allreduce"};
  int hosts = 1;
  size_t back_to_back_max = 4096;
  size_t offset = 16;
};

class Collectives {
 public:
  Collectives(const Flags& flags, std::vector<size_t> sizes)
      : flags_(flags),
        sizes_(std::move(sizes)),
        contestants_(flags.common.ToContestants()),
        plan_(flags.common.ToPlan()) {
    plan_.offset = flags.offset;
    json_ = {{"command", "collectives"},
             {"machine", MachineJson()},
             {"rounds", plan_.rounds},
             {"offset", plan_.offset},
             {"results", nlohmann::json::array()}};
  }

  Status Run() {
    for (const int ranks : flags_.common.ranks) {
      Status status = RunRanks(ranks);
      if (!status.ok()) {
        return status;
      }
    }
    Print("\n* of mpi and shm, the bare chunked loop over shared memory.");
    return Status::Ok();
  }

 private:
  Status RunRanks(int ranks) {
    Result<std::unique_ptr<Field>> field = Field::Start(
        contestants_, flags_.common.ToLaunch(ranks, flags_.hosts), plan_, progress_.Callback());
    progress_.Clear();
    if (!field.ok()) {
      return field.status();
    }
    for (const std::string& name : flags_.operations) {
      Status status = RunOperation(*field.value(), ParseOperation(name).value(), ranks);
      if (!status.ok()) {
        return status;
      }
    }
    return Status::Ok();
  }

  Status RunOperation(const Field& field, Operation operation, int ranks) {
    Print("\n" + Name(operation) + ", " + std::to_string(ranks) + " ranks, " +
          std::to_string(flags_.hosts) + (flags_.hosts == 1 ? " host" : " hosts") +
          ": median microseconds over " + std::to_string(plan_.rounds) + " rounds");
    PrintAbsent(field);
    Print(TableHead(contestants_));
    for (const size_t bytes : sizes_) {
      for (const Pace pace : {Pace::kBarrier, Pace::kBackToBack}) {
        if (pace == Pace::kBackToBack && bytes > flags_.back_to_back_max) {
          continue;
        }
        Status status =
            RunCase(field, {.operation = operation, .bytes = bytes, .pace = pace}, ranks);
        if (!status.ok()) {
          return status;
        }
      }
    }
    return Status::Ok();
  }

  Status RunCase(const Field& field, const Case& measured, int ranks) {
    Result<std::vector<Timing>> timings =
        Measure(measured,
                field.EntrantsFor(measured.operation, measured.pace),
                plan_,
                progress_.Callback());
    progress_.Clear();
    if (!timings.ok()) {
      return timings.status();
    }
    const Row row{.measured = measured,
                  .ranks = ranks,
                  .hosts = flags_.hosts,
                  .timings = std::move(timings).value()};
    Print(TableLine(row, contestants_));
    // After each row: a long run that is cut short leaves what it has.
    json_["results"].push_back(ToJson(row));
    return flags_.common.json.empty() ? Status::Ok() : WriteJson(flags_.common.json, json_);
  }

  const Flags& flags_;
  const std::vector<size_t> sizes_;
  const std::vector<Contestant> contestants_;
  Plan plan_;
  nlohmann::json json_;
  ProgressLine progress_;
};

}  // namespace

Command AddCollectives(CLI::App& app) {
  auto flags = std::make_shared<Flags>();  // The command line and the command both need it.
  CLI::App* command = app.add_subcommand(
      "collectives",
      "Times collectives of Muster, raw Gloo (the best of its algorithms), Open MPI and a bare\n"
      "loop over shared memory, which take turns within one run. Results are verified.");
  flags->common.Add(*command);
  command
      ->add_option("--sizes",
                   flags->sizes,
                   "Bytes per tensor: a list of sizes and of ranges in steps of 4 times")
      ->capture_default_str();
  command->add_option("--ops", flags->operations, "Operations")
      ->delimiter(',')
      ->check(CLI::IsMember(OperationNames()))
      ->capture_default_str();
  command
      ->add_option("--hosts",
                   flags->hosts,
                   "2: Muster's ranks on two hosts, both this machine, joined by TCP")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  command
      ->add_option("--back-to-back",
                   flags->back_to_back_max,
                   "Up to this size also without a barrier between iterations; 0: never")
      ->capture_default_str();
  command
      ->add_option("--offset",
                   flags->offset,
                   "Bytes of each tensor from the start of a page; malloc gives 16")
      ->check(CLI::IsMember({0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}))
      ->capture_default_str();
  return [flags]() -> Status {
    Result<std::vector<size_t>> sizes = ParseSizes(flags->sizes);
    if (!sizes.ok()) {
      return sizes.status();
    }
    return Collectives(*flags, std::move(sizes).value()).Run();
  };
}

}  // namespace muster::bench
