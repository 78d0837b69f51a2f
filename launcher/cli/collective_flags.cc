#include "launcher/cli/collective_flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>

namespace muster::launcher {
namespace {

constexpr uint32_t kCountMax = 1'000'000'000;
constexpr uint32_t kMegabytesMax = 1 << 20;
constexpr uint64_t kBytesMax = uint64_t{kMegabytesMax} << 20;
constexpr double kTimeoutMin = 0.001;
constexpr double kTimeoutMax = 999'999;
constexpr std::string_view kFusion = "--fusion-threshold-mb";
constexpr std::string_view kCpuOperations = "--cpu-operations";
constexpr std::array<std::string_view, 4> kChoices{"auto", "shm", "hierarchical", "gloo"};
constexpr std::array<std::string_view, 2> kOfHorovod{"mpi", "ccl"};

template <class Words>
bool Has(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return text;
}

// The variable is in bytes, as Horovod reads it, and reaches the workers as it is.
void CheckFusionBytes(const std::string& text, TypedValues& typed) {
  uint64_t bytes = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, bytes);
  if (error != std::errc() || stopped != end || bytes > kBytesMax) {
    typed.Refuse(kFusion, "must be a whole number of bytes from 0 to " + std::to_string(kBytesMax));
  }
}

}  // namespace

void ReadCollectives(const FlagValues& values,
                     TypedValues& typed,
                     std::map<std::string, std::string>& variables) {
  const GivenValue* fusion = values.Find(kFusion);
  if (fusion != nullptr && !fusion->environment.empty()) {
    CheckFusionBytes(fusion->values.at(0), typed);
  } else if (const auto megabytes = typed.Count(kFusion, 0, kMegabytesMax)) {
    variables["HOROVOD_FUSION_THRESHOLD"] = std::to_string(uint64_t{*megabytes} << 20);
  }
  [[maybe_unused]] const auto capacity = typed.Count("--cache-capacity", 0, kCountMax);
  [[maybe_unused]] const auto timeout =
      typed.Number("--gloo-timeout-seconds", kTimeoutMin, kTimeoutMax);
  const std::optional<std::string> operations = typed.Text(kCpuOperations);
  if (!operations) {
    return;
  }
  const std::string name = Lower(*operations);
  if (!Has(kChoices, name) && !Has(kOfHorovod, name)) {
    typed.Refuse(kCpuOperations, "must be auto, shm, hierarchical or gloo");
  }
  variables["MUSTER_CPU_OPERATIONS"] = Has(kChoices, name) ? name : "auto";
}

std::string WarnOfCpuOperations(const FlagValues& values) {
  const GivenValue* given = values.Find(kCpuOperations);
  if (given == nullptr || !Has(kOfHorovod, Lower(given->values.at(0)))) {
    return "";
  }
  const std::string shown = given->environment.empty()
                                ? std::string(kCpuOperations) + " " + given->values[0]
                                : given->environment + "=" + given->values[0];
  return shown +
         ": Muster uses neither MPI nor oneCCL; taken as auto, which is shared memory and "
         "Gloo as the hosts allow";
}

std::string_view UnitOf(std::string_view flag, const GivenValue& given) {
  return flag == kFusion && !given.environment.empty() ? " bytes" : "";
}

}  // namespace muster::launcher
