#include "discovery/discovery_poller.h"

#include <pthread.h>

#include <utility>

namespace muster::discovery {
namespace {

// A source whose warnings differ at every poll must not grow the memory for ever; after this many
// it may repeat itself.
constexpr size_t kRememberedWarningsMax = 1000;

}  // namespace

DiscoveryPoller::DiscoveryPoller(HostSource& source, Duration interval, Callback callback)
    : source_(source), interval_(interval), callback_(std::move(callback)) {}

DiscoveryPoller::~DiscoveryPoller() {
  Stop();
}

void DiscoveryPoller::Start() {
  MUSTER_CHECK(!thread_.joinable(), "started twice");
  thread_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
}

void DiscoveryPoller::Stop() {
  if (!thread_.joinable()) {
    return;
  }
  thread_.request_stop();
  source_.Cancel();
  thread_.join();
}

void DiscoveryPoller::Run(std::stop_token stop) {
  pthread_setname_np(pthread_self(), "discovery");
  const SteadyClock clock;
  while (!stop.stop_requested()) {
    const Instant next = clock.Now() + interval_;
    Result<HostList> result = source_.Poll();
    if (stop.stop_requested()) {
      return;  // The result may be one that Cancel cut short.
    }
    if (result.ok()) {
      KeepNewWarnings(result.value());
    }
    callback_(std::move(result));
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, stop, next, [] { return false; });
  }
}

void DiscoveryPoller::KeepNewWarnings(HostList& list) {
  if (warned_.size() > kRememberedWarningsMax) {
    warned_.clear();
  }
  std::erase_if(list.warnings,
                [this](const std::string& warning) { return !warned_.insert(warning).second; });
}

}  // namespace muster::discovery
