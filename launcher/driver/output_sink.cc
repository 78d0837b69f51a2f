#include "launcher/driver/output_sink.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace muster::launcher {
namespace {

// As many whole lines as fit into PIPE_BUF, which a pipe takes all or nothing, so that writers to
// the same pipe do not cut into each other's lines; else one line, however long.
size_t NextPiece(std::string_view text) {
  if (text.size() <= PIPE_BUF) {
    return text.size();
  }
  const size_t last = text.rfind('\n', PIPE_BUF - 1);
  const size_t newline = last != std::string_view::npos ? last : text.find('\n');
  return newline == std::string_view::npos ? text.size() : newline + 1;
}

}  // namespace

OutputSink::OutputSink(int fd) : fd_(fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) {
    return;
  }
  if (S_ISSOCK(info.st_mode)) {
    kind_ = Kind::kSocket;
    return;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  own_.Reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  kind_ = own_.valid() ? Kind::kNonBlocking : Kind::kBlocking;
  if (own_.valid()) {
    fd_ = own_.get();
  }
}

ssize_t OutputSink::WriteOnce(std::string_view text) {
  if (kind_ == Kind::kSocket) {
    return ::send(fd_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (kind_ == Kind::kBlocking) {
    text = text.substr(0, PIPE_BUF);
  }
  return ::write(fd_, text.data(), text.size());
}

int OutputSink::Write(std::string_view text, const Wait& wait) {
  while (!closed_ && !text.empty()) {
    if (kind_ == Kind::kBlocking && !wait(fd_)) {
      return 0;
    }
    const ssize_t size = WriteOnce(text.substr(0, NextPiece(text)));
    if (size >= 0) {
      text.remove_prefix(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      if (!wait(fd_)) {
        return 0;
      }
    } else if (errno != EINTR) {
      closed_ = true;
      return errno;
    }
  }
  return 0;
}

}  // namespace muster::launcher
