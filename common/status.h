#pragma once

// Status and Result<T>: how failure crosses a module border. A code exists only
// where a caller acts on it; everything else is kFailed with a sentence that says
// what, who, and what to do.

#include <optional>
#include <string>
#include <utility>

#include "common/check.h"

namespace muster {

enum class StatusCode : unsigned char {
  kOk,
  kFailed,       // Report the message; nothing else to do.
  kInvalid,      // Bad input (usage, bytes from outside): exit code 2 at the command line.
  kUnavailable,  // May work later: retry with back-off.
  kTimeout,      // The deadline passed.
  kAborted,      // The generation was revoked: WorkersLost at the API.
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }
  static Status Failed(std::string message) { return {StatusCode::kFailed, std::move(message)}; }
  static Status Invalid(std::string message) { return {StatusCode::kInvalid, std::move(message)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

/// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    MUSTER_CHECK(!status_.ok(), "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  const T& value() const& {
    MUSTER_CHECK(ok(), status_.message());
    return *value_;
  }
  T& value() & {
    MUSTER_CHECK(ok(), status_.message());
    return *value_;
  }
  T&& value() && {
    MUSTER_CHECK(ok(), status_.message());
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace muster
