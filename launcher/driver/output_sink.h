#pragma once

// OutputSink: writes text to a descriptor of somebody else (a terminal, a pipe, a socket, a file)
// without ever being stuck in write(2), and without changing its file status: O_NONBLOCK there
// would reach the shell and everybody else who shares it. So pipes and terminals are opened anew
// through /proc, sockets are sent to, and where that is not allowed only as much is written as a
// pollable pipe takes at once.
//
// Thread contract: one thread. SIGPIPE must be blocked or ignored there.

#include <functional>
#include <string_view>

#include "common/unique_fd.h"

namespace muster::launcher {

class OutputSink {
 public:
  /// Waits until the descriptor can be written or has an error; false: give up.
  using Wait = std::function<bool(int fd)>;

  /// `fd` stays open as long as the sink; it is not closed by it.
  explicit OutputSink(int fd);

  /// Whole lines of `text` go out in single writes as far as the other side takes them. Returns
  /// early when `wait` gives up, and when the other side is closed: then it says why, once, in
  /// errno's numbers; all later text is dropped.
  int Write(std::string_view text, const Wait& wait);

  bool closed() const { return closed_; }

 private:
  enum class Kind : unsigned char { kFile, kNonBlocking, kSocket, kBlocking };

  ssize_t WriteOnce(std::string_view text);

  int fd_;
  UniqueFd own_;
  Kind kind_ = Kind::kFile;
  bool closed_ = false;
};

}  // namespace muster::launcher
