#pragma once

// A folder under $TMPDIR, or /tmp, that is removed with all it holds. One owner.

#include <string>
#include <utility>

#include "common/status.h"

namespace muster::bench {

class TempDirectory {
 public:
  static Result<TempDirectory> Make();
  TempDirectory(TempDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TempDirectory& operator=(TempDirectory&&) = delete;
  ~TempDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit TempDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace muster::bench
