#include "launcher/chaos/hook.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "common/worker_page.h"
#include "launcher/cli/chaos_options.h"

namespace muster::launcher {
namespace {

// A killed process ends at once, unless it may not be killed (it runs as another user, has left its
// group) or the kernel holds it.
constexpr Duration kKilledEnds = std::chrono::seconds(1);
constexpr size_t kOutputBytesMax = 4096;
constexpr size_t kNoteBytesMax = 200;
// A number that every shell can compute with.
constexpr uint64_t kHookDraws = 1'000'000;

// False also for what is not there: that is told when it is opened.
bool WritableByOthers(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && ((info.st_uid != 0 && info.st_uid != ::geteuid()) ||
                                              (info.st_mode & (S_IWGRP | S_IWOTH)) != 0);
}

Status Refused(const std::string& path) {
  return Status::Invalid(path + ": somebody else may change it, so its hooks are not run (chmod " +
                         "go-w, chown)");
}

std::string ExitText(const ExitStatus& status) {
  if (status.signal != 0) {
    return "it was killed by signal " + std::to_string(status.signal);
  }
  return status.code == 0 ? "" : "it exited with code " + std::to_string(status.code);
}

}  // namespace

std::vector<std::string> HookEnvironment(std::vector<std::string> inherited,
                                         const HookMarks& marks) {
  const std::vector<std::pair<std::string, std::string>> given{
      {"MUSTER_CHAOS_JOB", marks.job},
      {"MUSTER_CHAOS_NUMBER", std::to_string(marks.number)},
      {"MUSTER_CHAOS_DRAW", std::to_string(marks.draw % kHookDraws)},
      {"MUSTER_CHAOS_LASTS_MS", std::to_string(marks.lasts.count() / 1000)}};
  std::set<std::string, std::less<>> without{kEnvJob,
                                             kEnvHost,
                                             kEnvSlot,
                                             kEnvIncarnation,
                                             kEnvAgentDirectory,
                                             kEnvWorkerKey,
                                             kEnvListen,
                                             kEnvPortRange};
  for (const auto& [name, value] : given) {
    without.insert(name);
  }
  std::erase_if(inherited, [&without](const std::string& entry) {
    return without.contains(std::string_view(entry).substr(0, entry.find('=')));
  });
  for (const auto& [name, value] : given) {
    inherited.push_back(name + "=" + value);
  }
  return inherited;
}

HookAnswer ReadHookOutput(const std::string& output) {
  constexpr std::string_view kHost = "host ";
  HookAnswer answer;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kHost)) {
      answer.host = line.substr(kHost.size());
    } else if (!line.empty()) {
      answer.note += (answer.note.empty() ? "" : "; ") + line;
    }
  }
  answer.note.resize(std::min(answer.note.size(), kNoteBytesMax));
  return answer;
}

Hook::Hook(Loop& loop,
           const std::string& program,
           const std::string& word,
           std::vector<std::string> environment,
           Callback done,
           Duration limit)
    : loop_(loop), done_(std::move(done)) {
  Result<Pipe> output = MakePipe();
  SpawnOptions options;
  options.argv = {program, word};
  options.environment = std::move(environment);
  options.stdout_fd = output.ok() ? output.value().write.get() : -1;
  Result<SpawnedProcess> spawned = output.ok() ? Spawn(options) : output.status();
  if (!spawned.ok()) {
    limit_ =
        loop_.After(Duration::zero(), [this, why = spawned.status().message()] { Finish(why); });
    return;
  }
  process_ = std::move(spawned).value();
  pipe_ = std::move(output.value().read);
  ::fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  limit_ = loop_.After(limit, [this] { OnLate(); });
  loop_.Watch(pipe_.get(), EPOLLIN, [this](uint32_t) { ReadOutput(); });
  loop_.Watch(process_.pidfd.get(), EPOLLIN, [this](uint32_t) { OnEnded(); });
}

Hook::~Hook() {
  loop_.Cancel(limit_);
  loop_.Unwatch(pipe_.get());
  if (process_.pid > 0) {
    loop_.Unwatch(process_.pidfd.get());
    ::kill(-process_.pid, SIGKILL);
    // One that does not end is left to init.
    ::waitpid(process_.pid, nullptr, WNOHANG);
  }
}

void Hook::OnLate() {
  ::kill(-process_.pid, SIGKILL);
  limit_ = loop_.After(kKilledEnds, [this] { Finish("it does not end, though it was killed"); });
}

void Hook::OnEnded() {
  // Before it is reaped: until then nobody else has the number of its group.
  ::kill(-process_.pid, SIGKILL);
  const Result<ExitStatus> status = Reap(process_.pid);
  if (status.ok()) {
    loop_.Unwatch(process_.pidfd.get());
    process_ = {};
    ReadOutput();
    Finish(ExitText(status.value()));
  }
}

// One piece at a time, so that one who prints without end holds up nobody; what is too much is
// dropped.
void Hook::ReadOutput() {
  std::array<char, kOutputBytesMax> bytes{};
  const ssize_t size = ::read(pipe_.get(), bytes.data(), bytes.size());
  if (size == 0) {
    loop_.Unwatch(pipe_.get());
  } else if (size > 0) {
    const size_t room = kOutputBytesMax - output_.size();
    output_.append(bytes.data(), std::min(static_cast<size_t>(size), room));
  }
}

void Hook::Finish(const std::string& error) {
  loop_.Cancel(limit_);
  limit_ = {};
  HookAnswer answer = ReadHookOutput(output_);
  answer.error = error;
  // Its owner may destroy it in the callback.
  const Callback done = std::move(done_);
  done(answer);
}

Result<std::vector<std::string>> ListHooks(const std::string& folder) {
  std::vector<std::string> names;
  if (WritableByOthers(folder)) {
    return Refused(folder);
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code unseen;
    if (!IsChaosName(name) || !entry->is_regular_file(unseen) ||
        ::access(entry->path().c_str(), X_OK) != 0) {
      continue;
    }
    if (WritableByOthers(entry->path())) {
      return Refused(entry->path());
    }
    names.push_back(name);
  }
  if (error) {
    return Status::Invalid(folder + ": " + error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace muster::launcher
