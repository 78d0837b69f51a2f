// argv and the environment of `muster`: words between line ends, and what stands behind the first
// empty line is the environment.

#include <string>
#include <vector>

#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "launcher/cli/options.h"

namespace {

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

void CheckOptions(const muster::launcher::RunOptions& options) {
  MUSTER_CHECK(!options.command.empty(), "something to run");
  const int sources = static_cast<int>(!options.script.empty()) +
                      static_cast<int>(!options.hosts.empty()) +
                      static_cast<int>(!options.hostfile.empty());
  MUSTER_CHECK(sources <= 1, "one source of hosts at the most");
  const auto& membership = options.membership;
  MUSTER_CHECK(membership.np_min >= 1 && membership.np_min <= membership.np_start, "bounds of np");
  MUSTER_CHECK(!membership.np_max || *membership.np_max >= membership.np_start, "bounds of np");
  MUSTER_CHECK(options.discovery_interval.count() > 0, "no busy loop of discovery");
}

void CheckExit(const muster::launcher::PrintAndExit& exit) {
  MUSTER_CHECK(exit.code == 0 || exit.code == 2, "shown, or a usage error");
  MUSTER_CHECK(exit.text.ends_with('\n'), exit.text);
  if (exit.code == 2) {
    const size_t end = exit.text.size() - 1;
    const size_t begin = end == 0 ? std::string::npos : exit.text.rfind('\n', end - 1);
    const std::string last = exit.text.substr(begin == std::string::npos ? 0 : begin + 1);
    MUSTER_CHECK(last.starts_with("muster: "), exit.text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = muster::fuzz::View(data, size);
  const size_t empty_line = text.find("\n\n");
  std::vector<std::string> argv = Lines(text.substr(0, empty_line));
  argv.insert(argv.begin(), "horovodrun");
  const std::vector<std::string> environment = empty_line == std::string_view::npos
                                                   ? std::vector<std::string>()
                                                   : Lines(text.substr(empty_line + 2));
  for (const char* program : {"horovodrun", "muster"}) {
    argv[0] = program;
    const auto parsed = muster::launcher::ParseCommandLine(argv, environment);
    if (const auto* options = std::get_if<muster::launcher::RunOptions>(&parsed)) {
      CheckOptions(*options);
    } else if (const auto* exit = std::get_if<muster::launcher::PrintAndExit>(&parsed)) {
      CheckExit(*exit);
    }
  }
  return 0;
}
