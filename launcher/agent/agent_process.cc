#include "launcher/agent/agent_process.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "common/log.h"
#include "common/loop.h"
#include "common/network.h"
#include "common/open_files.h"
#include "common/write_line.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/process_scan.h"
#include "launcher/agent/socket_directory.h"
#include "launcher/session/grpc_log.h"

namespace muster::launcher {
namespace {

constexpr Duration kFarewellPatience = std::chrono::seconds(1);
constexpr int kExitUnfit = 2;  // This host lacks what the job asks for.

class AgentProcess {
 public:
  AgentProcess(const v1::AgentBootstrap& bootstrap,
               std::string directory,
               UniqueFd reaper,
               LeasePage& lease,
               const std::optional<DialIn>& dial_in)
      : bootstrap_(bootstrap),
        directory_(std::move(directory)),
        reaper_(std::move(reaper)),
        lease_(lease),
        dial_in_(dial_in) {}

  int Run() {
    if (Status status = Start(); !status.ok()) {
      spdlog::error("{}", status.message());
      return status.code() == StatusCode::kInvalid ? kExitUnfit : kExitAbandoned;
    }
    loop_.Run();
    agent_.reset();
    return 0;
  }

 private:
  Status Start() {
    // Each worker costs some six descriptors, so a few hundred exceed the usual soft limit.
    if (Status raised = RaiseOpenFiles(); !raised.ok()) {
      spdlog::warn("{}", raised.message());
    }
    KeepSpareDescriptor();
    WatchSignals();
    WatchLifelines();
    Result<DriverSession::Options> driver = DriverOptions();
    if (!driver.ok()) {
      return driver.status();
    }
    agent_ = std::make_unique<Agent>(
        loop_,
        AgentOptions{bootstrap_.host(),
                     bootstrap_.job_id(),
                     directory_,
                     bootstrap_.start(),
                     dial_in_ ? dial_in_->slots : 0},
        std::move(driver).value(),
        Agent::Callbacks{[this] { loop_.Stop(); },
                         [this](const Status& status) { OnAbandoned(status); },
                         [this](Instant end) { lease_.Write(end); }});
    return agent_->Start();
  }

  Result<DriverSession::Options> DriverOptions() const {
    DriverSession::Options options;
    for (const v1::Address& address : bootstrap_.driver()) {
      options.addresses.push_back(address.literal());
    }
    options.secret = bootstrap_.secret();
    options.remote = bootstrap_.remote();
    if (dial_in_) {
      options.patience = dial_in_->patience;
    }
    if (options.remote && bootstrap_.network_interfaces_size() > 0) {
      const std::vector<std::string> wanted(bootstrap_.network_interfaces().begin(),
                                            bootstrap_.network_interfaces().end());
      const Result<std::vector<std::string>> own =
          ChooseAddresses(wanted, AddressFamily::kAny, LocalAddresses());
      if (!own.ok()) {
        return Status::Invalid("host " + bootstrap_.host() + ": " + own.status().message());
      }
      options.own_address = own.value().front();
    }
    return options;
  }

  void OnAbandoned(const Status& status) {
    if (!agent_->welcomed()) {
      spdlog::error("{}", status.message());
      ::_exit(dial_in_ && status.code() == StatusCode::kTimeout ? kExitNoDriver : kExitAbandoned);
    }
    const std::string why = status.ok() ? "the driver ended the stream" : status.message();
    EndEverything(spdlog::level::warn, why);
  }

  void WatchSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGCHLD, SIGTERM, SIGHUP}) {
      sigaddset(&signals, signal);
    }
    signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    loop_.Watch(signals_.get(), EPOLLIN, [this](uint32_t) { OnSignal(); });
  }

  void OnSignal() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) {
        agent_->OnChildSignal();
      } else {
        agent_->RequestDrain();
      }
    }
  }

  void WatchLifelines() {
    // Only the hang-up counts; it is not read, since the reaper has the same pipe.
    if (!bootstrap_.remote()) {
      loop_.Watch(STDIN_FILENO, EPOLLRDHUP, [this](uint32_t) {
        EndEverything(spdlog::level::info, "the driver is gone");
      });
    } else if (!dial_in_) {
      loop_.Watch(STDIN_FILENO, EPOLLRDHUP, [this](uint32_t) { OnShellGone(); });
    }
    loop_.Watch(reaper_.get(), EPOLLIN, [this](uint32_t) {
      reaper_gone_ = true;
      EndEverything(spdlog::level::warn, "the first process of this agent is gone");
    });
  }

  // Once the driver has taken this agent in, only the lease counts. Before, the driver has no use
  // for it any more, or is gone.
  void OnShellGone() {
    loop_.Unwatch(STDIN_FILENO);
    if (!agent_->welcomed()) {
      spdlog::info("the remote shell is gone before the driver has taken this agent in");
      ::_exit(kExitAbandoned);
    }
  }

  // Everything at once: no destructor of ours or of gRPC's may delay it. A reaper that is stopped
  // is woken, so that it can end too.
  [[noreturn]] void EndEverything(spdlog::level::level_enum level, const std::string& why) {
    spdlog::log(level, "all workers of this host are killed: {}", why);
    const SweepTarget target{
        bootstrap_.job_id(), bootstrap_.host(), true, bootstrap_.remote() ? directory_ : ""};
    const bool all = Sweep(target, kSweepDeadline);
    if (!all) {
      spdlog::error("some processes of this job do not end; look for MUSTER_JOB={}",
                    bootstrap_.job_id());
    }
    if (reaper_gone_) {
      RemoveSocketDirectory(directory_);
      if (all && !bootstrap_.farewell().empty()) {
        // Nobody else is left to say so.
        WriteLine(STDOUT_FILENO, bootstrap_.farewell(), kFarewellPatience);
      }
    } else {
      ::kill(::getppid(), SIGCONT);
    }
    ::_exit(kExitAbandoned);
  }

  const v1::AgentBootstrap& bootstrap_;
  const std::string directory_;
  const UniqueFd reaper_;
  LeasePage& lease_;
  const std::optional<DialIn> dial_in_;
  bool reaper_gone_ = false;
  UniqueFd signals_;
  Loop loop_;
  std::unique_ptr<Agent> agent_;
};

}  // namespace

int RunAgentProper(const v1::AgentBootstrap& bootstrap,
                   const std::string& directory,
                   UniqueFd reaper,
                   LeasePage& lease,
                   const std::optional<DialIn>& dial_in) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::pthread_setname_np(::pthread_self(), "muster-agent");
  RedirectGrpcLog();
  return AgentProcess(bootstrap, directory, std::move(reaper), lease, dial_in).Run();
}

}  // namespace muster::launcher
