#include "common/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <utility>

#include "common/log_sink.h"

namespace muster {
namespace {

constexpr std::array<std::pair<const char*, spdlog::level::level_enum>, 7> kLevels{{
    {"", spdlog::level::warn},
    {"trace", spdlog::level::trace},
    {"debug", spdlog::level::debug},
    {"info", spdlog::level::info},
    {"warning", spdlog::level::warn},
    {"error", spdlog::level::err},
    {"fatal", spdlog::level::critical},
}};

}  // namespace

Status InitLog(const std::string& who, const std::string& level) {
  std::string lower = level;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  const auto* found = std::find_if(
      kLevels.begin(), kLevels.end(), [&](const auto& entry) { return lower == entry.first; });
  if (found == kLevels.end()) {
    return Status::Invalid("log level '" + level +
                           "' is none of TRACE, DEBUG, INFO, WARNING, ERROR, FATAL");
  }
  auto logger = std::make_shared<spdlog::logger>(who, std::make_shared<LogSink>(STDERR_FILENO));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %L muster %n: %v");
  logger->set_level(found->second);
  spdlog::set_default_logger(std::move(logger));
  return Status::Ok();
}

}  // namespace muster
