#include "launcher/chaos/run_chaos.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <random>
#include <utility>

#include "launcher/chaos/chaos.h"

namespace muster::launcher {
namespace {

constexpr int kUsageError = 2;

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "muster: %s\n", message.c_str());
  return code;
}

void BlockSignals() {
  const sigset_t set = EndSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A reader of the output that goes away must not leave a stopped process behind, nor a terminal
  // that lets no job of the background write.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGTTOU, SIG_IGN);
}

}  // namespace

Result<std::vector<ChaosKind>> KindsToRun(const std::vector<ChaosKind>& asked,
                                          const std::vector<std::string>& hooks) {
  for (const std::string& hook : hooks) {
    if (IsBuiltInChaos(hook)) {
      return Status::Invalid("a hook cannot be called " + hook + ": that is a kind already");
    }
  }
  if (asked.empty()) {
    std::vector<ChaosKind> all = BuiltInChaos();
    for (const std::string& hook : hooks) {
      all.push_back({hook, 1});
    }
    return all;
  }
  for (const ChaosKind& kind : asked) {
    if (!IsBuiltInChaos(kind.name) &&
        std::find(hooks.begin(), hooks.end(), kind.name) == hooks.end()) {
      return Status::Invalid(kind.name + " is neither a built-in kind nor a program in --hook-dir");
    }
  }
  return asked;
}

int RunChaos(ChaosOptions options) {
  BlockSignals();
  std::vector<std::string> hooks;
  if (!options.hook_directory.empty()) {
    Result<std::vector<std::string>> listed = ListHooks(options.hook_directory);
    if (!listed.ok()) {
      return Fail(kUsageError, listed.status().message());
    }
    hooks = std::move(listed).value();
  }
  Result<std::vector<ChaosKind>> kinds = KindsToRun(options.kinds, hooks);
  if (!kinds.ok()) {
    return Fail(kUsageError, kinds.status().message());
  }
  options.kinds = std::move(kinds).value();
  const Result<std::string> job = FindRunningJob(options.job);
  if (!job.ok()) {
    return Fail(1, job.status().message());
  }
  options.job = job.value();
  const uint64_t seed = options.seed ? *options.seed : std::random_device()();
  Chaos chaos(options, seed);
  if (const Status opened = chaos.OpenLog(); !opened.ok()) {
    return Fail(kUsageError, opened.message());
  }
  SayChaos("job " + options.job + ", seed " + std::to_string(seed));
  return chaos.Run();
}

}  // namespace muster::launcher
