#include "bench/sizes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>

namespace muster::bench {
namespace {

constexpr uint64_t kBytesMax = 4ULL << 30;
constexpr size_t kSizesMax = 100;
constexpr size_t kStep = 4;

struct Unit {
  const char* name;
  int shift;
};
constexpr std::array<Unit, 8> kUnits = {
    {{"", 0}, {"B", 0}, {"K", 10}, {"KiB", 10}, {"M", 20}, {"MiB", 20}, {"G", 30}, {"GiB", 30}}};

Result<size_t> ParseSize(const std::string& text) {
  uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(rest, text.data() + text.size());
  for (const Unit& known : kUnits) {
    if (error != std::errc() || unit != known.name) {
      continue;
    }
    if (number == 0 || number > kBytesMax >> known.shift) {
      return Status::Invalid("a size of " + text + " is out of range (4 bytes to 4 GiB)");
    }
    if ((number << known.shift) % sizeof(float) != 0) {
      return Status::Invalid("a size of " + text + " is not a multiple of 4 bytes, one float");
    }
    return static_cast<size_t>(number << known.shift);
  }
  return Status::Invalid("'" + text + "' is no size; say 4, 64KiB, 16MiB or 4..256MiB");
}

Status AppendRange(const std::string& from, const std::string& to, std::vector<size_t>& sizes) {
  const Result<size_t> first = ParseSize(from);
  if (!first.ok()) {
    return first.status();
  }
  const Result<size_t> last = ParseSize(to);
  if (!last.ok()) {
    return last.status();
  }
  if (last.value() < first.value()) {
    return Status::Invalid("the range " + from + ".." + to + " is empty");
  }
  for (size_t size = first.value(); size <= last.value(); size *= kStep) {
    sizes.push_back(size);
  }
  return Status::Ok();
}

}  // namespace

Result<std::vector<size_t>> ParseSizes(const std::string& text) {
  std::vector<size_t> sizes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t dots = item.find("..");
    const Status status = dots == std::string::npos
                              ? AppendRange(item, item, sizes)
                              : AppendRange(item.substr(0, dots), item.substr(dots + 2), sizes);
    if (!status.ok()) {
      return status;
    }
    begin = end + 1;
  }
  if (sizes.size() > kSizesMax) {
    return Status::Invalid("more than " + std::to_string(kSizesMax) + " sizes");
  }
  return sizes;
}

std::string SizeText(size_t bytes) {
  int unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  constexpr std::array<const char*, 4> kNames = {"B", "KiB", "MiB", "GiB"};
  std::snprintf(text.data(), text.size(), "%.4g %s", value, kNames.at(static_cast<size_t>(unit)));
  return text.data();
}

}  // namespace muster::bench
