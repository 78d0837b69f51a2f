#include "launcher/cli/why_command.h"

#include <string_view>

#include "discovery/host_list.h"
#include "launcher/cli/argv_rewrite.h"
#include "launcher/cli/flag_values.h"

namespace muster::launcher {
namespace {

constexpr int kUsageError = 2;
constexpr size_t kJobShownMax = 64;

PrintAndExit UsageError(const std::string& message) {
  return {"Usage: muster why [flags] [JOB|PATH]; see muster why --help\nmuster: " + message + "\n",
          kUsageError};
}

std::string Variable(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

}  // namespace

std::string ReadIncidentDirectory(TypedValues& typed, const std::vector<std::string>& environment) {
  if (const std::optional<std::string> given = typed.Text("--incident-dir")) {
    return *given;
  }
  // What is not absolute does not count there, by the specification of these variables.
  const std::string state = Variable(environment, "XDG_STATE_HOME");
  if (state.starts_with('/')) {
    return state + "/muster/jobs";
  }
  const std::string home = Variable(environment, "HOME");
  return home.starts_with('/') ? home + "/.local/state/muster/jobs" : "";
}

Parsed ParseWhy(const std::vector<std::string>& words,
                const std::vector<std::string>& environment) {
  std::vector<std::string> flags;
  std::vector<std::string> jobs;
  // What stops the rewriting is a job; what follows it may be flags again.
  for (std::vector<std::string> rest = words; !rest.empty();) {
    Result<RewrittenArgv> argv = RewriteArgv(rest, WhyFlags());
    if (!argv.ok()) {
      return UsageError(argv.status().message());
    }
    flags.insert(flags.end(), argv.value().flags.begin(), argv.value().flags.end());
    rest = std::move(argv.value().command);
    if (!rest.empty()) {
      jobs.push_back(rest.front());
      rest.erase(rest.begin());
    }
  }
  const Result<FlagValues> values = FlagValues::Parse(flags, environment, WhyFlags());
  if (!values.ok()) {
    return UsageError(values.status().message());
  }
  if (values.value().HasFlag("--help")) {
    return PrintAndExit{HelpText(WhyFlags()), 0};
  }
  if (jobs.size() > 1) {
    return UsageError("one job at a time, not also '" +
                      discovery::Printable(jobs[1], kJobShownMax) + "'");
  }
  TypedValues typed(values.value());
  WhyCommand command;
  command.directory = ReadIncidentDirectory(typed, environment);
  command.job = jobs.empty() ? "" : jobs.front();
  command.json = values.value().Has("--json");
  return typed.status().ok() ? Parsed(std::move(command)) : UsageError(typed.status().message());
}

}  // namespace muster::launcher
