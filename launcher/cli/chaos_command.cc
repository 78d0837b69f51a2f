#include "launcher/cli/chaos_command.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "discovery/host_list.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/job_command.h"
#include "launcher/cli/why_command.h"

namespace muster::launcher {
namespace {

constexpr size_t kShownMax = 64;
constexpr uint32_t kWeightMax = 1'000'000;
constexpr double kEverySecondsMin = 0.01;
constexpr double kSecondsMax = 3600;
// A worker that is stopped for a second counts as lost: that is what the kind "stop" is for.
constexpr double kPauseSecondsMax = 0.9;
constexpr double kMinutesMax = 60.0 * 24 * 365;
constexpr int64_t kMicrosecondsPerMinute = 60'000'000;

Result<ChaosKind> ParseKind(std::string_view text) {
  ChaosKind kind;
  const size_t colon = text.find(':');
  kind.name = text.substr(0, colon);
  if (!IsChaosName(kind.name)) {
    return Status::Invalid("'" + discovery::Printable(kind.name, kShownMax) +
                           "' is not the name of a kind: small letters, digits, - and _");
  }
  if (colon != std::string_view::npos) {
    const std::string_view weight = text.substr(colon + 1);
    const char* end = weight.data() + weight.size();
    const auto [stopped, error] = std::from_chars(weight.data(), end, kind.weight);
    if (weight.empty() || error != std::errc() || stopped != end || kind.weight < 1 ||
        kind.weight > kWeightMax) {
      return Status::Invalid("the weight of " + kind.name + " must be a whole number from 1 to " +
                             std::to_string(kWeightMax));
    }
  }
  return kind;
}

Result<ChaosOptions> ReadOptions(const FlagValues& values,
                                 const std::vector<std::string>& environment) {
  TypedValues typed(values);
  ChaosOptions options;
  if (const auto kinds = typed.Text("--kinds")) {
    Result<std::vector<ChaosKind>> parsed = ParseChaosKinds(*kinds);
    if (!parsed.ok()) {
      typed.Refuse("--kinds", parsed.status().message());
    } else {
      options.kinds = std::move(parsed).value();
    }
  }
  options.every = typed.Seconds("--every", kEverySecondsMin, kSecondsMax).value_or(options.every);
  if (const auto minutes = typed.Number("--minutes", 0, kMinutesMax)) {
    options.length = Duration(static_cast<int64_t>(*minutes * kMicrosecondsPerMinute));
  }
  options.count = typed.Count("--count", 1, UINT32_MAX).value_or(options.count);
  options.seed = typed.Count("--seed", 0, UINT32_MAX);
  options.pause_max = typed.Seconds("--pause-max", 0, kPauseSecondsMax).value_or(options.pause_max);
  options.hook_max = typed.Seconds("--hook-max", 0, kSecondsMax).value_or(options.hook_max);
  options.kept = typed.Count("--keep", 1, UINT32_MAX).value_or(options.kept);
  options.hook_directory = typed.Text("--hook-dir").value_or("");
  options.log_file = typed.Text("--log").value_or("");
  options.incident_directory = ReadIncidentDirectory(typed, environment);
  options.dry_run = values.Has("--dry-run");
  return typed.status().ok() ? Result(std::move(options)) : typed.status();
}

}  // namespace

const std::vector<ChaosKind>& BuiltInChaos() {
  static const std::vector<ChaosKind> kKinds{
      {"kill", 6}, {"pause", 4}, {"stop", 1}, {"agent", 1}, {"reaper", 1}, {"descriptors", 1}};
  return kKinds;
}

bool IsBuiltInChaos(const std::string& name) {
  const std::vector<ChaosKind>& kinds = BuiltInChaos();
  return std::any_of(
      kinds.begin(), kinds.end(), [&name](const ChaosKind& kind) { return kind.name == name; });
}

bool IsChaosName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Result<std::vector<ChaosKind>> ParseChaosKinds(std::string_view text) {
  std::vector<ChaosKind> kinds;
  while (true) {
    const size_t comma = text.find(',');
    Result<ChaosKind> kind = ParseKind(text.substr(0, comma));
    if (!kind.ok()) {
      return kind.status();
    }
    for (const ChaosKind& other : kinds) {
      if (other.name == kind.value().name) {
        return Status::Invalid(other.name + " stands there twice");
      }
    }
    kinds.push_back(std::move(kind).value());
    if (comma == std::string_view::npos) {
      return kinds;
    }
    text.remove_prefix(comma + 1);
  }
}

Parsed ParseChaos(const std::vector<std::string>& words,
                  const std::vector<std::string>& environment) {
  const auto read = [&environment](const FlagValues& values,
                                   const std::string& job) -> Result<Parsed> {
    Result<ChaosOptions> options = ReadOptions(values, environment);
    if (!options.ok()) {
      return options.status();
    }
    options.value().job = job;
    return Parsed(std::move(options).value());
  };
  return ParseJobCommand(
      {ChaosFlags(), "muster chaos [flags] [JOB]; see muster chaos --help", read},
      words,
      environment);
}

}  // namespace muster::launcher
