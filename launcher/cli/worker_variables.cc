#include "launcher/cli/worker_variables.h"

#include <cstdint>

#include "common/address.h"
#include "launcher/cli/collective_flags.h"

namespace muster::launcher {
namespace {

constexpr double kNumberMax = 1e9;
constexpr uint32_t kCountMax = 1'000'000'000;

void CheckNumbers(TypedValues& typed) {
  for (const char* name : {"--autotune-warmup-samples",
                           "--autotune-steps-per-sample",
                           "--autotune-bayes-opt-max-samples",
                           "--num-nccl-streams"}) {
    [[maybe_unused]] const auto checked = typed.Count(name, 0, kCountMax);
  }
  [[maybe_unused]] const auto cycle = typed.Number("--cycle-time-ms", 0, kNumberMax);
  [[maybe_unused]] const auto noise = typed.Number("--autotune-gaussian-process-noise", 0, 1);
}

// Names only: the libraries that read these know no addresses there.
void SetInterfaces(const std::vector<std::string>& interfaces,
                   std::map<std::string, std::string>& variables) {
  std::string names;
  for (const std::string& candidate : interfaces) {
    if (FamilyOf(candidate) == 0) {
      names += (names.empty() ? "" : ",") + candidate;
    }
  }
  variables.erase("HOROVOD_GLOO_IFACE");
  if (!names.empty()) {
    variables["NCCL_SOCKET_IFNAME"] = names;
    variables["HOROVOD_GLOO_IFACE"] = names.substr(0, names.find(','));
  }
}

}  // namespace

std::map<std::string, std::string> WorkerVariables(const FlagValues& values,
                                                   const std::vector<std::string>& interfaces,
                                                   TypedValues& typed) {
  std::map<std::string, std::string> variables;
  for (const Flag& flag : AllFlags()) {
    if (flag.worker_variable.empty() || !values.HasFlag(LongName(flag))) {
      continue;
    }
    const GivenValue& given = *values.Find(LongName(flag));
    variables[std::string(flag.worker_variable)] =
        given.values.empty() ? std::string(flag.worker_value) : given.values[0];
  }
  CheckNumbers(typed);
  ReadCollectives(values, typed, variables);
  if (values.HasFlag("--gloo")) {
    variables["HOROVOD_CPU_OPERATIONS"] = "gloo";
  }
  SetInterfaces(interfaces, variables);
  if (!values.HasFlag("--autotune")) {
    variables.erase("HOROVOD_AUTOTUNE_LOG");
  }
  if (!values.HasFlag("--timeline-filename")) {
    variables.erase("HOROVOD_TIMELINE_MARK_CYCLES");
  }
  return variables;
}

}  // namespace muster::launcher
