#include "launcher/incident/record_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <vector>

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "incidents.jsonl";
constexpr mode_t kFolderMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr off_t kRecordBytesMax = 64 << 20;

Status Trouble(const fs::path& path, int error) {
  return Status::Failed(path.string() + ": " + strerror(error));
}

Status MakeFolders(const fs::path& path) {
  fs::path folder;
  for (const fs::path& part : path) {
    folder /= part;
    if (!part.empty() && ::mkdir(folder.c_str(), kFolderMode) != 0 && errno != EEXIST &&
        errno != EISDIR && ::access(folder.c_str(), F_OK) != 0) {
      return Trouble(folder, errno);
    }
  }
  return Status::Ok();
}

struct Found {
  timespec started{};  // A folder changes only when its file is made.
  std::string job;
};

// The newest first.
std::vector<Found> ListJobs(const std::string& directory) {
  std::vector<Found> jobs;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat info {};
    if (::stat(entry->path().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
        ::access((entry->path() / kFile).c_str(), F_OK) == 0) {
      jobs.push_back({info.st_mtim, entry->path().filename().string()});
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const Found& a, const Found& b) {
    return std::tie(b.started.tv_sec, b.started.tv_nsec, b.job) <
           std::tie(a.started.tv_sec, a.started.tv_nsec, a.job);
  });
  return jobs;
}

bool IsFile(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

Result<UniqueFd> CreateRecord(const std::string& directory, const std::string& job) {
  const fs::path folder = fs::path(directory) / job;
  if (Status made = MakeFolders(folder); !made.ok()) {
    return made;
  }
  const fs::path path = folder / kFile;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kFileMode));
  if (!fd.valid()) {
    return Trouble(path, errno);
  }
  // Where locks do not work the record is as good; DriverOf then says that it does not know.
  ::flock(fd.get(), LOCK_EX | LOCK_NB);
  return fd;
}

void RemoveOldRecords(const std::string& directory, size_t kept) {
  const std::vector<Found> jobs = ListJobs(directory);
  for (size_t i = kept; i < jobs.size(); ++i) {
    const fs::path folder = fs::path(directory) / jobs[i].job;
    if (DriverOf((folder / kFile).string()) == DriverState::kGone) {
      ::unlink((folder / kFile).c_str());
      ::rmdir(folder.c_str());
    }
  }
}

Result<std::string> FindRecord(const std::string& directory, const std::string& job) {
  if (job.find('/') != std::string::npos) {
    const fs::path inside = fs::path(job) / kFile;
    if (IsFile(inside)) {
      return inside.string();
    }
    return IsFile(job) ? Result(job) : Result<std::string>(Status::Invalid("no record at " + job));
  }
  const std::vector<Found> jobs = ListJobs(directory);
  if (jobs.empty()) {
    return Status::Invalid("no records of jobs in " + directory +
                           "; --incident-dir says where they are");
  }
  std::vector<std::string> matches;
  for (const Found& found : jobs) {
    if (found.job == job) {
      matches = {job};
      break;
    }
    if (found.job.starts_with(job)) {
      matches.push_back(found.job);
    }
  }
  if (matches.empty()) {
    return Status::Invalid("no job " + job + " in " + directory + "; the newest of the " +
                           std::to_string(jobs.size()) + " there is " + jobs.front().job);
  }
  if (!job.empty() && matches.size() > 1) {
    return Status::Invalid(job + " is the beginning of " + std::to_string(matches.size()) +
                           " jobs: " + matches[0] + ", " + matches[1]);
  }
  return (fs::path(directory) / matches.front() / kFile).string();
}

DriverState DriverOf(const std::string& record) {
  const UniqueFd fd(::open(record.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return DriverState::kUnknown;
  }
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) {
    return DriverState::kGone;
  }
  return errno == EWOULDBLOCK ? DriverState::kRuns : DriverState::kUnknown;
}

Result<std::string> ReadRecord(const std::string& record) {
  const UniqueFd fd(::open(record.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    return Trouble(record, errno);
  }
  if (info.st_size > kRecordBytesMax) {
    return Status::Invalid(record + ": too large for a record");
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t size = ::read(fd.get(), text.data() + have, text.size() - have);
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size < 0) {
      return Trouble(record, errno);
    }
    if (size == 0) {
      break;
    }
    have += static_cast<size_t>(size);
  }
  text.resize(have);
  return text;
}

}  // namespace muster::launcher
