#include "common/trace.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

namespace muster {

Trace::Trace(const std::string& path) {
  if (path.empty()) {
    return;
  }
  fd_.Reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_.valid()) {
    spdlog::error(
        "MUSTER_TRACE={} cannot be opened ({}); no trace is written", path, strerror(errno));
  }
}

void Trace::Write(const char* event, nlohmann::json fields) const {
  if (!enabled()) {
    return;
  }
  const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
  fields["t_ns"] = std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot).count();
  fields["event"] = event;
  fields["pid"] = ::getpid();
  const std::string line =
      fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // A full disk costs trace lines, never the job.
  [[maybe_unused]] const ssize_t size = ::write(fd_.get(), line.data(), line.size());
}

}  // namespace muster
