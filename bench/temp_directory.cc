#include "bench/temp_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace muster::bench {

Result<TempDirectory> TempDirectory::Make() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base == nullptr || *base == '\0' ? "/tmp" : base);
  path += "/muster-bench-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return Status::Failed("cannot make a folder " + path + ": " + std::strerror(errno));
  }
  return TempDirectory(std::move(path));
}

TempDirectory::~TempDirectory() {
  if (!path_.empty()) {
    std::error_code ignored;  // What is left there holds no data of anybody's.
    std::filesystem::remove_all(path_, ignored);
  }
}

}  // namespace muster::bench
