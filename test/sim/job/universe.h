#pragma once

// Universe: virtual time, chance, and the processes of one simulated job. Production code reaches
// it through the edges that stand in for clocks, threads, sockets and processes (edges_*.cc), by
// Universe::Get(). One seed gives one story.
//
// One universe at a time, one thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/loop.h"
#include "common/random.h"

namespace muster::sim {

using Action = std::function<void()>;

/// Something that a SIGSTOP stops and a SIGKILL ends.
struct Process {
  int pid = 0;
  std::string name;     // For the log.
  std::string address;  // Of its machine.
  bool alive = true;
  bool stopped = false;
  int64_t drift_ppm = 0;        // Its machine's clock against virtual time.
  std::vector<Action> put_off;  // Until it goes on.
};
using ProcessPtr = std::shared_ptr<Process>;  // Shared by whoever still has news for it.

class Universe {
 public:
  explicit Universe(uint64_t seed);
  ~Universe();
  Universe(const Universe&) = delete;
  Universe& operator=(const Universe&) = delete;

  /// The one that exists.
  static Universe& Get();

  Instant now() const { return now_; }
  uint64_t events() const { return events_; }

  uint64_t Below(uint64_t bound) { return random_.Below(bound); }
  bool Chance(uint64_t percent) { return Below(100) < percent; }
  Duration Between(Duration low, Duration high);

  ProcessPtr NewProcess(std::string name, std::string address, int64_t drift_ppm);
  /// It has ended: nothing happens in it any more.
  void End(const ProcessPtr& process);
  void Stop(const ProcessPtr& process);
  void Continue(const ProcessPtr& process);
  /// Whose code runs now; null: nobody's.
  const ProcessPtr& current() const { return current_; }
  /// Its clock; virtual time if nobody's code runs.
  Instant ClockOfCurrent() const;

  /// Happens to the world.
  void At(Duration delay, Action action);
  /// Happens in the process: never if it has ended by then, later if it is stopped.
  void In(const ProcessPtr& process, Duration delay, Action action);

  // For Loop. A loop belongs to the process in whose code it was made.
  void Register(const Loop& loop);
  void Unregister(const Loop& loop);
  void Wake(const Loop& loop, Duration delay, Action step);
  /// `delay` of the process's clock.
  void WakeAfter(const Loop& loop, Duration delay, Action step);

  /// Lets things happen until `until` holds, nothing is left, or the end of time has come.
  void Run(const std::function<bool()>& until);
  void SetEndOfTime(Instant end) { end_of_time_ = end; }
  /// Stops everything after so many events; 0: never.
  void SetEventLimit(uint64_t limit) { event_limit_ = limit; }
  /// A rule was broken: the first one counts, and the story ends.
  void Wrong(const std::string& what);
  const std::string& wrong() const { return wrong_; }
  bool over() const { return !wrong_.empty(); }

  /// A line of the story; kept if `log` was asked for.
  void Note(const std::string& what);
  void KeepLog() { keep_log_ = true; }
  bool keeps_log() const { return keep_log_; }
  const std::vector<std::string>& log() const { return log_; }

 private:
  struct Entry {
    Instant at;
    uint64_t number;
    ProcessPtr process;
    Action action;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return std::pair(b.at, b.number) < std::pair(a.at, a.number);
    }
  };
  struct LoopState {
    ProcessPtr process;
    uint64_t number = 0;  // Tells it from an earlier one at the same address.
    bool woken = false;
  };

  void Push(Instant at, ProcessPtr process, Action action);
  void Perform(const Entry& entry);

  Random random_;
  Instant now_{};
  Instant end_of_time_ = Instant::max();
  uint64_t event_limit_ = 0;
  uint64_t events_ = 0;
  uint64_t next_entry_ = 0;
  uint64_t next_loop_ = 0;
  int next_pid_ = 1000;
  std::vector<std::weak_ptr<Process>> processes_;
  std::priority_queue<Entry, std::vector<Entry>, Later> queue_;
  std::map<const Loop*, LoopState> loops_;
  ProcessPtr current_;
  std::string wrong_;
  bool keep_log_ = false;
  std::vector<std::string> log_;
};

}  // namespace muster::sim
