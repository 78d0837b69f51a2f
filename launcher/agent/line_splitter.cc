#include "launcher/agent/line_splitter.h"

#include <algorithm>

namespace muster::launcher {

void LineSplitter::Feed(std::string_view bytes, std::string& lines) {
  while (!bytes.empty()) {
    const size_t end = bytes.find_first_of("\r\n");
    Append(bytes.substr(0, end), lines);
    if (end == std::string_view::npos) {
      return;
    }
    EndLine(bytes[end], lines);
    bytes.remove_prefix(end + 1);
  }
}

void LineSplitter::EndLine(char terminator, std::string& lines) {
  const bool second_half = terminator == '\n' && return_ == Return::kAfterText;
  const bool counts = !partial_.empty() || (terminator == '\n' && !second_half);
  if (counts) {
    lines += partial_;
    lines += '\n';
  }
  return_ = terminator == '\n' ? Return::kNone
            : partial_.empty() ? Return::kAfterNothing
                               : Return::kAfterText;
  partial_.clear();
}

void LineSplitter::Finish(std::string& lines) {
  if (!partial_.empty()) {
    lines += partial_;
    lines += '\n';
    partial_.clear();
  }
}

void LineSplitter::Append(std::string_view text, std::string& lines) {
  if (!text.empty()) {
    return_ = Return::kNone;
  }
  while (partial_.size() + text.size() > kLineBytesMax) {
    const size_t room = kLineBytesMax - partial_.size();
    partial_ += text.substr(0, room);
    text.remove_prefix(room);
    lines += partial_;
    lines += '\n';
    partial_.clear();
  }
  partial_ += text;
}

}  // namespace muster::launcher
