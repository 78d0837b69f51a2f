#include "test/sim/job/universe.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include "common/check.h"

namespace muster::sim {
namespace {

Universe* g_universe = nullptr;
// Clocks do not start at zero.
constexpr Duration kBeginning = std::chrono::seconds(1000);
// How long a loop takes to notice what was posted to it.
constexpr Duration kWakeMax = std::chrono::microseconds(300);

}  // namespace

Universe::Universe(uint64_t seed) : random_(seed), now_(kBeginning) {
  MUSTER_CHECK(g_universe == nullptr, "there is a universe already");
  g_universe = this;
}

Universe::~Universe() {
  for (const std::weak_ptr<Process>& held : processes_) {
    if (const ProcessPtr process = held.lock()) {
      End(process);
    }
  }
  g_universe = nullptr;
}

Universe& Universe::Get() {
  MUSTER_CHECK(g_universe != nullptr, "there is no universe");
  return *g_universe;
}

Duration Universe::Between(Duration low, Duration high) {
  return low + Duration(Below(static_cast<uint64_t>((high - low).count()) + 1));
}

ProcessPtr Universe::NewProcess(std::string name, std::string address, int64_t drift_ppm) {
  auto process = std::make_shared<Process>();
  process->pid = next_pid_++;
  process->name = std::move(name);
  process->address = std::move(address);
  process->drift_ppm = drift_ppm;
  processes_.push_back(process);
  return process;
}

// What was put off may hold the process itself.
void Universe::End(const ProcessPtr& process) {
  process->alive = false;
  const std::vector<Action> dropped = std::exchange(process->put_off, {});
}

void Universe::Stop(const ProcessPtr& process) {
  process->stopped = true;
}

void Universe::Continue(const ProcessPtr& process) {
  if (!std::exchange(process->stopped, false)) {
    return;
  }
  for (Action& action : std::exchange(process->put_off, {})) {
    Push(now_, process, std::move(action));
  }
}

Instant Universe::ClockOfCurrent() const {
  const int64_t drift = current_ == nullptr ? 0 : current_->drift_ppm;
  const int64_t since = (now_ - Instant(kBeginning)).count();
  return now_ + Duration(since * drift / 1'000'000);
}

void Universe::At(Duration delay, Action action) {
  Push(now_ + delay, nullptr, std::move(action));
}

void Universe::In(const ProcessPtr& process, Duration delay, Action action) {
  Push(now_ + delay, process, std::move(action));
}

void Universe::Push(Instant at, ProcessPtr process, Action action) {
  queue_.push({at, next_entry_++, std::move(process), std::move(action)});
}

void Universe::Register(const Loop& loop) {
  loops_[&loop] = {current_, next_loop_++, false};
}

void Universe::Unregister(const Loop& loop) {
  loops_.erase(&loop);
}

void Universe::Wake(const Loop& loop, Duration delay, Action step) {
  const auto it = loops_.find(&loop);
  if (it == loops_.end() || std::exchange(it->second.woken, true)) {
    return;
  }
  const Duration later = delay + Duration(Below(static_cast<uint64_t>(kWakeMax.count())));
  In(it->second.process,
     later,
     [this, loop = &loop, number = it->second.number, step = std::move(step)] {
       const auto found = loops_.find(loop);
       if (found != loops_.end() && found->second.number == number) {
         found->second.woken = false;
         step();
       }
     });
}

void Universe::WakeAfter(const Loop& loop, Duration delay, Action step) {
  const auto it = loops_.find(&loop);
  if (it == loops_.end()) {
    return;
  }
  const int64_t drift = it->second.process == nullptr ? 0 : it->second.process->drift_ppm;
  // Rounded up, so that the process's own clock shows the time when it is woken.
  const Duration later = Duration(delay.count() * 1'000'000 / (1'000'000 + drift) + 2);
  In(it->second.process,
     later,
     [this, loop = &loop, number = it->second.number, step = std::move(step)] {
       const auto found = loops_.find(loop);
       if (found != loops_.end() && found->second.number == number) {
         step();
       }
     });
}

void Universe::Run(const std::function<bool()>& until) {
  // Who runs the driver's loop is the driver; what happens meanwhile happens to others too.
  const ProcessPtr caller = current_;
  while (!over() && !until()) {
    if (queue_.empty()) {
      Wrong("nothing is going to happen any more");
      break;
    }
    if (queue_.top().at > end_of_time_) {
      Wrong("the job does not come to an end");
      break;
    }
    if (event_limit_ != 0 && events_ >= event_limit_) {
      break;
    }
    Entry entry = queue_.top();
    queue_.pop();
    now_ = std::max(now_, entry.at);
    ++events_;
    Perform(entry);
  }
  current_ = caller;
}

void Universe::Perform(const Entry& entry) {
  if (entry.process != nullptr && !entry.process->alive) {
    return;
  }
  if (entry.process != nullptr && entry.process->stopped) {
    entry.process->put_off.push_back(entry.action);
    return;
  }
  current_ = entry.process;
  entry.action();
  current_ = nullptr;
}

void Universe::Wrong(const std::string& what) {
  if (wrong_.empty()) {
    wrong_ = what;
    Note("WRONG: " + what);
  }
}

void Universe::Note(const std::string& what) {
  if (!keep_log_) {
    return;
  }
  std::ostringstream line;
  const auto since = (now_ - Instant(kBeginning)).count();
  line << std::setw(6) << since / 1'000'000 << '.' << std::setw(6) << std::setfill('0')
       << since % 1'000'000 << "  " << what;
  log_.push_back(line.str());
}

}  // namespace muster::sim
