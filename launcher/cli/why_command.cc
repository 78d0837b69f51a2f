#include "launcher/cli/why_command.h"

#include <string_view>
#include <utility>

#include "launcher/cli/flag_values.h"
#include "launcher/cli/job_command.h"

namespace muster::launcher {
namespace {

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
  const auto read = [&environment](const FlagValues& values,
                                   const std::string& job) -> Result<Parsed> {
    TypedValues typed(values);
    WhyCommand command;
    command.directory = ReadIncidentDirectory(typed, environment);
    command.job = job;
    command.json = values.Has("--json");
    return typed.status().ok() ? Result(Parsed(std::move(command))) : typed.status();
  };
  return ParseJobCommand({WhyFlags(), "muster why [flags] [JOB|PATH]; see muster why --help", read},
                         words,
                         environment);
}

}  // namespace muster::launcher
