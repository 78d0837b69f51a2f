// test_worker: the elastic program of the integration tests, on the public API alone. It sums 1.0
// over all ranks, step after step, and checks that the sum is the size and that its weights belong
// to its step count. Options make it misbehave in one exact way each; what it lives through goes to
// $TEST_LOG, one JSON line per event.

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "muster/elastic.h"
#include "muster/muster.h"
#include "worker_support.h"

namespace {

using muster::test::Arguments;
using muster::test::Environment;
using muster::test::EventLog;
using std::chrono::milliseconds;

constexpr const char* kUsage = R"(test_worker [option value]...
  --steps N            steps in all (200)
  --sleep-ms MS        pause per step (50)
  --commit-every K     0: never (5)
  --pad-mb M           extra state
  --die WHO@STEP:HOW   in the first start only, at this step of the State
  --die-always WHO@N:HOW  at the Nth step of every process
                       WHO: a rank, host or host/slot; HOW: KILL SEGV TERM ABRT or an exit code
                       several, separated by commas
  --hang WHO@STEP:MS   sleeps before this step, first start only
  --exit-later WHO@STEP:MS  exits with 0 so long after this step began, wherever it is by then
  --exit-before-init CODE   (-1: no)
  --exit-before-run CODE    leaves after init() (-1: no)
  --slow-file PATH     sleeps before elastic::run for as many ms as stand in the file, if it exists
  --done-delay WHO@MS  sleeps between the last step and the return
  --linger WHO@MS      sleeps between the return of elastic::run and shutdown()
  --say 1              each step prints "pid P rank R step S." to both streams
  --epilogue 1         averages a metric after elastic::run
  --ignore-term 1
  --term-file DIR      on SIGTERM writes DIR/<pid> after --term-delay-ms, then exits with 143
  --children N         children that have left the session and ignore SIGTERM
  --catch-lost 1       swallows WorkersLost and exits with 0
  --plain 1            no elastic::run
  --go-file PATH       stays in the loop past the last step until the file exists)";

// WHO@WHEN:HOW, WHO@WHEN.
struct Order {
  std::string who;
  int64_t when = 0;
  std::string how;
};

std::optional<Order> ParseOrder(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos) {
    return std::nullopt;
  }
  const size_t colon = text.find(':', at);
  Order order;
  order.who = text.substr(0, at);
  order.when = std::stoll(text.substr(at + 1));
  order.how = colon == std::string::npos ? "" : text.substr(colon + 1);
  return order;
}

std::vector<Order> ParseOrders(const std::string& text) {
  std::vector<Order> orders;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    if (const std::optional<Order> order = ParseOrder(part)) {
      orders.push_back(*order);
    }
  }
  return orders;
}

bool IsMe(const std::string& who) {
  const std::string host = Environment("MUSTER_HOST");
  return who == std::to_string(muster::rank()) || who == host ||
         who == host + "/" + std::to_string(muster::slot());
}

[[noreturn]] void Die(const std::string& how) {
  static const std::map<std::string, int> kSignals{
      {"KILL", SIGKILL}, {"SEGV", SIGSEGV}, {"TERM", SIGTERM}, {"ABRT", SIGABRT}};
  const auto it = kSignals.find(how);
  if (it == kSignals.end()) {
    std::cerr << "exits with " << how << " on purpose" << std::endl;
    ::_exit(std::stoi(how));
  }
  ::signal(it->second, SIG_DFL);
  ::kill(::getpid(), it->second);
  for (;;) {
    ::pause();
  }
}

void Pause(int64_t ms) {
  if (ms > 0) {
    std::this_thread::sleep_for(milliseconds(ms));
  }
}

// Blocked in every thread from before init(), so that the thread that waits for them gets them.
void StartSignalThread(const Arguments& arguments, const EventLog& log) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGUSR2);
  const bool takes_term = arguments.Has("ignore-term") || !arguments.Text("term-file").empty();
  if (takes_term) {
    sigaddset(&set, SIGTERM);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([&arguments, &log, set] {
    for (;;) {
      int signal = 0;
      sigwait(&set, &signal);
      log.WriteWithoutPlace(signal == SIGUSR1 ? "usr1" : signal == SIGUSR2 ? "usr2" : "term");
      const std::string folder = arguments.Text("term-file");
      if (signal == SIGTERM && !folder.empty()) {
        Pause(arguments.Number("term-delay-ms", 0));
        std::ofstream(folder + "/" + std::to_string(::getpid())) << "saved\n";
        ::_exit(128 + SIGTERM);
      }
    }
  }).detach();
}

// Before init(): the runtime must find them by the environment when this process is gone.
void StartChildren(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (::fork() == 0) {
      ::setsid();
      ::signal(SIGTERM, SIG_IGN);
      ::execlp("sleep", "sleep", "999", nullptr);
      ::_exit(127);
    }
  }
}

class Training {
 public:
  Training(const Arguments& arguments, const EventLog& log)
      : arguments_(arguments),
        log_(log),
        steps_(arguments.Number("steps", 200)),
        sleep_ms_(arguments.Number("sleep-ms", 50)),
        commit_every_(arguments.Number("commit-every", 5)),
        die_(ParseOrders(arguments.Text("die"))),
        die_always_(ParseOrder(arguments.Text("die-always"))),
        hang_(ParseOrders(arguments.Text("hang"))),
        exit_later_(ParseOrders(arguments.Text("exit-later"))),
        done_delay_(ParseOrder(arguments.Text("done-delay"))),
        weights_(16 + arguments.Number("pad-mb", 0) * 262144) {
    state_.value("step", step_);
    state_.tensor(
        "weights",
        {weights_.data(), muster::DType::kF32, {static_cast<int64_t>(weights_.size())}, {}});
    state_.register_reset_callbacks({[this] {
      ++resets_;
      log_.Write("callback", {{"step", step_}});
    }});
  }

  void RunElastic() {
    muster::elastic::run(state_, [this](muster::elastic::State&) { Loop(); });
  }

  void Loop() {
    if (!entered_) {
      entered_ = true;
      first_start_ = step_ == 0;
    }
    log_.Write("entry", {{"step", step_}, {"counter", counter_}});
    CheckWeights();
    while (step_ < steps_ || MustStay()) {
      TrainOneStep();
      if (commit_every_ > 0 && step_ % commit_every_ == 0) {
        state_.commit();
        log_.Write("commit", {{"step", step_}});
      }
      Pause(sleep_ms_);
    }
    if (done_delay_ && IsMe(done_delay_->who)) {
      Pause(done_delay_->when);
    }
    log_.Write("done", {{"step", step_}, {"counter", counter_}, {"checksum", Checksum()}});
  }

 private:
  // All ranks must stay equally long, so that the wish goes through an operation of its own.
  bool MustStay() {
    const std::string path = arguments_.Text("go-file");
    if (path.empty()) {
      return false;
    }
    return Sum(::access(path.c_str(), F_OK) == 0 ? 0.0F : 1.0F, "stay") > 0;
  }

  static float Sum(float value, const char* name) {
    muster::Options options;
    options.name = name;
    options.op = muster::Op::kSum;
    muster::Tensor tensor{&value, muster::DType::kF32, {}, {}};
    muster::allreduce(tensor, tensor, options);
    return value;
  }

  void TrainOneStep() {
    Misbehave();
    const float sum = SumOfOnes();
    if (sum != static_cast<float>(muster::size())) {
      log_.Write("wrong", {{"sum", sum}, {"step", step_}});
      std::cerr << "the sum of ones is " << sum << " at size " << muster::size() << std::endl;
      ::_exit(90);
    }
    ++step_;
    ++counter_;
    for (size_t i = 0; i < std::min<size_t>(weights_.size(), 16); ++i) {
      weights_[i] += sum / static_cast<float>(muster::size()) * static_cast<float>(i + 1);
    }
    muster::trace_step(step_);
    log_.Write("step", {{"step", step_}, {"counter", counter_}});
    if (arguments_.Has("say")) {
      Say();
    }
  }

  // Lines by which a reader finds out who wrote them, when, and whether one is missing.
  void Say() const {
    std::string line = "pid " + std::to_string(::getpid()) + " rank " +
                       std::to_string(muster::rank()) + " step " + std::to_string(step_) + ".\n";
    std::cout << line << std::flush;
    std::cerr << line << std::flush;
  }

  float SumOfOnes() {
    if (!arguments_.Has("catch-lost")) {
      return Sum(1, "s");
    }
    try {
      return Sum(1, "s");
    } catch (const muster::WorkersLost&) {
      log_.Write("swallowed", {{"step", step_}});
      std::exit(0);
    }
  }

  void Misbehave() {
    if (first_start_ && resets_ == 0) {
      MisbehaveAtStep();
    }
    if (die_always_ && counter_ + 1 == die_always_->when && IsMe(die_always_->who)) {
      log_.Write("dies", {{"step", step_}});
      Die(die_always_->how);
    }
  }

  void MisbehaveAtStep() {
    const auto is_now = [this](const Order& order) {
      return step_ + 1 == order.when && IsMe(order.who);
    };
    for (const Order& order : exit_later_) {
      if (is_now(order)) {
        std::thread([ms = std::stoll(order.how)] {
          Pause(ms);
          ::_exit(0);
        }).detach();
      }
    }
    for (const Order& order : hang_) {
      if (is_now(order)) {
        log_.Write("hangs", {{"step", step_}});
        Pause(std::stoll(order.how));
      }
    }
    for (const Order& order : die_) {
      if (is_now(order)) {
        log_.Write("dies", {{"step", step_}});
        Die(order.how);
      }
    }
  }

  // Weights are a function of the step count, so that a state mixed of two commits is seen.
  void CheckWeights() {
    for (size_t i = 0; i < 16; ++i) {
      if (weights_[i] != static_cast<float>(step_) * static_cast<float>(i + 1)) {
        log_.Write("wrong", {{"weight", weights_[i]}, {"step", step_}});
        std::cerr << "weight " << i << " is " << weights_[i] << " at step " << step_ << std::endl;
        ::_exit(91);
      }
    }
  }

  double Checksum() const {
    double sum = 0;
    for (const float weight : weights_) {
      sum = sum * 1.0000001 + static_cast<double>(weight);
    }
    return sum;
  }

  const Arguments& arguments_;
  const EventLog& log_;
  const int64_t steps_;
  const int64_t sleep_ms_;
  const int64_t commit_every_;
  const std::vector<Order> die_;
  const std::optional<Order> die_always_;
  const std::vector<Order> hang_;
  const std::vector<Order> exit_later_;
  const std::optional<Order> done_delay_;
  muster::elastic::State state_;
  int64_t step_ = 0;
  std::vector<float> weights_;
  // Of this process, not of the State.
  int64_t counter_ = 0;
  int64_t resets_ = 0;
  bool entered_ = false;
  bool first_start_ = true;
};

void AverageMetric(const EventLog& log) {
  auto value = static_cast<double>(muster::rank());
  muster::Options options;
  options.name = "metric";
  muster::Tensor tensor{&value, muster::DType::kF64, {}, {}};
  muster::allreduce(tensor, tensor, options);
  log.Write("metric", {{"value", value}});
}

void SleepIfSlow(const Arguments& arguments) {
  int64_t ms = 0;
  if (std::ifstream(arguments.Text("slow-file")) >> ms) {
    Pause(ms);
  }
}

int Train(const Arguments& arguments, const EventLog& log) {
  muster::init();
  log.Write("init");
  const int64_t before_run = arguments.Number("exit-before-run", -1);
  if (before_run >= 0) {
    ::_exit(static_cast<int>(before_run));
  }
  SleepIfSlow(arguments);
  Training training(arguments, log);
  if (arguments.Has("plain")) {
    training.Loop();
  } else {
    training.RunElastic();
  }
  if (arguments.Has("epilogue")) {
    AverageMetric(log);
  }
  const std::optional<Order> linger = ParseOrder(arguments.Text("linger"));
  if (linger && IsMe(linger->who)) {
    log.Write("lingers");
    Pause(linger->when);
  }
  muster::shutdown();
  log.Write("end");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // Leaked: the signal thread may use both until the process has ended.
  const auto& log = *new EventLog;
  const auto& arguments = *new Arguments(argc, argv, kUsage);
  log.Write("start");
  StartChildren(arguments.Number("children", 0));
  StartSignalThread(arguments, log);
  const int64_t before_init = arguments.Number("exit-before-init", -1);
  if (before_init >= 0) {
    std::cerr << "leaves before init() on purpose" << std::endl;
    return static_cast<int>(before_init);
  }
  try {
    return Train(arguments, log);
  } catch (const muster::Error& error) {
    std::cerr << "test_worker: " << error.what() << std::endl;
    while (!arguments.Text("term-file").empty()) {
      ::pause();  // Somebody who has something to save waits for SIGTERM.
    }
    return 1;
  }
}
