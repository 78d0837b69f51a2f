#include "launcher/agent/process_table.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/mutex.h"
#include "common/worker_page.h"
#include "launcher/agent/process_scan.h"

namespace muster::launcher {
namespace {

constexpr Duration kRescanDelay = std::chrono::milliseconds(20);
constexpr Duration kRemainsDeadline = std::chrono::seconds(5);

struct Ended {
  Incarnation worker;
  pid_t group = 0;
};
struct ScanRequest {
  std::vector<Ended> ended;
  std::set<pid_t> living_groups;  // Whose members need no look into their environment.
};
using ScanResult = std::vector<std::pair<Incarnation, bool>>;

}  // namespace

// Reads /proc on a thread of its own: with thousands of processes that takes milliseconds, in
// which the loop must relay the next world.
class LocalProcessTable::Scanner {
 public:
  Scanner(std::string job, std::function<void(ScanResult)> done)
      : job_(std::move(job)), done_(std::move(done)), thread_([this] { Run(); }) {}

  ~Scanner() {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    changed_.NotifyAll();
  }

  void Request(ScanRequest request) {
    {
      const MutexLock lock(mutex_);
      request_ = std::move(request);
    }
    changed_.NotifyAll();
  }

 private:
  void Run() {
    KeepSpareDescriptor();
    while (true) {
      ScanRequest request;
      {
        const MutexLock lock(mutex_);
        while (!stop_ && !request_) {
          changed_.Wait(mutex_);  // The owner wakes it, at the latest in the destructor.
        }
        if (stop_) {
          return;
        }
        request = *std::exchange(request_, std::nullopt);
      }
      done_(Scan(request));
    }
  }

  // Kills what is left of the ended workers. Only descendants are looked at: this process is a
  // subreaper, so nothing that a worker started can leave its subtree.
  ScanResult Scan(const ScanRequest& request) const {
    std::set<uint64_t> left;
    for (const ProcessEntry& entry : DescendantsOf(::getpid(), ListProcesses())) {
      if (request.living_groups.contains(entry.group)) {
        continue;
      }
      if (const Ended* owner = OwnerOf(entry, request.ended)) {
        ::kill(entry.pid, SIGKILL);
        left.insert(owner->worker.value);
      }
    }
    ScanResult result;
    for (const Ended& ended : request.ended) {
      result.emplace_back(ended.worker, left.contains(ended.worker.value));
    }
    return result;
  }

  // The group is looked at first, and the environment read once: when hundreds of workers end
  // together, with all their data loaders, this decides between milliseconds and seconds.
  const Ended* OwnerOf(const ProcessEntry& entry, const std::vector<Ended>& all) const {
    const auto by_group = std::find_if(
        all.begin(), all.end(), [&](const Ended& ended) { return entry.group == ended.group; });
    if (by_group != all.end()) {
      return &*by_group;
    }
    const std::string environment = EnvironmentOf(entry.pid);
    const auto by_mark = std::find_if(all.begin(), all.end(), [&](const Ended& ended) {
      return Holds(environment, Marks(ended.worker));
    });
    return by_mark != all.end() ? &*by_mark : nullptr;
  }

  std::vector<std::string> Marks(Incarnation worker) const {
    return {std::string(kEnvJob) + "=" + job_,
            std::string(kEnvIncarnation) + "=" + std::to_string(worker.value)};
  }

  const std::string job_;
  const std::function<void(ScanResult)> done_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<ScanRequest> request_ MUSTER_GUARDED_BY(mutex_);
  bool stop_ MUSTER_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // Last: it uses all the others.
};

LocalProcessTable::LocalProcessTable(Loop& loop, std::string job, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)) {
  scanner_ = std::make_unique<Scanner>(std::move(job), [this](ScanResult result) {
    loop_.Post([this, result = std::move(result)] { OnScanned(result); });
  });
}

LocalProcessTable::~LocalProcessTable() {
  loop_.Cancel(rescan_);
  for (const auto& [worker, entry] : entries_) {
    if (entry.report.valid()) {
      loop_.Unwatch(entry.report.get());
    }
  }
}

Result<pid_t> LocalProcessTable::Start(Incarnation worker, SpawnOptions options) {
  MUSTER_CHECK(loop_.OnLoopThread(), "workers are started by the loop thread");
  MUSTER_CHECK(!entries_.contains(worker), "an incarnation is started once");
  options.new_group = true;
  options.parent_death_signal = SIGKILL;
  Result<ForkedProcess> forked = Fork(options);
  if (!forked.ok()) {
    return forked.status();
  }
  Entry& entry = entries_[worker];
  entry.pid = forked.value().process.pid;
  entry.options = std::move(options);
  entry.report = std::move(forked.value().report);
  loop_.Watch(entry.report.get(), EPOLLIN, [this, worker](uint32_t) { OnReport(worker); });
  return entry.pid;
}

void LocalProcessTable::OnReport(Incarnation worker) {
  Entry& entry = entries_.at(worker);
  loop_.Unwatch(entry.report.get());
  const Status executed = ReadExecReport(entry.options, entry.report.get());
  entry.report.Reset();
  entry.options = {};
  entry.failed = !executed.ok();
  callbacks_.executed(worker, executed);
}

// Once reaped, the number may be that of another process or group.
pid_t LocalProcessTable::Running(Incarnation worker) const {
  const auto it = entries_.find(worker);
  return it == entries_.end() || it->second.status ? 0 : it->second.pid;
}

void LocalProcessTable::SignalGroup(Incarnation worker, int signal) {
  if (const pid_t pid = Running(worker)) {
    ::kill(-pid, signal);
  }
}

void LocalProcessTable::SignalProcess(Incarnation worker, int signal) {
  if (const pid_t pid = Running(worker)) {
    ::kill(pid, signal);
  }
}

void LocalProcessTable::OnChildSignal() {
  bool any = false;
  while (const pid_t pid = EndedChild()) {
    for (auto& [worker, entry] : entries_) {
      if (entry.pid != pid || entry.status) {
        continue;
      }
      if (entry.report.valid()) {
        OnReport(worker);  // It has ended, so this does not wait.
      }
      ::kill(-pid, SIGKILL);  // Before reaping: until then the group is surely this one.
      const Result<ExitStatus> status = Reap(pid);
      MUSTER_CHECK(status.ok(), "nobody else reaps the workers");
      entry.status = status.value();
      entry.ended = loop_.Now();
    }
    any = true;
    [[maybe_unused]] const Result<ExitStatus> orphan = Reap(pid);  // Came to us, its subreaper.
  }
  if (any) {
    RequestScan();
  }
}

void LocalProcessTable::RequestScan() {
  if (scanning_) {
    scan_again_ = true;
    return;
  }
  ScanRequest request;
  for (const auto& [worker, entry] : entries_) {
    if (entry.status) {
      request.ended.push_back({worker, entry.pid});
    } else {
      request.living_groups.insert(entry.pid);
    }
  }
  if (!request.ended.empty()) {
    scanning_ = true;
    scanner_->Request(std::move(request));
  }
}

void LocalProcessTable::OnScanned(const std::vector<std::pair<Incarnation, bool>>& left) {
  scanning_ = false;
  bool any_left = false;
  for (const auto& [worker, something_left] : left) {
    const auto it = entries_.find(worker);
    if (something_left && !Overdue(worker, it->second)) {
      any_left = true;
      continue;
    }
    const ExitStatus status = *it->second.status;
    const bool was_started = !it->second.failed;
    entries_.erase(it);
    if (was_started) {
      callbacks_.exited(worker, status);
    }
  }
  loop_.Cancel(rescan_);
  if (std::exchange(scan_again_, false)) {
    RequestScan();
  } else if (any_left) {
    rescan_ = loop_.After(kRescanDelay, [this] { RequestScan(); });
  }
}

// A process that even SIGKILL does not end (it hangs in the kernel) keeps its slot until the
// deadline; waiting for ever would keep the job from ending.
bool LocalProcessTable::Overdue(Incarnation worker, const Entry& entry) const {
  if (loop_.Now() - entry.ended < kRemainsDeadline) {
    return false;
  }
  spdlog::error(
      "processes of worker #{} did not end {} s after SIGKILL; they may still hold its "
      "devices",
      worker.value,
      std::chrono::duration_cast<std::chrono::seconds>(kRemainsDeadline).count());
  return true;
}

}  // namespace muster::launcher
