#include "discovery/hostfile_host_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/unique_fd.h"

namespace muster::discovery {
namespace {

constexpr size_t kReadBytes = 16384;

Status CannotRead(const std::string& path, const std::string& why) {
  return Status::Failed("cannot read the hostfile " + path + ": " + why);
}

// O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
Result<UniqueFd> Open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    return CannotRead(path, strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return CannotRead(path,
                      "not a regular file; it is read again and again, so a pipe will not do");
  }
  return fd;
}

// One byte over the bound is enough for the parser to refuse the rest.
Result<std::string> Read(const std::string& path) {
  Result<UniqueFd> fd = Open(path);
  if (!fd.ok()) {
    return fd.status();
  }
  std::string text;
  while (text.size() <= kHostListBytesMax) {
    char buffer[kReadBytes];
    const ssize_t size = ::read(fd.value().get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size < 0) {
      return CannotRead(path, strerror(errno));
    }
    if (size == 0) {
      break;
    }
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

}  // namespace

HostfileHostSource::HostfileHostSource(std::string path, DefaultSlots default_slots)
    : path_(std::move(path)), default_slots_(default_slots) {}

Result<HostList> HostfileHostSource::Poll() {
  if (cancelled_) {
    return Status(StatusCode::kAborted, "cancelled");
  }
  const Result<std::string> text = Read(path_);
  if (!text.ok()) {
    return text.status();
  }
  return ParseHostfile(text.value(), path_, default_slots_);
}

}  // namespace muster::discovery
