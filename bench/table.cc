#include "bench/table.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <thread>

#include "bench/sizes.h"

namespace muster::bench {
namespace {

constexpr size_t kCaseWidth = 22;
constexpr size_t kTimeWidth = 10;
constexpr size_t kAlgorithmWidth = 18;
constexpr size_t kRatioWidth = 13;
constexpr const char* kNothing = "-";

std::string Right(const std::string& text, size_t width) {
  return std::string(text.size() < width ? width - text.size() : 1, ' ') + text;
}

std::string RatioText(std::optional<double> ratio) {
  if (!ratio) {
    return kNothing;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", *ratio);
  return text.data();
}

nlohmann::json ToJson(std::optional<double> value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

const Timing* BestOf(const Row& row, Contestant contestant) {
  const Timing* best = nullptr;
  for (const Timing& timing : row.timings) {
    if (timing.contestant == contestant &&
        (best == nullptr || timing.median_us() < best->median_us())) {
      best = &timing;
    }
  }
  return best;
}

std::optional<double> Ratio(const Row& row, const std::vector<Contestant>& others) {
  const Timing* muster = BestOf(row, Contestant::kMuster);
  std::optional<double> smallest;
  for (const Contestant other : others) {
    const Timing* best = BestOf(row, other);
    if (best != nullptr && (!smallest || best->median_us() < *smallest)) {
      smallest = best->median_us();
    }
  }
  if (muster == nullptr || !smallest || *smallest <= 0) {
    return std::nullopt;
  }
  return muster->median_us() / *smallest;
}

std::string CaseText(const Case& measured) {
  return SizeText(measured.bytes) + (measured.pace == Pace::kBackToBack ? ", back to back" : "");
}

std::string TimeText(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value);
  return text.data();
}

std::string TableHead(const std::vector<Contestant>& contestants) {
  std::string head = Right("size", kCaseWidth);
  for (const Contestant contestant : contestants) {
    head += Right(Name(contestant), kTimeWidth);
    if (contestant == Contestant::kGloo) {
      head += Right("gloo's best", kAlgorithmWidth);
    }
  }
  return head + Right("muster/best*", kRatioWidth) + Right("muster/gloo", kRatioWidth);
}

std::string TableLine(const Row& row, const std::vector<Contestant>& contestants) {
  std::string line = Right(CaseText(row.measured), kCaseWidth);
  for (const Contestant contestant : contestants) {
    const Timing* best = BestOf(row, contestant);
    line += Right(best == nullptr ? kNothing : TimeText(best->median_us()), kTimeWidth);
    if (contestant == Contestant::kGloo) {
      line += Right(best == nullptr || best->algorithm.empty() ? kNothing : best->algorithm,
                    kAlgorithmWidth);
    }
  }
  return line + Right(RatioText(Ratio(row, {Contestant::kMpi, Contestant::kShm})), kRatioWidth) +
         Right(RatioText(Ratio(row, {Contestant::kGloo})), kRatioWidth);
}

nlohmann::json ToJson(const Row& row) {
  nlohmann::json timings = nlohmann::json::array();
  for (const Timing& timing : row.timings) {
    timings.push_back({{"contestant", Name(timing.contestant)},
                       {"algorithm", timing.algorithm},
                       {"iterations", timing.times_ns.size()},
                       {"median_us", timing.median_us()},
                       {"min_us", timing.Microseconds(0)},
                       {"p90_us", timing.Microseconds(0.9)},
                       {"max_us", timing.Microseconds(1)}});
  }
  return {
      {"operation", Name(row.measured.operation)},
      {"bytes", row.measured.bytes},
      {"tensors", row.measured.tensors},
      {"back_to_back", row.measured.pace == Pace::kBackToBack},
      {"ranks", row.ranks},
      {"hosts", row.hosts},
      {"timings", timings},
      {"muster_to_best_of_mpi_and_shm", ToJson(Ratio(row, {Contestant::kMpi, Contestant::kShm}))},
      {"muster_to_gloo", ToJson(Ratio(row, {Contestant::kGloo}))}};
}

nlohmann::json MachineJson() {
  utsname system{};
  ::uname(&system);
  return {{"processor", ProcessorName()},
          {"cores", std::thread::hardware_concurrency()},
          {"kernel", std::string(system.sysname) + " " + system.release}};
}

Status WriteJson(const std::string& path, const nlohmann::json& json) {
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished);
  file << json.dump(1) << "\n";
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    return Status::Failed("cannot write " + path);
  }
  return Status::Ok();
}

}  // namespace muster::bench
