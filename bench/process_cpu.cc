#include "bench/process_cpu.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace muster::bench {

Result<CpuTime> CpuTimeOf(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  const Status gone = Status::Failed("cannot read " + folder + ": has the process ended?");
  std::ifstream file(folder + "/stat");
  std::string text;
  if (!std::getline(file, text) || text.rfind(')') == std::string::npos) {
    return gone;
  }
  // The name, in parentheses, may hold anything; user and system time are fields 14 and 15.
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) {
    fields >> skipped;
  }
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  if (!fields) {
    return gone;
  }
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  CpuTime time{.total_ns = 0,
               .user_s = static_cast<double>(user) / ticks,
               .system_s = static_cast<double>(system) / ticks};
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator(folder + "/task", error)) {
    std::ifstream scheduled(task.path() / "schedstat");
    int64_t running = 0;
    if (scheduled >> running) {
      time.total_ns += running;
    }
  }
  return error ? Result<CpuTime>(gone) : Result<CpuTime>(time);
}

}  // namespace muster::bench
