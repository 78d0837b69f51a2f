#include "test/sim/job/job_sim.h"

#include <algorithm>
#include <utility>

#include "launcher/driver/driver.h"
#include "test/sim/job/sim_generation.h"
#include "test/sim/job/sim_worker.h"

namespace muster::sim {
namespace {

using launcher::RunOptions;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// All is healed at 25 s; what is waited for then has limits of its own.
constexpr Duration kEndAtLatest = minutes(6);
// After the driver has gone, on top of lease and grace: an agent that was stopped while it started
// looks for its driver for 10 s from when it goes on.
constexpr Duration kLeftovers = seconds(20);
// On the driver's machine: a stopped agent is ended by its reaper a second later.
constexpr Duration kLocalLeftovers = seconds(2);
constexpr int64_t kDriftMax = 2000;  // ppm

/// Thrown through the driver, which does not catch it, when it is killed.
struct DriverKilled {};

}  // namespace

JobSim::JobSim(const Options& options) : universe_(options.seed), site_(universe_, *this) {
  if (options.keep_log) {
    universe_.KeepLog();
  }
  universe_.SetEventLimit(options.steps_max);
  universe_.SetEndOfTime(universe_.now() + kEndAtLatest);
  Draw();
}

JobSim::~JobSim() = default;

void JobSim::Draw() {
  DrawHosts();
  uint32_t slots = 0;
  for (const discovery::ListedHost& host : all_hosts_) {
    slots += host.slots;
  }
  options_.command = {"train"};
  options_.script = "discover";
  options_.log_level = "ERROR";
  launcher::MembershipOptions& membership = options_.membership;
  membership.elastic = universe_.Chance(93);
  membership.np_start = static_cast<uint32_t>(1 + universe_.Below(slots));
  membership.np_min = static_cast<uint32_t>(1 + universe_.Below(membership.np_start));
  if (!membership.elastic) {
    membership.np_min = membership.np_start;
    membership.np_max = membership.np_start;
  } else if (universe_.Chance(70)) {
    membership.np_max = membership.np_start + static_cast<uint32_t>(universe_.Below(3));
    membership.spares = static_cast<uint32_t>(universe_.Below(3));
  }
  membership.start_timeout = universe_.Between(seconds(4), seconds(15));
  membership.elastic_timeout = universe_.Between(seconds(20), seconds(90));
  membership.grace = universe_.Between(milliseconds(500), seconds(6));
  membership.driver_grace = universe_.Between(seconds(3), seconds(10));
  if (universe_.Chance(12)) {
    membership.reset_limit = static_cast<uint32_t>(universe_.Below(4));
  }
  if (universe_.Chance(8)) {
    membership.failure_limit = static_cast<uint32_t>(universe_.Below(4));
  }
  if (universe_.Chance(70)) {
    membership.cooldown = launcher::CooldownRange{seconds(1), seconds(4)};
  }
  membership.blame_host = universe_.Chance(10);
  site_.program.steps = 5 + universe_.Below(60);
  site_.program.slow_start = universe_.Chance(30) ? 10 : 0;
  site_.program.crash_at_start = universe_.Chance(15) ? 20 : 0;
  site_.program.crash_at_end = universe_.Chance(15) ? 10 : 0;
  site_.program.ignores_term = universe_.Chance(20);
  site_.program.checks_between = universe_.Chance(30);
  site_.stream_breaks = universe_.Chance(30) ? 1 + universe_.Below(20) : 0;
  site_.program.fork_fails = universe_.Chance(10) ? 5 : 0;
  plain_ = !membership.reset_limit && !membership.failure_limit &&
           site_.program.crash_at_start == 0 && site_.program.slow_start == 0 &&
           site_.program.crash_at_end == 0 && site_.program.fork_fails == 0;
  site_.poll = [this] { return Poll(); };
}

void JobSim::DrawHosts() {
  const uint64_t count = 1 + universe_.Below(4);
  remote_ = universe_.Chance(70);
  for (uint64_t i = 0; i < count; ++i) {
    const HostId host{std::string(1, static_cast<char>('a' + i))};
    const auto slots = static_cast<uint32_t>(1 + universe_.Below(3));
    const bool local = !remote_ || universe_.Chance(30);
    const int64_t drift =
        local ? 0 : static_cast<int64_t>(universe_.Below(2 * kDriftMax + 1)) - kDriftMax;
    site_.AddMachine(host, slots, local, drift);
    all_hosts_.push_back({host, slots});
  }
  listed_ = all_hosts_;
}

Result<discovery::HostList> JobSim::Poll() {
  if (!healed_ && polled_ && universe_.Chance(5)) {
    return Status::Failed("discover exited with code 1");
  }
  polled_ = true;
  return discovery::HostList{options_.membership.elastic ? listed_ : all_hosts_, {}};
}

std::string JobSim::Run() {
  PlanFaults();
  RunDriver();
  if (!universe_.over()) {
    AwaitQuiet();
  }
  return universe_.wrong();
}

void JobSim::RunDriver() {
  site_.driver_process = universe_.NewProcess("driver", kDriverMachine, 0);
  // The driver's own code runs in it from the first line on.
  std::optional<launcher::Driver> driver;
  bool ended = false;
  universe_.In(site_.driver_process, Duration::zero(), [&] {
    try {
      driver.emplace(options_, "the secret of a simulated job");
      exit_code_ = driver->Run();
    } catch (const DriverKilled&) {
      exit_code_.reset();
    }
    ended = true;
  });
  universe_.Run([&] { return ended; });
  universe_.End(site_.driver_process);
  driver.reset();
  for (const auto& [host, machine] : site_.machines) {
    machine->OnDriverGone();
  }
}

void JobSim::KillDriver() {
  universe_.Note("the driver is killed");
  throw DriverKilled{};
}

// What the driver has left behind ends by itself.
void JobSim::AwaitQuiet() {
  universe_.SetEndOfTime(Instant::max());
  universe_.At(kLocalLeftovers, [this] { CheckDriversMachine(); });
  const Instant latest =
      universe_.now() + options_.membership.driver_grace + kLeftovers + options_.membership.grace;
  universe_.At(latest - universe_.now(), [] {});
  universe_.Run([&] { return universe_.now() >= latest; });
  CheckEnd();
}

}  // namespace muster::sim
