#include "bench/control_plane.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "bench/process_waits.h"
#include "common/secret.h"

namespace muster::bench {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr Duration kLookInterval = std::chrono::milliseconds(10);
// What the driver says once agents may dial in, and how its addresses go on.
constexpr std::string_view kInvitation = "muster agent --join ";

int64_t Nanoseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Nobody else may read it: muster refuses such files.
Status WriteSecret(const std::string& path, const std::string& secret) {
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() ||
      ::write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return Status::Failed("cannot write " + path + ": " + std::strerror(errno));
  }
  return Status::Ok();
}

void KeepLargest(ControlTraffic& largest, const ControlTraffic& traffic) {
  if (traffic.bytes_max > largest.bytes_max) {
    largest = traffic;
  }
}

}  // namespace

Result<std::unique_ptr<ControlPlane>> ControlPlane::Start(const ControlPlaneOptions& options,
                                                          std::chrono::milliseconds& started) {
  Result<TempDirectory> directory = TempDirectory::Make();
  if (!directory.ok()) {
    return directory.status();
  }
  std::unique_ptr<ControlPlane> plane(new ControlPlane(options, std::move(directory).value()));
  const std::string secret = RandomHex(kSecretBytes);
  if (Status status = plane->StartDriver(secret); !status.ok()) {
    return status;
  }
  const Result<std::string> address = plane->AwaitDriverAddress();
  if (!address.ok()) {
    return address.status();
  }
  const Instant begin = plane->loop_.Now();
  Status status = plane->StartAgents(address.value(), secret);
  if (status.ok()) {
    status = plane->AwaitWorld(plane->full_size(), 0, "the first world");
  }
  if (!status.ok()) {
    return status;
  }
  started = std::chrono::duration_cast<std::chrono::milliseconds>(plane->loop_.Now() - begin);
  return plane;
}

ControlPlane::~ControlPlane() {
  if (driver_) {
    loop_.Unwatch(driver_->pidfd());
  }
  loop_.Unwatch(InterruptFd());
}

Status ControlPlane::StartDriver(const std::string& secret) {
  const std::string secret_path = directory_.path() + "/secret";
  if (Status status = WriteSecret(secret_path, secret); !status.ok()) {
    return status;
  }
  const std::string size = std::to_string(full_size());
  const std::string cooldown = std::to_string(options_.cooldown_s);
  // No agent executes the program.
  Result<DriverProcess> driver = DriverProcess::Start({Beside("muster"),
                                                       "run",
                                                       "-np",
                                                       size,
                                                       "--min-np",
                                                       "1",
                                                       "--max-np",
                                                       size,
                                                       "--accept-agents",
                                                       "0",
                                                       "--secret-file",
                                                       secret_path,
                                                       "--blacklist-cooldown-range",
                                                       cooldown,
                                                       cooldown,
                                                       "true"},
                                                      {},
                                                      directory_.path() + "/stderr");
  if (!driver.ok()) {
    return driver.status();
  }
  driver_.emplace(std::move(driver).value());
  loop_.Watch(driver_->pidfd(), EPOLLIN, [this](uint32_t) { Fail("the job ended"); });
  loop_.Watch(InterruptFd(), EPOLLIN, [this](uint32_t) { Fail("interrupted"); });
  return Status::Ok();
}

Result<std::string> ControlPlane::AwaitDriverAddress() {
  std::string address;
  const std::function<void()> look = [&] {
    const std::string text = TextOf(driver_->error_path());
    const size_t found = text.find(kInvitation);
    const size_t begin = found + kInvitation.size();
    const size_t end = found == std::string::npos ? found : text.find_first_of(", ", begin);
    if (end != std::string::npos) {
      address = text.substr(begin, end - begin);
    }
    Check();
  };
  // Each look asks for the next one, as long as this function waits.
  Loop::TimerId timer;
  const std::function<void()> again = [&] {
    look();
    timer = loop_.After(kLookInterval, again);
  };
  again();
  Status status = RunUntil([&] { return !address.empty(); }, "the driver's address");
  loop_.Cancel(timer);
  return status.ok() ? Result<std::string>(address) : Result<std::string>(status);
}

Status ControlPlane::StartAgents(const std::string& address, const std::string& secret) {
  for (int i = 0; i < options_.agents; ++i) {
    const std::string host = "fake-" + std::to_string(i);
    agents_.push_back(std::make_unique<FakeAgent>(
        loop_,
        FakeAgentOptions{host, static_cast<uint32_t>(options_.workers), address, secret},
        FakeAgent::Callbacks{[this] { Check(); },
                             [this, host](const Status& status) {
                               Fail(host + " lost the driver: " + status.message());
                             }}));
    if (Status status = agents_.back()->Start(); !status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

Status ControlPlane::RunUntil(std::function<bool()> done, const std::string& what) {
  done_ = std::move(done);
  const Loop::TimerId timer = loop_.After(options_.timeout, [this, &what] {
    Fail("not within " + std::to_string(options_.timeout.count()) + " s: " + what);
  });
  if (failure_.ok() && !done_()) {
    loop_.Run();
  }
  loop_.Cancel(timer);
  done_ = nullptr;
  return failure_.ok() ? failure_ : driver_->Failure(failure_.message());
}

void ControlPlane::Check() {
  if (done_ && done_()) {
    done_ = nullptr;  // Stop lets what is posted run to its end.
    loop_.Stop();
  }
}

// The first one counts. Nothing is awaited when an agent's stream ends with the bench.
void ControlPlane::Fail(const std::string& message) {
  if (failure_.ok()) {
    failure_ = Status::Failed(message);
  }
  loop_.Stop();
}

bool ControlPlane::ToldOf(size_t size, uint64_t after_generation) const {
  return std::all_of(agents_.begin(), agents_.end(), [&](const auto& agent) {
    return agent->host().generation() > after_generation && agent->host().world_size() == size;
  });
}

Instant ControlPlane::ToldAt() const {
  Instant last;
  for (const auto& agent : agents_) {
    last = std::max(last, agent->told_at());
  }
  return last;
}

Status ControlPlane::AwaitWorld(size_t size, uint64_t after_generation, const std::string& what) {
  const Status status = RunUntil(
      [&] {
        return ToldOf(size, after_generation) &&
               std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) {
                 return agent->acknowledged();
               });
      },
      what + ", of " + std::to_string(size));
  if (status.ok()) {
    for (const auto& agent : agents_) {
      agent->Sync();
    }
  }
  return status;
}

ControlTraffic ControlPlane::TakeTraffic() {
  ControlTraffic traffic;
  for (const auto& agent : agents_) {
    traffic.bytes_max = std::max(traffic.bytes_max, agent->traffic().bytes);
    traffic.orders_max = std::max(traffic.orders_max, agent->traffic().orders);
    traffic.bytes_total += agent->traffic().bytes;
    agent->ResetTraffic();
  }
  return traffic;
}

Status ControlPlane::Lose(ControlTimes& times) {
  // The reports of the last sync are no part of what is measured.
  Status status = RunUntil(
      [this] {
        return std::all_of(agents_.begin(), agents_.end(), [](const auto& agent) {
          return agent->acknowledged();
        });
      },
      "the driver's acknowledgement of all reports");
  if (!status.ok()) {
    return status;
  }
  TakeTraffic();
  FakeAgent& agent = *agents_[random_.Below(agents_.size())];
  const std::vector<uint64_t>& members = agent.host().members();
  const uint64_t generation = agent.host().generation();
  const Instant begin = loop_.Now();
  agent.Lose(members[random_.Below(members.size())]);
  status = AwaitWorld(full_size() - 1, generation, "the world without the lost worker");
  if (!status.ok()) {
    return status;
  }
  const Instant formed = loop_.Now();
  const Instant told = ToldAt();
  const ControlTraffic loss = TakeTraffic();
  status = AwaitWorld(full_size(), generation + 1, "full size again");
  if (!status.ok()) {
    return status;
  }
  Instant pending = Instant::max();
  for (const auto& each : agents_) {
    pending = std::min(pending, each->pending_at());
  }
  times.told.Add(Nanoseconds(told - begin));
  times.formed.Add(Nanoseconds(formed - begin));
  times.grown.Add(Nanoseconds(loop_.Now() - pending));
  KeepLargest(times.loss, loss);
  KeepLargest(times.growth, TakeTraffic());
  return Status::Ok();
}

}  // namespace muster::bench
