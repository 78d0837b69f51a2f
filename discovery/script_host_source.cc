#include "discovery/script_host_source.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace muster::discovery {
namespace {

constexpr size_t kReadBytes = 16384;
// What a pipe holds at most; reading no more at a time keeps a flood from holding up the deadline,
// and is still all there is once the script has ended.
constexpr size_t kPipeBytes = 65536;
constexpr size_t kErrorTailBytes = 2048;  // The last words matter most: a traceback ends with them.
constexpr size_t kErrorShownMax = 400;
constexpr size_t kNameShownMax = 200;
// SIGKILL takes effect within milliseconds, unless the process hangs in the kernel (a dead NFS
// server, say).
constexpr auto kDeathWait = std::chrono::seconds(1);

constexpr int kShellCannotExecute = 126;
constexpr int kShellNotFound = 127;

int Milliseconds(Duration left) {
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(rounded, 0, 60'000));
}

void MakeNonBlocking(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

// Appends what is there now. Closes the descriptor at its end.
void Drain(UniqueFd& fd, std::string& text, size_t length_max) {
  while (fd.valid() && text.size() <= length_max) {
    char buffer[kReadBytes];
    const ssize_t size = ::read(fd.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size < 0 && errno == EAGAIN) {
      return;
    }
    if (size <= 0) {
      fd.Reset();
      return;
    }
    text.append(buffer, static_cast<size_t>(size));
  }
}

void KeepTail(std::string& text, size_t length_max) {
  if (text.size() > length_max) {
    text.erase(0, text.size() - length_max);
  }
}

// Whole as one line; the tail if it is long.
std::string LastWords(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string_view::npos) {
    return "it wrote nothing to stderr";
  }
  text = text.substr(0, end + 1);
  if (text.size() > kErrorShownMax) {
    text.remove_prefix(text.size() - kErrorShownMax);
  }
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return "stderr: " + Printable(line, kErrorShownMax);
}

std::string SecondsText(Duration duration) {
  std::string text = std::to_string(std::chrono::duration<double>(duration).count());
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') {
    text.pop_back();
  }
  return text + " s";
}

}  // namespace

struct ScriptHostSource::Run {
  SpawnedProcess process;
  UniqueFd output_fd;
  UniqueFd error_fd;
  std::string output;
  std::string error;
  Instant deadline;
};

ScriptHostSource::ScriptHostSource(std::string script,
                                   DefaultSlots default_slots,
                                   Duration timeout,
                                   std::vector<std::string> environment)
    : script_(std::move(script)),
      default_slots_(default_slots),
      timeout_(timeout),
      environment_(std::move(environment)),
      cancelled_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(cancelled_.valid(), std::string("eventfd: ") + strerror(errno));
}

ScriptHostSource::~ScriptHostSource() = default;

void ScriptHostSource::Cancel() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(cancelled_.get(), &one, sizeof one);
}

std::string ScriptHostSource::Name() const {
  return "host discovery script '" + Printable(script_, kNameShownMax) + "'";
}

bool ScriptHostSource::IsCancelled() const {
  pollfd fd{cancelled_.get(), POLLIN, 0};
  return ::poll(&fd, 1, 0) > 0;
}

Result<HostList> ScriptHostSource::Poll() {
  if (IsCancelled()) {
    return Status(StatusCode::kAborted, Name() + " was cancelled");
  }
  Run run;
  Status status = Start(run);
  if (!status.ok()) {
    return status;
  }
  status = ReadUntilEnd(run);
  ExitStatus exit;
  const Status ended = End(run, &exit);
  if (!status.ok() || !ended.ok()) {
    return status.ok() ? ended : status;
  }
  return Judge(run, exit);
}

Status ScriptHostSource::Start(Run& run) {
  if (left_over_ != 0) {
    const Result<ExitStatus> reaped = Reap(left_over_);
    if (!reaped.ok() && reaped.status().code() == StatusCode::kUnavailable) {
      return Status::Failed(Name() + ": process " + std::to_string(left_over_) +
                            " of an earlier poll has been killed but does not end");
    }
    left_over_ = 0;
  }
  Result<Pipe> output = MakePipe();
  Result<Pipe> error = MakePipe();
  if (!output.ok() || !error.ok()) {
    return Status::Failed(Name() + ": " +
                          (output.ok() ? error.status() : output.status()).message());
  }
  SpawnOptions spawn;
  spawn.argv = {"/bin/sh", "-c", script_};
  spawn.environment = environment_;
  spawn.stdout_fd = output.value().write.get();
  spawn.stderr_fd = error.value().write.get();
  Result<SpawnedProcess> process = Spawn(spawn);
  if (!process.ok()) {
    return Status::Failed(Name() + ": " + process.status().message());
  }
  run.process = std::move(process).value();
  guard_.Guard(run.process.pid);
  run.output_fd = std::move(output.value().read);
  run.error_fd = std::move(error.value().read);
  MakeNonBlocking(run.output_fd.get());
  MakeNonBlocking(run.error_fd.get());
  run.deadline = clock_.Now() + timeout_;
  return Status::Ok();
}

// The end is the end of the shell: children that it left in the background may hold the pipes open
// for as long as they like.
Status ScriptHostSource::ReadUntilEnd(Run& run) {
  while (true) {
    const Duration left = run.deadline - clock_.Now();
    if (left <= Duration::zero()) {
      return Status(StatusCode::kTimeout,
                    Name() + " was killed: not done after " + SecondsText(timeout_) +
                        " (--discovery-timeout); " + LastWords(run.error));
    }
    std::array<pollfd, 4> fds{{{cancelled_.get(), POLLIN, 0},
                               {run.process.pidfd.get(), POLLIN, 0},
                               {run.output_fd.get(), POLLIN, 0},
                               {run.error_fd.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), Milliseconds(left));
    if (fds[0].revents != 0) {
      return Status(StatusCode::kAborted, Name() + " was cancelled");
    }
    // Read after the look at the pidfd, so that what came before the end is in.
    Drain(run.output_fd, run.output, kHostListBytesMax);
    std::string said;
    Drain(run.error_fd, said, kPipeBytes);
    KeepTail(run.error += said, kErrorTailBytes);
    if (run.output.size() > kHostListBytesMax) {
      return Status::Invalid(Name() + " was killed: it printed more than " +
                             std::to_string(kHostListBytesMax >> 10) + " KiB");
    }
    if (fds[1].revents != 0) {
      return Status::Ok();
    }
  }
}

// The leader is reaped last: until then nobody else can get the number of its group.
Status ScriptHostSource::End(Run& run, ExitStatus* exit) {
  ::kill(-run.process.pid, SIGKILL);
  pollfd ended{run.process.pidfd.get(), POLLIN, 0};
  const Instant deadline = clock_.Now() + kDeathWait;
  while (::poll(&ended, 1, Milliseconds(deadline - clock_.Now())) < 0 && errno == EINTR) {
  }
  guard_.Forget(run.process.pid);
  Result<ExitStatus> reaped = Reap(run.process.pid);
  if (!reaped.ok()) {
    left_over_ = run.process.pid;
    return Status::Failed(Name() + ": process " + std::to_string(run.process.pid) +
                          " does not end after SIGKILL");
  }
  *exit = reaped.value();
  return Status::Ok();
}

Result<HostList> ScriptHostSource::Judge(const Run& run, const ExitStatus& exit) const {
  if (exit.signal != 0) {
    return Status::Failed(Name() + " was killed by signal " + std::to_string(exit.signal) + "; " +
                          LastWords(run.error));
  }
  if (exit.code != 0) {
    std::string why;
    if (exit.code == kShellCannotExecute) {
      why = " (no permission to execute it: chmod +x may help)";
    } else if (exit.code == kShellNotFound) {
      why = " (no such file or command)";
    }
    return Status::Failed(Name() + " failed with exit code " + std::to_string(exit.code) + why +
                          "; " + LastWords(run.error));
  }
  Result<HostList> list = ParseHostLines(run.output, default_slots_);
  if (!list.ok()) {
    return Status::Invalid(Name() +
                           " printed a list that cannot be used: " + list.status().message());
  }
  return list;
}

}  // namespace muster::discovery
