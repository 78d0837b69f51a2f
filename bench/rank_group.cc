#include "bench/rank_group.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bench/process_waits.h"

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

// How long ranks may take to end after the bench has hung up, and after SIGTERM.
constexpr std::chrono::seconds kGrace{3};

}  // namespace

RankGroup::RankGroup(GroupSpec spec)
    : spec_(std::move(spec)), ranks_(static_cast<size_t>(spec_.ranks)) {}

Result<std::unique_ptr<RankGroup>> RankGroup::Start(GroupSpec spec, std::chrono::seconds timeout) {
  std::unique_ptr<RankGroup> group(new RankGroup(std::move(spec)));
  Result<UniqueFd> listener = ListenAt(group->spec_.socket);
  if (!listener.ok()) {
    return listener.status();
  }
  group->listener_ = std::move(listener).value();
  Status status = group->Spawn();
  if (status.ok()) {
    status = group->Accept(Clock::now() + timeout);
  }
  if (!status.ok()) {
    return status;
  }
  return group;
}

Status RankGroup::Spawn() {
  const UniqueFd log(::open(spec_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) {
    return Status::Failed("cannot write " + spec_.log + ": " + std::strerror(errno));
  }
  for (const std::vector<std::string>& command : spec_.commands) {
    SpawnOptions options;
    options.argv = command;
    options.environment = CurrentEnvironment();
    options.stdout_fd = log.get();
    options.stderr_fd = log.get();
    if (spec_.inherited.valid()) {
      options.inherited = {spec_.inherited.get()};
    }
    Result<SpawnedProcess> process = muster::Spawn(options);
    if (!process.ok()) {
      failed_ = true;
      return process.status();
    }
    processes_.push_back(std::move(process).value());
  }
  return Status::Ok();
}

Status RankGroup::Accept(Deadline deadline) {
  while (rank_count_ < spec_.ranks) {
    const Result<size_t> ready = WaitForOne({listener_.get()}, deadline, "starting");
    if (!ready.ok()) {
      return ready.status();
    }
    Status admitted = Admit(UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (!admitted.ok()) {
      return Failure(admitted.message());
    }
  }
  return Status::Ok();
}

Status RankGroup::Admit(UniqueFd socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (!socket.valid() || ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return Status::Failed(std::string("cannot accept a rank: ") + std::strerror(errno));
  }
  // It says hello at once; a connection that does not is none of ours.
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const Result<std::string> message = Receive(socket.get());
  if (!message.ok()) {
    return message.status();
  }
  const Result<Hello> hello = ParseHello(message.value());
  if (!hello.ok()) {
    return hello.status();
  }
  const auto [rank, size] = hello.value();
  if (size != spec_.ranks || rank < 0 || rank >= size ||
      ranks_[static_cast<size_t>(rank)].socket.valid()) {
    return Status::Failed("a process says that it is rank " + std::to_string(rank) + " of " +
                          std::to_string(size));
  }
  ranks_[static_cast<size_t>(rank)] =
      Rank{.socket = std::move(socket), .pidfd = OpenPidfd(peer.pid), .pid = peer.pid};
  ++rank_count_;
  return Status::Ok();
}

Result<size_t> RankGroup::WaitForOne(const std::vector<int>& sockets,
                                     Deadline deadline,
                                     const std::string& during) {
  std::vector<pollfd> entries;
  for (const int socket : sockets) {
    entries.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  }
  entries.push_back({.fd = InterruptFd(), .events = POLLIN, .revents = 0});
  for (const SpawnedProcess& process : processes_) {
    entries.push_back({.fd = process.pidfd.get(), .events = POLLIN, .revents = 0});
  }
  for (;;) {
    const int ready = ::poll(entries.data(), entries.size(), MillisecondsUntil(deadline));
    if (ready < 0 && errno != EINTR) {
      return Failure(std::string("cannot wait for the ranks: ") + std::strerror(errno));
    }
    if (ready > 0 && entries[sockets.size()].revents != 0) {
      return Failure("interrupted during " + during);
    }
    for (size_t i = 0; i < sockets.size() && ready > 0; ++i) {
      if (entries[i].revents != 0) {
        return i;
      }
    }
    if (ready > 0) {
      return Failure("a process ended during " + during);
    }
    if (Clock::now() >= deadline) {
      std::string missing;
      for (size_t i = 0; i < sockets.size() && sockets.size() == ranks_.size(); ++i) {
        missing += sockets[i] < 0 ? "" : " " + std::to_string(i);
      }
      return Failure("no answer in time during " + during +
                     (missing.empty() ? "" : "; missing: rank" + missing));
    }
  }
}

Result<std::vector<Report>> RankGroup::Execute(const Order& order, std::chrono::seconds timeout) {
  const Deadline deadline = Clock::now() + timeout;
  const std::string text = ToText(order);
  const std::string what = Describe(order);
  std::vector<int> waiting;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Status sent = Send(ranks_[i].socket.get(), text);
    if (!sent.ok()) {
      return Failure("rank " + std::to_string(i) + " ended before " + what);
    }
    waiting.push_back(ranks_[i].socket.get());
  }
  std::vector<Report> reports(ranks_.size());
  for (size_t missing = ranks_.size(); missing > 0; --missing) {
    const Result<size_t> rank = WaitForOne(waiting, deadline, what);
    if (!rank.ok()) {
      return rank.status();
    }
    const std::string who = "rank " + std::to_string(rank.value());
    const Result<std::string> message = Receive(ranks_[rank.value()].socket.get());
    if (!message.ok()) {
      return Failure(who + " ended during " + what);
    }
    Result<Report> report = ParseReport(message.value());
    const std::string error = report.ok() ? report.value().error : report.status().message();
    if (!error.empty()) {
      return Failure(who + " failed during " + what + ": " + error);
    }
    reports[rank.value()] = std::move(report).value();
    waiting[rank.value()] = -1;
  }
  return reports;
}

std::vector<pid_t> RankGroup::pids() const {
  std::vector<pid_t> pids;
  for (const Rank& rank : ranks_) {
    pids.push_back(rank.pid);
  }
  return pids;
}

Status RankGroup::Failure(const std::string& what) {
  failed_ = true;
  const std::string log = LastLines(spec_.log);
  return Status::Failed(spec_.name + " with " + std::to_string(spec_.ranks) + " ranks: " + what +
                        (log.empty() ? "" : "; the last of its output:" + log));
}

RankGroup::~RankGroup() {
  End();
}

void RankGroup::End() {
  // A rank that waits for orders ends when the bench hangs up; one that hangs would not.
  for (Rank& rank : ranks_) {
    if (failed_) {
      SignalPidfd(rank.pidfd, SIGKILL);
    }
    rank.socket.Reset();
  }
  listener_.Reset();
  for (const SpawnedProcess& process : processes_) {
    if ((failed_ || !EndsBy(process.pidfd, Clock::now() + kGrace))) {
      SignalPidfd(process.pidfd, SIGTERM);
    }
  }
  for (const SpawnedProcess& process : processes_) {
    if (!EndsBy(process.pidfd, Clock::now() + kGrace)) {
      ::kill(-process.pid, SIGKILL);  // Its group; not reaped yet, so the number is still its own.
      EndsBy(process.pidfd, Clock::now() + kGrace);
    }
    static_cast<void>(Reap(process.pid));
  }
  for (const Rank& rank : ranks_) {
    SignalPidfd(rank.pidfd, SIGKILL);
  }
}

}  // namespace muster::bench
