#include "launcher/cli/typed_values.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>

namespace muster::launcher {
namespace {

constexpr int kMicroseconds = 1'000'000;
constexpr std::array<std::string_view, 6> kLogLevels{
    "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += " " + word;
  }
  return text;
}

}  // namespace

std::string ReadLogLevel(TypedValues& typed) {
  std::string level = typed.Text("--log-level").value_or("WARNING");
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  if (std::find(kLogLevels.begin(), kLogLevels.end(), level) == kLogLevels.end()) {
    typed.Refuse("--log-level", "must be TRACE, DEBUG, INFO, WARNING, ERROR or FATAL");
  }
  return level;
}

std::optional<double> ParseNumber(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (text.empty() || error != std::errc() || stopped != end || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

std::string NumberText(double number) {
  std::ostringstream text;
  text.precision(12);
  text << number;
  return text.str();
}

const std::string* TypedValues::FindText(std::string_view name) {
  const GivenValue* given = status_.ok() ? values_.Find(name) : nullptr;
  return given == nullptr ? nullptr : &given->values.at(0);
}

std::optional<std::string> TypedValues::Text(std::string_view name) {
  const std::string* text = FindText(name);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

std::optional<uint32_t> TypedValues::Count(std::string_view name, uint32_t min, uint32_t max) {
  const std::string* text = FindText(name);
  if (text == nullptr) {
    return std::nullopt;
  }
  uint32_t number = 0;
  const char* end = text->data() + text->size();
  const auto [stopped, error] = std::from_chars(text->data(), end, number);
  if (text->empty() || error != std::errc() || stopped != end || number < min || number > max) {
    Refuse(name,
           "must be a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return std::nullopt;
  }
  return number;
}

std::optional<double> TypedValues::Number(std::string_view name, double min, double max) {
  const std::string* text = FindText(name);
  if (text == nullptr) {
    return std::nullopt;
  }
  const std::optional<double> number = ParseNumber(*text);
  if (!number || *number < min || *number > max) {
    Refuse(name, "must be a number from " + NumberText(min) + " to " + NumberText(max));
    return std::nullopt;
  }
  return number;
}

std::optional<Duration> TypedValues::Seconds(std::string_view name, double min, double max) {
  const std::optional<double> number = Number(name, min, max);
  if (!number) {
    return std::nullopt;
  }
  return Duration(std::llround(*number * kMicroseconds));
}

void TypedValues::Refuse(std::string_view name, const std::string& why) {
  if (!status_.ok()) {
    return;
  }
  const GivenValue* given = values_.Find(name);
  const std::string shown(ShownName(*FindFlag(name, values_.table())));
  const std::string values = given == nullptr ? "" : Join(given->values);
  if (given != nullptr && !given->environment.empty()) {
    status_ = Status::Invalid(given->environment + "=" + values.substr(values.empty() ? 0 : 1) +
                              " (the default of " + shown + "): " + why);
    return;
  }
  status_ = Status::Invalid(shown + values + ": " + why);
}

}  // namespace muster::launcher
