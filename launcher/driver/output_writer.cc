#include "launcher/driver/output_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "common/log.h"

namespace muster::launcher {
namespace {

constexpr size_t kQueuedBytesMax = 1 << 20;
// What a pipe that polls as writable takes without blocking (PIPE_BUF).
constexpr size_t kWriteBytesMax = 4096;
constexpr int kPollMilliseconds = 50;
constexpr auto kLastLinePatience = std::chrono::seconds(1);

std::string Now() {
  const std::time_t now = std::time(nullptr);
  char text[32] = {};
  ::ctime_r(&now, text);
  return std::string(text, std::strcspn(text, "\n"));
}

std::string Prefix(const OutputLines& lines, bool timestamp) {
  const std::string who = lines.rank >= 0
                              ? std::to_string(lines.rank)
                              : lines.slot.host.value + "/" + std::to_string(lines.slot.index);
  return (timestamp ? Now() : "") + "[" + who + "]<" + (lines.is_stderr ? "stderr" : "stdout") +
         ">:";
}

// Every line with its prefix; a missing last newline is added, so that lines never join.
std::string Prefixed(const OutputLines& lines, bool timestamp) {
  const std::string prefix = Prefix(lines, timestamp);
  std::string text;
  for (size_t begin = 0; begin < lines.lines.size();) {
    const size_t end = std::min(lines.lines.find('\n', begin), lines.lines.size());
    text += prefix;
    text.append(lines.lines, begin, end - begin);
    text += '\n';
    begin = end + 1;
  }
  return text;
}

// At most kWriteBytesMax, whole lines if one fits.
size_t NextPiece(std::string_view text) {
  if (text.size() <= kWriteBytesMax) {
    return text.size();
  }
  const size_t newline = text.rfind('\n', kWriteBytesMax - 1);
  return newline == std::string_view::npos ? kWriteBytesMax : newline + 1;
}

}  // namespace

OutputWriter::OutputWriter(Options options) : options_(std::move(options)) {}

OutputWriter::~OutputWriter() {
  Finish(Duration::zero());
}

Status OutputWriter::Start() {
  if (!options_.directory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options_.directory, error);
    if (error) {
      return Status::Failed("--output-filename " + options_.directory + ": " + error.message());
    }
  }
  thread_ = std::thread([this] { Run(); });
  return Status::Ok();
}

bool OutputWriter::TryPush(OutputLines&& lines) {
  const MutexLock lock(mutex_);
  if (finishing_ || ended_) {
    return true;
  }
  if (queued_bytes_ >= kQueuedBytesMax) {
    return false;
  }
  queued_bytes_ += lines.lines.size();
  queue_.push_back(std::move(lines));
  changed_.NotifyAll();
  return true;
}

void OutputWriter::OnSpace(std::function<void()> callback) {
  {
    const MutexLock lock(mutex_);
    if (queued_bytes_ >= kQueuedBytesMax && !finishing_) {
      waiting_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void OutputWriter::Finish(Duration patience) {
  if (!thread_.joinable()) {
    return;
  }
  std::vector<std::function<void()>> waiting;
  {
    const MutexLock lock(mutex_);
    finishing_ = true;
    waiting.swap(waiting_);
    changed_.NotifyAll();
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!ended_ && std::chrono::steady_clock::now() < until) {
      changed_.WaitFor(mutex_, until - std::chrono::steady_clock::now());
    }
    abandoned_ = true;
  }
  for (const std::function<void()>& callback : waiting) {
    callback();
  }
  thread_.join();
}

bool OutputWriter::Abandoned() {
  const MutexLock lock(mutex_);
  return abandoned_;
}

void OutputWriter::Run() {
  while (true) {
    OutputLines lines;
    std::vector<std::function<void()>> waiting;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !finishing_) {
        changed_.Wait(mutex_);
      }
      if (queue_.empty() || abandoned_) {
        ended_ = true;
        changed_.NotifyAll();
        return;
      }
      lines = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= lines.lines.size();
      if (queued_bytes_ < kQueuedBytesMax) {
        waiting.swap(waiting_);
      }
    }
    for (const std::function<void()>& callback : waiting) {
      callback();
    }
    Write(lines);
  }
}

void OutputWriter::Write(const OutputLines& lines) {
  if (!options_.directory.empty()) {
    WriteFile(lines);
  }
  const std::string text = Prefixed(lines, options_.timestamp);
  if (lines.is_stderr) {
    WriteConsole(options_.stderr_fd, stderr_closed_, text);
  } else {
    WriteConsole(options_.stdout_fd, stdout_closed_, text);
  }
}

// True when fd takes kWriteBytesMax without blocking. False when the writer gives up.
bool OutputWriter::WaitWritable(int fd) {
  pollfd polled{fd, POLLOUT, 0};
  while (!Abandoned()) {
    if (::poll(&polled, 1, kPollMilliseconds) > 0) {
      return true;
    }
  }
  return false;
}

// A closed pipe (`muster run ... | head`) ends this stream, not the job.
void OutputWriter::WriteConsole(int fd, bool& closed, std::string_view text) {
  while (!closed && !text.empty() && WaitWritable(fd)) {
    const ssize_t size = ::write(fd, text.data(), NextPiece(text));
    if (size > 0) {
      text.remove_prefix(static_cast<size_t>(size));
    } else if (size < 0 && errno != EINTR && errno != EAGAIN) {
      closed = true;
      spdlog::info("output {} is closed ({}); the job goes on", fd, strerror(errno));
    }
  }
}

OutputWriter::Files& OutputWriter::FilesOf(const OutputLines& lines) {
  const auto [it, is_new] = files_.try_emplace(lines.incarnation);
  if (!is_new) {
    return it->second;
  }
  const size_t width = std::to_string(std::max<uint32_t>(options_.rank_count_max, 1) - 1).size();
  std::string name = lines.rank < 0
                         ? "slot." + lines.slot.host.value + "." + std::to_string(lines.slot.index)
                         : std::to_string(lines.rank);
  if (lines.rank >= 0) {
    name = "rank." + std::string(width - std::min(width, name.size()), '0') + name;
  }
  const std::filesystem::path folder = std::filesystem::path(options_.directory) / name;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  it->second.out.Reset(::open((folder / "stdout").c_str(), kFlags, 0644));
  it->second.err.Reset(::open((folder / "stderr").c_str(), kFlags, 0644));
  return it->second;
}

void OutputWriter::WriteFile(const OutputLines& lines) {
  Files& files = FilesOf(lines);
  const int fd = lines.is_stderr ? files.err.get() : files.out.get();
  std::string_view text = lines.lines;
  while (!text.empty()) {
    const ssize_t size = ::write(fd, text.data(), text.size());
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size <= 0) {
      if (!std::exchange(file_trouble_shown_, true)) {
        spdlog::warn("--output-filename {}: {}; lines are missing there",
                     options_.directory,
                     strerror(errno));
      }
      return;
    }
    text.remove_prefix(static_cast<size_t>(size));
  }
}

void WriteLastLine(std::string line, int fd) {
  line += '\n';
  pollfd polled{fd, POLLOUT, 0};
  const int milliseconds = static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(kLastLinePatience).count());
  if (::poll(&polled, 1, milliseconds) > 0) {
    [[maybe_unused]] const ssize_t size = ::write(fd, line.data(), line.size());
  }
}

}  // namespace muster::launcher
