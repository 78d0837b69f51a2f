#include "launcher/agent/silence_judge.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace muster::launcher {
namespace {

constexpr auto kWell = SilenceVerdict::kWell;
constexpr auto kStarved = SilenceVerdict::kStarved;
constexpr auto kFrozen = SilenceVerdict::kFrozen;
constexpr auto kSilent = SilenceVerdict::kSilent;
constexpr int kInterval = 200;

// Samples of one worker in the agent's rhythm. A letter is a thread's state without a tick since
// the sample before; with a tick it is followed by '+'; '.' is a sample that the agent missed.
SilenceVerdict JudgeAll(const std::string& samples) {
  SilenceJudge judge;
  SilenceVerdict verdict = kWell;
  uint64_t ticks = 0;
  int at = 0;
  for (size_t i = 0; i < samples.size(); ++i, at += kInterval) {
    const char state = samples[i];
    if (i + 1 < samples.size() && samples[i + 1] == '+') {
      ++ticks;
      ++i;
    }
    if (state != '.') {
      verdict =
          judge.Judge({ticks, ActivityOf({&state, 1})}, Instant{} + std::chrono::milliseconds(at));
    }
  }
  return verdict;
}

std::string Times(int count, const std::string& samples) {
  std::string all;
  for (int i = 0; i < count; ++i) {
    all += samples;
  }
  return all;
}

// What the agent asks before it excuses a sleeping engine for another thread that runs.
TEST_CASE("silence judge tells for how long nothing has ticked, whatever was done meanwhile") {
  SilenceJudge judge;
  Instant now{};
  const auto sample = [&](uint64_t ticks, Activity activity) {
    now += std::chrono::milliseconds(200);
    std::ignore = judge.Judge({ticks, activity}, now);
  };
  sample(1, Activity::kAsleep);
  sample(2, Activity::kAsleep);
  CHECK(judge.without_tick() == Duration::zero());
  for (int i = 0; i < 10; ++i) {
    sample(2, i % 2 == 0 ? Activity::kRunnable : Activity::kAsleep);
  }
  CHECK(judge.without_tick() == std::chrono::seconds(2));
  CHECK(judge.quiet() < std::chrono::seconds(1));
  sample(3, Activity::kAsleep);
  CHECK(judge.without_tick() == Duration::zero());
}

}  // namespace

TEST_CASE("silence judge gives the verdict on the newest sample") {
  struct Row {
    const char* what;
    std::string samples;
    SilenceVerdict want;
  };
  const std::vector<Row> rows{
      {"ticking", Times(50, "S+"), kWell},
      {"ticking between stops", Times(50, "T+"), kWell},
      {"stopped for less than a second", "S+T+" + Times(4, "T"), kWell},
      {"stopped for a second", "S+T+" + Times(5, "T"), kFrozen},
      {"the first sample has no past", "T" + Times(4, "T"), kWell},
      {"stopped since before the first sample", "T" + Times(5, "T"), kFrozen},
      {"continued in between, with a tick", "S+TTTTT+TTTT", kWell},
      {"continued in between, seen asleep", "S+TTTTSTTTTT", kWell},
      {"continued in between, waiting for a CPU", "S+TTTTRTTTTT", kWell},
      {"and stopped long enough after that", "S+TTTTRTTTTTT", kFrozen},
      {"stopped by a tracer for a minute", "S+" + Times(300, "t"), kWell},
      {"let go by a tracer, stopped by a signal", "S+" + Times(300, "t") + "TTTTTT", kFrozen},
      {"without CPU for one sample", "S+R", kStarved},
      {"without CPU for a minute", "S+" + Times(300, "R"), kStarved},
      {"got CPU at last", "S+" + Times(300, "R") + "S+", kWell},
      {"asleep for less than five seconds", "S+S+" + Times(24, "S"), kWell},
      {"asleep for five seconds", "S+S+" + Times(25, "S"), kSilent},
      {"asleep either way", "S+" + Times(13, "SD"), kSilent},
      {"runnable once in five seconds", "S+" + Times(24, "S") + "R" + Times(25, "S"), kWell},
      {"its process cannot be seen", "S+" + Times(300, "Z"), kWell},
      {"the agent misses two samples", "S+TTTTT..T", kFrozen},
      {"the agent is stopped for longer", "S+TTTTT...T", kWell},
      {"all counts start anew after that", "S+TTTTT...TTTTT", kWell},
      {"and end as usual", "S+TTTTT...TTTTTT", kFrozen},
      {"silence starts anew too", "S+" + Times(20, "S") + "..." + Times(25, "S"), kWell},
  };
  for (const Row& row : rows) {
    INFO(row.what << ": " << row.samples);
    CHECK(static_cast<int>(JudgeAll(row.samples)) == static_cast<int>(row.want));
  }
}

TEST_CASE("silence judge tells how long the worker has been so") {
  SilenceJudge judge;
  const Instant start{};
  judge.Judge({1, Activity::kAsleep}, start);
  judge.Judge({1, Activity::kStopped}, start + std::chrono::milliseconds(200));
  judge.Judge({1, Activity::kStopped}, start + std::chrono::milliseconds(700));
  CHECK(judge.quiet() == std::chrono::milliseconds(500));
  judge.Judge({2, Activity::kStopped}, start + std::chrono::milliseconds(900));
  CHECK(judge.quiet() == Duration::zero());
}

TEST_CASE("the activity of a process is that of its most telling thread") {
  CHECK(ActivityOf("SR") == Activity::kRunnable);
  CHECK(ActivityOf("RS") == Activity::kRunnable);
  CHECK(ActivityOf("DT") == Activity::kStopped);
  CHECK(ActivityOf("tT") == Activity::kTraced);
  CHECK(ActivityOf("Rt") == Activity::kTraced);
  CHECK(ActivityOf("ZS") == Activity::kAsleep);
  CHECK(ActivityOf("D") == Activity::kAsleep);
  CHECK(ActivityOf("ZX") == Activity::kUnknown);
  CHECK(ActivityOf("") == Activity::kUnknown);
}

}  // namespace muster::launcher
