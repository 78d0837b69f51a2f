#include "launcher/driver/shell_output.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

namespace muster::launcher {
namespace {

constexpr size_t kReadBytes = 4096;
constexpr int kReadsAtTheEndMax = 64;  // More than a pipe holds.
constexpr std::string_view kJoint = "; ";
constexpr std::string_view kCut = "...";

// At most `size` bytes, without half a character of UTF-8 at the end.
std::string Cut(const std::string& text, size_t size) {
  if (text.size() <= size) {
    return text;
  }
  size -= kCut.size();
  while (size > 0 && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) {
    --size;
  }
  return text.substr(0, size).append(kCut);
}

// Besides the control characters of ASCII a terminal obeys U+0080 to U+009F, as one byte or as the
// two of UTF-8 (0xC2 and the same).
std::string Cleaned(std::string line) {
  bool inside = false;  // A character of several bytes.
  for (size_t i = 0; i < line.size(); ++i) {
    const auto byte = static_cast<uint8_t>(line[i]);
    const bool upper = byte >= 0x80 && byte < 0xA0;
    if (upper && i > 0 && line[i - 1] == '\xC2') {
      line[i - 1] = line[i] = '?';
    } else if (byte < ' ' || byte == 0x7F || (upper && !inside)) {
      line[i] = byte == '\t' ? ' ' : '?';
    }
    inside = byte >= 0xC0 || (inside && byte >= 0x80);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return Cut(line, kShellLineBytesMax);
}

}  // namespace

ShellOutput::ShellOutput(Loop& loop, UniqueFd fd, Callback callback)
    : loop_(loop), fd_(std::move(fd)), callback_(std::move(callback)) {
  ::fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
  loop_.Watch(fd_.get(), EPOLLIN, [this](uint32_t) {
    if (!ReadSome() && errno != EAGAIN) {
      Close();
    }
  });
}

ShellOutput::~ShellOutput() {
  Close();
}

void ShellOutput::Close() {
  if (fd_.valid()) {
    loop_.Unwatch(fd_.get());
    fd_.Reset();
  }
}

// False: nothing is there now (EAGAIN) or ever.
bool ShellOutput::ReadSome() {
  std::array<char, kReadBytes> buffer;
  errno = 0;
  const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
  if (got <= 0) {
    return got < 0 && errno == EINTR;
  }
  std::string lines;
  splitter_.Feed({buffer.data(), static_cast<size_t>(got)}, lines);
  GiveOut(lines);
  return true;
}

void ShellOutput::Finish() {
  for (int i = 0; fd_.valid() && i < kReadsAtTheEndMax && ReadSome(); ++i) {
  }
  Close();
  std::string lines;
  splitter_.Finish(lines);
  GiveOut(lines);
}

void ShellOutput::GiveOut(const std::string& lines) {
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    const std::string line = Cleaned(lines.substr(begin, end - begin));
    begin = end + 1;
    if (!line.empty()) {
      Remember(line);
      callback_(line);
    }
  }
}

void ShellOutput::Remember(const std::string& line) {
  last_lines_.push_back(Cut(line, kLastWordsBytesMax));
  last_bytes_ += last_lines_.back().size() + kJoint.size();
  while (last_bytes_ > kLastWordsBytesMax + kJoint.size()) {
    last_bytes_ -= last_lines_.front().size() + kJoint.size();
    last_lines_.pop_front();
  }
}

std::string ShellOutput::last_words() const {
  std::string words;
  for (const std::string& line : last_lines_) {
    words += (words.empty() ? "" : std::string(kJoint)) + line;
  }
  return words;
}

}  // namespace muster::launcher
