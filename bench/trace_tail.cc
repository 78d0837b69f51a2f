#include "bench/trace_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace muster::bench {
namespace {

constexpr size_t kReadBytes = 1 << 16;

}  // namespace

Result<TraceTail> TraceTail::Make(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return Status::Failed("cannot make " + path + ": " + std::strerror(errno));
  }
  return TraceTail(path, std::move(file));
}

Result<std::vector<TraceEvent>> TraceTail::Read() {
  std::vector<TraceEvent> events;
  const int64_t begin = offset_;
  std::array<char, kReadBytes> block{};
  for (;;) {
    const ssize_t size = ::pread(file_.get(), block.data(), block.size(), offset_);
    if (size < 0) {
      return Status::Failed("cannot read " + path_ + ": " + std::strerror(errno));
    }
    if (size == 0) {
      break;
    }
    offset_ += size;
    unread_.append(block.data(), static_cast<size_t>(size));
    Status parsed = Parse(events);
    if (!parsed.ok()) {
      return parsed;
    }
  }
  // Truncating it instead would lose lines that come meanwhile. A file system that cannot do this
  // keeps the bytes.
  if (offset_ > begin) {
    ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, offset_ - begin);
  }
  return events;
}

Status TraceTail::Parse(std::vector<TraceEvent>& events) {
  size_t begin = 0;
  for (size_t end = 0; (end = unread_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(unread_).substr(begin, end - begin);
    // Half of all lines, and parsing takes processor time from the job.
    if (line.find(R"("event":"commit")") != std::string_view::npos) {
      continue;
    }
    Result<TraceEvent> event = ParseTraceEvent(line);
    if (!event.ok()) {
      return event.status();
    }
    events.push_back(std::move(event).value());
  }
  unread_.erase(0, begin);
  return Status::Ok();
}

}  // namespace muster::bench
