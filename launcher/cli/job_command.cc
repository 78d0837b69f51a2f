#include "launcher/cli/job_command.h"

#include <utility>

#include "discovery/host_list.h"
#include "launcher/cli/argv_rewrite.h"

namespace muster::launcher {
namespace {

constexpr int kUsageError = 2;
constexpr size_t kJobShownMax = 64;

}  // namespace

Parsed ParseJobCommand(const JobCommand& command,
                       const std::vector<std::string>& words,
                       const std::vector<std::string>& environment) {
  const auto usage_error = [&command](const std::string& message) {
    return PrintAndExit{"Usage: " + command.usage + "\nmuster: " + message + "\n", kUsageError};
  };
  std::vector<std::string> flags;
  std::vector<std::string> jobs;
  // What stops the rewriting is a job; what follows it may be flags again.
  for (std::vector<std::string> rest = words; !rest.empty();) {
    Result<RewrittenArgv> argv = RewriteArgv(rest, command.flags);
    if (!argv.ok()) {
      return usage_error(argv.status().message());
    }
    flags.insert(flags.end(), argv.value().flags.begin(), argv.value().flags.end());
    rest = std::move(argv.value().command);
    if (!rest.empty()) {
      jobs.push_back(rest.front());
      rest.erase(rest.begin());
    }
  }
  const Result<FlagValues> values = FlagValues::Parse(flags, environment, command.flags);
  if (!values.ok()) {
    return usage_error(values.status().message());
  }
  if (values.value().HasFlag("--help")) {
    return PrintAndExit{HelpText(command.flags), 0};
  }
  if (jobs.size() > 1) {
    return usage_error("one job at a time, not also '" +
                       discovery::Printable(jobs[1], kJobShownMax) + "'");
  }
  Result<Parsed> read = command.read(values.value(), jobs.empty() ? "" : jobs.front());
  return read.ok() ? std::move(read).value() : usage_error(read.status().message());
}

}  // namespace muster::launcher
