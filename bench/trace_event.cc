#include "bench/trace_event.h"

#include <nlohmann/json.hpp>

namespace muster::bench {

Result<TraceEvent> ParseTraceEvent(std::string_view line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  try {
    TraceEvent event{
        .kind = json.at("event"),
        .t_ns = json.at("t_ns"),
        .generation = json.value("generation", uint64_t{0}),
        .incarnation = json.value("incarnation", uint64_t{0}),
        .pid = json.at("pid"),
        .rank = json.value("rank", -1),
        .size = json.value("size", 0),
        .signal = json.value("signal", 0),
        .cause = json.value("cause", std::string()),
    };
    return event;
  } catch (const nlohmann::json::exception& error) {
    return Status::Failed("a line of the trace is none: " + std::string(line) + ": " +
                          error.what());
  }
}

}  // namespace muster::bench
