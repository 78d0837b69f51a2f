#include "launcher/driver/output_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/log.h"

namespace muster::launcher {
namespace {

constexpr auto kLastLinePatience = std::chrono::seconds(1);

// Every line with its prefix; a missing last newline is added, so that lines never join.
std::string Prefixed(std::string_view lines, const std::string& prefix) {
  std::string text;
  text.reserve(lines.size() + 8 * prefix.size());
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    text.append(prefix).append(lines.substr(0, end)).append(1, '\n');
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return text;
}

// A write to a closed pipe must be an error here, not the end of the launcher.
void BlockBrokenPipe() {
  sigset_t pipe;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

OutputWriter::OutputWriter(Options options)
    : options_(std::move(options)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      stdout_(options_.stdout_fd),
      stderr_(options_.stderr_fd) {
  MUSTER_CHECK(wake_.valid(), std::string("eventfd: ") + strerror(errno));
  if (!options_.directory.empty()) {
    files_.emplace(options_.directory, options_.rank_count_max);
  }
}

OutputWriter::~OutputWriter() {
  Finish(Duration::zero());
}

Status OutputWriter::Start() {
  if (files_) {
    if (Status prepared = files_->Prepare(); !prepared.ok()) {
      return prepared;
    }
  }
  thread_ = std::jthread([this] { Run(); });
  return Status::Ok();
}

bool OutputWriter::TryPush(OutputLines&& lines) {
  const MutexLock lock(mutex_);
  if (finishing_) {
    return true;
  }
  if (queued_bytes_ >= kQueuedOutputBytesMax) {
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
    if (queued_bytes_ >= kQueuedOutputBytesMax && !finishing_) {
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
  {
    const MutexLock lock(mutex_);
    finishing_ = true;
    changed_.NotifyAll();
    const SteadyClock clock;
    const Instant until = clock.Now() + patience;
    for (Instant now = clock.Now(); !ended_ && now < until; now = clock.Now()) {
      changed_.WaitFor(mutex_, until - now);
    }
  }
  given_up_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
  ServeWaiting();
}

void OutputWriter::Run() {
  ::pthread_setname_np(::pthread_self(), "output");
  BlockBrokenPipe();
  OutputLines lines;
  while (Next(lines)) {
    ServeWaiting();
    Write(lines);
  }
}

// False at the end: Finish was called, and the queue is empty or to be dropped.
bool OutputWriter::Next(OutputLines& lines) {
  const MutexLock lock(mutex_);
  while (queue_.empty() && !finishing_) {
    changed_.Wait(mutex_);
  }
  if (queue_.empty() || given_up_) {
    ended_ = true;
    changed_.NotifyAll();
    return false;
  }
  lines = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= lines.lines.size();
  return true;
}

// One by one, so that those for whom there is no space any more keep their place.
void OutputWriter::ServeWaiting() {
  while (true) {
    std::function<void()> callback;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty() || (queued_bytes_ >= kQueuedOutputBytesMax && !finishing_)) {
        return;
      }
      callback = std::move(waiting_.front());
      waiting_.pop_front();
    }
    callback();
  }
}

void OutputWriter::Write(const OutputLines& lines) {
  if (files_) {
    const Status appended = files_->Append(lines);
    if (!appended.ok() && !std::exchange(file_trouble_shown_, true)) {
      spdlog::warn("{}; lines are missing there", appended.message());
    }
  }
  OutputSink& sink = lines.is_stderr ? stderr_ : stdout_;
  const int error =
      sink.Write(Prefixed(lines.lines, Prefix(lines)), [this](int fd) { return WaitWritable(fd); });
  if (error != 0) {
    spdlog::info("nobody reads {} any more ({}); the job goes on without it",
                 lines.is_stderr ? "stderr" : "stdout",
                 strerror(error));
  }
}

std::string OutputWriter::Prefix(const OutputLines& lines) const {
  std::string prefix;
  if (options_.timestamp) {
    const std::time_t now = options_.now();
    char text[32] = {};
    ::ctime_r(&now, text);
    prefix.assign(text, std::strcspn(text, "\n"));
  }
  const std::string who = lines.rank >= 0
                              ? std::to_string(lines.rank)
                              : lines.slot.host.value + "/" + std::to_string(lines.slot.index);
  return prefix + "[" + who + (lines.is_stderr ? "]<stderr>:" : "]<stdout>:");
}

// Finish wakes this; a blocked terminal does not wake anybody.
bool OutputWriter::WaitWritable(int fd) const {
  pollfd fds[2] = {{fd, POLLOUT, 0}, {wake_.get(), POLLIN, 0}};
  while (::poll(fds, 2, -1) < 0 && errno == EINTR) {
  }
  return fds[1].revents == 0;
}

void WriteLastLine(std::string line, int fd) {
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  const SteadyClock clock;
  const Instant until = clock.Now() + kLastLinePatience;
  OutputSink(fd).Write(line, [&](int sink_fd) {
    pollfd polled{sink_fd, POLLOUT, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock.Now()).count();
    return left > 0 && ::poll(&polled, 1, static_cast<int>(left)) > 0;
  });
}

}  // namespace muster::launcher
