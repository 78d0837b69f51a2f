#include "launcher/driver/output_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace muster::launcher {
namespace {

// Files may be closed at any time, since they are appended to. With thousands of workers they must
// be: a process may have 1,024 descriptors by default.
constexpr size_t kOpenFilesMax = 256;
constexpr size_t kRememberedMax = 100'000;

Status Trouble(const std::filesystem::path& path, const std::string& why) {
  return Status::Failed("--output-filename: " + path.string() + ": " + why);
}

}  // namespace

OutputFiles::OutputFiles(std::string folder, uint32_t rank_count_max)
    : folder_(std::move(folder)),
      digits_(std::to_string(std::max<uint32_t>(rank_count_max, 1) - 1).size()) {}

Status OutputFiles::Prepare() const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) {
    return Trouble(folder_, error.message());
  }
  if (::access(folder_.c_str(), W_OK | X_OK) != 0) {
    return Trouble(folder_, strerror(errno));
  }
  return Status::Ok();
}

const std::string& OutputFiles::FolderOf(const OutputLines& lines) {
  const auto known = ranked_.find(lines.incarnation);
  if (known != ranked_.end()) {
    return known->second;
  }
  if (lines.rank < 0) {
    unranked_ = "slot." + lines.slot.host.value + "." + std::to_string(lines.slot.index);
    std::replace(unranked_.begin(), unranked_.end(), '/', '_');
    return unranked_;
  }
  if (ranked_.size() >= kRememberedMax) {
    ranked_.erase(ranked_.begin());  // The oldest: incarnations grow.
  }
  const std::string number = std::to_string(lines.rank);
  std::string name = "rank.";
  name.append(digits_ - std::min(digits_, number.size()), '0').append(number);
  return ranked_.emplace(lines.incarnation, std::move(name)).first->second;
}

Result<int> OutputFiles::Open(const OutputLines& lines) {
  const std::string& name = FolderOf(lines);
  const auto known = open_.find({name, lines.is_stderr});
  if (known != open_.end()) {
    return known->second.get();
  }
  if (open_.size() >= kOpenFilesMax) {
    open_.clear();
  }
  const std::filesystem::path folder = std::filesystem::path(folder_) / name;
  const std::filesystem::path path = folder / (lines.is_stderr ? "stderr" : "stdout");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) {
    return Trouble(path, strerror(errno));
  }
  return open_.emplace(std::pair(name, lines.is_stderr), std::move(fd)).first->second.get();
}

Status OutputFiles::Append(const OutputLines& lines) {
  const Result<int> fd = Open(lines);
  if (!fd.ok()) {
    return fd.status();
  }
  std::string_view text = lines.lines;
  while (!text.empty()) {
    const ssize_t size = ::write(fd.value(), text.data(), text.size());
    if (size < 0 && errno != EINTR) {
      return Trouble(folder_, strerror(errno));
    }
    text.remove_prefix(size < 0 ? 0 : static_cast<size_t>(size));
  }
  return Status::Ok();
}

}  // namespace muster::launcher
