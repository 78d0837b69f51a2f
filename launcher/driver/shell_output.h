#pragma once

// ShellOutput: reads what a remote shell says on one of its pipes, line by line, and keeps the end
// of it. These are bytes from outside: lines are cut, and what a terminal could take for an order
// is replaced. It never blocks and never reads more than a little at a time.
//
// Used on the loop thread.

#include <deque>
#include <functional>
#include <string>

#include "common/loop.h"
#include "common/unique_fd.h"
#include "launcher/agent/line_splitter.h"

namespace muster::launcher {

inline constexpr size_t kShellLineBytesMax = 1000;
inline constexpr size_t kLastWordsBytesMax = 400;

class ShellOutput {
 public:
  using Callback = std::function<void(const std::string& line)>;

  /// `loop` outlives it. A line that is empty after cleaning is not given out.
  ShellOutput(Loop& loop, UniqueFd fd, Callback callback);
  ~ShellOutput();
  ShellOutput(const ShellOutput&) = delete;
  ShellOutput& operator=(const ShellOutput&) = delete;

  /// The writer has ended: gives out what is left in the pipe, at most some hundred KiB, and stops,
  /// though something else may hold the pipe open.
  void Finish();

  /// The last lines, whole, joined by "; ", in at most kLastWordsBytesMax bytes. A last line that
  /// is longer is cut.
  std::string last_words() const;

 private:
  bool ReadSome();
  void GiveOut(const std::string& lines);
  void Remember(const std::string& line);
  void Close();

  Loop& loop_;
  UniqueFd fd_;
  const Callback callback_;
  LineSplitter splitter_;
  std::deque<std::string> last_lines_;
  size_t last_bytes_ = 0;
};

}  // namespace muster::launcher
