#pragma once

// DiscoveryPoller: asks a HostSource for the hosts again and again, on a thread of its own, so that
// a slow script never holds up a loop thread. It judges nothing: whether an error is fatal is for
// whoever gets it.
//
// Thread contract: Start once, Stop and the destructor from the thread that started it, never from
// the callback. The callback runs on the poller's thread and should only post.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "common/clock.h"
#include "discovery/host_source.h"

namespace muster::discovery {

class DiscoveryPoller {
 public:
  /// One call per poll, in order. A warning is in the list of hosts only the first time that it
  /// comes up; an error comes with every failed poll.
  using Callback = std::function<void(Result<HostList>)>;

  /// Polls `interval` apart, start to start; a poll that takes longer delays the next, which then
  /// follows at once: two never run together.
  /// `source` outlives the poller.
  DiscoveryPoller(HostSource& source, Duration interval, Callback callback);
  ~DiscoveryPoller();
  DiscoveryPoller(const DiscoveryPoller&) = delete;
  DiscoveryPoller& operator=(const DiscoveryPoller&) = delete;

  void Start();

  /// Cancels the poll under way and waits for the thread: as long as the source takes to obey
  /// Cancel. After it has returned the callback is not called any more. May be called twice.
  void Stop();

 private:
  void Run(std::stop_token stop);
  void KeepNewWarnings(HostList& list);

  HostSource& source_;
  const Duration interval_;
  const Callback callback_;
  std::set<std::string> warned_;  // The poller's thread only.

  std::mutex mutex_;
  std::condition_variable_any wake_;  // Waits for the stop token alone.
  std::jthread thread_;
};

}  // namespace muster::discovery
