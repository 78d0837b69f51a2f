#pragma once

// LineSplitter: makes whole lines of a worker's output. A line ends at \n, \r\n or \r (progress
// bars); each is given out with one \n. An empty line counts only if \n ended it. A line longer
// than kLineBytesMax is cut into pieces, each a line of its own. Pure: no I/O, no thread.

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::launcher {

inline constexpr size_t kLineBytesMax = 64 * 1024;

class LineSplitter {
 public:
  /// Appends the lines that `bytes` completed to `lines`.
  void Feed(std::string_view bytes, std::string& lines);
  /// The stream has ended: completes a last line that had no end.
  void Finish(std::string& lines);

 private:
  void Append(std::string_view text, std::string& lines);
  void EndLine(char terminator, std::string& lines);

  // What the last byte was: a \n that follows a \r ends the same line.
  enum class Return : uint8_t { kNone, kAfterText, kAfterNothing };

  std::string partial_;  // At most kLineBytesMax, without any line end.
  Return return_ = Return::kNone;
};

}  // namespace muster::launcher
