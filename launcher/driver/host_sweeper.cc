#include "launcher/driver/host_sweeper.h"

#include <chrono>
#include <utility>

#include "common/log.h"
#include "launcher/agent/process_scan.h"

namespace muster::launcher {
namespace {

constexpr Duration kSweepPatience = std::chrono::seconds(4);

}  // namespace

HostSweeper::HostSweeper(Loop& loop, std::string job) : loop_(loop), job_(std::move(job)) {}

HostSweeper::~HostSweeper() {
  Stop();
}

void HostSweeper::Start(const HostId& host, std::function<void()> done) {
  const uint64_t number = ++last_;
  sweeps_[number] = std::jthread([this, number, host, done = std::move(done)] {
    if (!Sweep({job_, host.value, false}, kSweepPatience)) {
      spdlog::error("host {}: processes of the lost agent's workers are still there", host.value);
    }
    loop_.Post([this, number, done] {
      sweeps_.erase(number);  // It ends with this.
      done();
    });
  });
}

void HostSweeper::Stop() {
  sweeps_.clear();
}

}  // namespace muster::launcher
