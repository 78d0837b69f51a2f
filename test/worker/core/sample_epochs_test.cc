// Whole trainings by SampleOrder and SampleDeal while workers are lost, drained and added at
// random. What State does to a sampler is played here in a few lines: commits, the way back to the
// last one, the newest commit of the survivors wins. At the end the steps that count are judged by
// what they used, not by what the sampler says. MUSTER_SIM_SEED replays one run.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <vector>

#include "common/random.h"
#include "worker/core/sample_deal.h"
#include "worker/core/sample_order.h"

namespace muster::worker {
namespace {

struct Options {
  uint64_t samples = 0;
  uint64_t epochs = 3;
  uint64_t seed = 0;       // Of the order.
  uint64_t size_max = 6;   // Workers.
  uint64_t batch_max = 4;  // Drawn anew for each world.
  uint64_t commit_every = 5;
  uint64_t changes_max = 40;
  uint64_t change_odds = 5;  // One step in so many.
  bool eager = false;        // The next epoch begins before the commit that ends this one.
};

/// One step, as all ranks have done it together.
struct Step {
  int parent = -1;  // The step before it, which is not the one that ran before it after a loss.
  uint64_t epoch = 0;
  std::vector<std::vector<uint64_t>> samples;  // By rank.
};

/// What a worker's State holds.
struct Progress {
  uint64_t epoch = 0;
  uint64_t position = 0;
  int last_step = -1;
  bool operator==(const Progress&) const = default;
};

struct Worker {
  Progress live;
  Progress committed;
  uint64_t commit = 0;
};

class Training {
 public:
  Training(const Options& options, uint64_t seed) : options_(options), random_(seed) {
    workers_.resize(1 + random_.Below(options_.size_max));
    NewWorld();
  }

  void Run() {
    while (workers_.front().live.epoch < options_.epochs) {
      const bool changes =
          changes_ < options_.changes_max && random_.Below(options_.change_odds) == 0;
      if (changes && workers_.size() > 1 && random_.Below(2) == 0) {
        Lose();
        continue;
      }
      TakeStep(workers_.size());
      if (changes) {
        Commit(workers_.size());
        GrowOrShrink();
      } else if (++steps_since_commit_ >= options_.commit_every) {
        Commit(workers_.size());
      }
    }
  }

  /// The steps that count, from the first to the last.
  std::vector<Step> Path() const {
    std::vector<Step> path;
    for (int at = workers_.front().live.last_step; at >= 0; at = steps_[at].parent) {
      path.push_back(steps_[at]);
    }
    std::reverse(path.begin(), path.end());
    return path;
  }

  uint64_t changes() const { return changes_; }
  size_t steps_done() const { return steps_.size(); }

 private:
  SampleDeal Deal(const Progress& progress) const {
    return {options_.samples, progress.position, static_cast<uint32_t>(workers_.size())};
  }

  // Each rank goes by its own State; only the first `recorded` ranks get as far as to record.
  void TakeStep(size_t recorded) {
    const Progress before = workers_.front().live;
    Step step{.parent = before.last_step, .epoch = before.epoch};
    for (uint32_t rank = 0; rank < workers_.size(); ++rank) {
      Progress& live = workers_[rank].live;
      REQUIRE(live == before);
      const SampleDeal deal = Deal(live);
      if (deal.rounds() == 0) {
        live = {.epoch = live.epoch + 1, .last_step = live.last_step};
        continue;
      }
      step.samples.push_back(NextBatch(live, rank));
      if (rank < recorded) {
        live.position = deal.PositionAfter(batch_);
        live.last_step = static_cast<int>(steps_.size());
        if (options_.eager && live.position == options_.samples) {
          live = {.epoch = live.epoch + 1, .last_step = live.last_step};
        }
      }
    }
    if (!step.samples.empty()) {
      steps_.push_back(std::move(step));
    }
  }

  std::vector<uint64_t> NextBatch(const Progress& live, uint32_t rank) const {
    const SampleOrder order(options_.samples, options_.seed, live.epoch);
    const SampleDeal deal = Deal(live);
    std::vector<uint64_t> batch;
    for (uint64_t round = 0; round < std::min(batch_, deal.rounds()); ++round) {
      batch.push_back(order.At(deal.PlaceOf(rank, round)));
    }
    return batch;
  }

  // Only the first ranks get as far as to take the snapshot, unless `takers` are all.
  void Commit(size_t takers) {
    ++commits_;
    for (size_t rank = 0; rank < takers; ++rank) {
      workers_[rank].committed = workers_[rank].live;
      workers_[rank].commit = commits_;
    }
    steps_since_commit_ = 0;
  }

  void Lose() {
    const uint64_t moment = random_.Below(3);
    const size_t some = random_.Below(workers_.size());
    if (moment == 1) {
      TakeStep(some);  // In the middle of a step.
    } else if (moment == 2) {
      TakeStep(workers_.size());
      Commit(some);  // In the middle of a commit.
    }
    Shuffle();
    workers_.resize(1 + random_.Below(workers_.size() - 1));
    if (random_.Below(4) == 0) {
      AddNewcomers();  // Spares, or a hold that waited for replacements.
    }
    NewWorld();
  }

  // At a commit that all ranks have taken, so nothing is lost but the worker.
  void GrowOrShrink() {
    Shuffle();
    if (workers_.size() > 1 && random_.Below(2) == 0) {
      workers_.resize(1 + random_.Below(workers_.size() - 1));
    } else {
      AddNewcomers();
    }
    NewWorld();
  }

  void AddNewcomers() {
    const size_t room = options_.size_max - std::min<size_t>(options_.size_max, workers_.size());
    workers_.resize(workers_.size() + (room == 0 ? 0 : 1 + random_.Below(room)));
  }

  // Who is lost, and whose commit is the newest, has nothing to do with ranks.
  void Shuffle() {
    for (size_t i = workers_.size(); i > 1; --i) {
      std::swap(workers_[i - 1], workers_[random_.Below(i)]);
    }
  }

  void NewWorld() {
    const Worker newest =
        *std::max_element(workers_.begin(), workers_.end(), [](const Worker& a, const Worker& b) {
          return a.commit < b.commit;
        });
    for (Worker& worker : workers_) {
      worker = {.live = newest.committed, .committed = newest.committed, .commit = newest.commit};
    }
    batch_ = 1 + random_.Below(options_.batch_max);
    steps_since_commit_ = 0;
    ++worlds_;
    changes_ = worlds_ - 1;
  }

  const Options options_;
  Random random_;
  std::vector<Worker> workers_;  // By rank.
  std::vector<Step> steps_;      // All that were done, those that do not count included.
  uint64_t batch_ = 1;
  uint64_t commits_ = 0;
  uint64_t steps_since_commit_ = 0;
  uint64_t worlds_ = 0;
  uint64_t changes_ = 0;
};

struct Padding {
  uint64_t samples = 0;
  uint64_t epochs = 0;  // That needed any.
};

/// The steps of one epoch: each sample once, in the order of the epoch, then padding from its head.
Padding JudgeEpoch(const std::vector<Step>& steps, const Options& options, uint64_t epoch) {
  std::vector<uint64_t> used;
  for (const Step& step : steps) {
    REQUIRE(used.size() < options.samples);  // Padding only in the last step.
    for (size_t i = 0; i < step.samples.front().size(); ++i) {
      for (const std::vector<uint64_t>& of_rank : step.samples) {
        REQUIRE(of_rank.size() == step.samples.front().size());
        used.push_back(of_rank[i]);
      }
    }
  }
  REQUIRE(used.size() >= options.samples);
  const uint64_t padding = used.size() - options.samples;
  REQUIRE((padding == 0 || padding < steps.back().samples.size()));

  std::vector<int> times(options.samples);
  for (uint64_t i = 0; i < options.samples; ++i) {
    ++times.at(used[i]);
  }
  REQUIRE(std::count(times.begin(), times.end(), 1) == static_cast<int64_t>(options.samples));
  for (uint64_t i = 0; i < padding; ++i) {
    REQUIRE(used[options.samples + i] == used[i % options.samples]);
  }
  const SampleOrder order(options.samples, options.seed, epoch);
  for (uint64_t i = 0; i < options.samples; ++i) {
    REQUIRE(used[i] == order.At(i));  // Whatever worlds there were.
  }
  return {padding, padding > 0 ? uint64_t{1} : 0};
}

Padding Judge(const std::vector<Step>& path, const Options& options) {
  Padding all;
  auto at = path.begin();
  for (uint64_t epoch = 0; epoch < options.epochs && options.samples > 0; ++epoch) {
    std::vector<Step> steps;
    for (; at != path.end() && at->epoch == epoch; ++at) {
      steps.push_back(*at);
    }
    const Padding padding = JudgeEpoch(steps, options, epoch);
    all.samples += padding.samples;
    all.epochs += padding.epochs;
  }
  REQUIRE(at == path.end());
  return all;
}

/// Those of the test, or the one that the environment names.
std::vector<uint64_t> Seeds(uint64_t count) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets any.
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    return {std::strtoull(seed, nullptr, 10)};
  }
  std::vector<uint64_t> seeds(count);
  for (uint64_t i = 0; i < count; ++i) {
    seeds[i] = i + 1;
  }
  return seeds;
}

TEST_CASE("3 epochs over 1797 samples use each once through 40 changes of the world") {
  size_t repeated = 0;
  for (const uint64_t seed : Seeds(20)) {
    INFO("MUSTER_SIM_SEED=" << seed);
    const Options options{.samples = 1797, .seed = seed};
    Training training(options, seed);
    training.Run();
    REQUIRE(training.changes() == 40);
    const std::vector<Step> path = training.Path();
    Judge(path, options);
    repeated += training.steps_done() - path.size();
  }
  CHECK(repeated > 0);  // Some losses cost steps, which did not count in the end.
}

TEST_CASE("samples are used once in data sets and worlds of any size") {
  Padding padding;
  uint64_t changes = 0;
  uint64_t smaller_than_world = 0;
  size_t repeated = 0;
  const std::vector<uint64_t> seeds = Seeds(5000);
  for (const uint64_t seed : seeds) {
    INFO("MUSTER_SIM_SEED=" << seed);
    Random random(seed ^ 0x5EED);
    Options options{.seed = random.Next()};
    options.samples = random.Below(random.Below(2) == 0 ? 12 : 300);
    options.epochs = 1 + random.Below(4);
    options.size_max = 1 + random.Below(random.Below(4) == 0 ? 40 : 9);
    options.batch_max = 1 + random.Below(9);
    options.commit_every = 1 + random.Below(7);
    options.changes_max = random.Below(30);
    options.change_odds = 1 + random.Below(6);
    options.eager = random.Below(2) == 0;
    Training training(options, seed);
    training.Run();
    const std::vector<Step> path = training.Path();
    const Padding of_run = Judge(path, options);
    padding.samples += of_run.samples;
    padding.epochs += of_run.epochs;
    changes += training.changes();
    smaller_than_world += !path.empty() && options.samples < path.back().samples.size() ? 1 : 0;
    repeated += training.steps_done() - path.size();
  }
  if (seeds.size() > 1) {
    // The stories that this is about have come up.
    CHECK(padding.epochs > 2000);
    CHECK(padding.samples > 3 * padding.epochs);
    CHECK(changes > 10'000);
    CHECK(smaller_than_world > 200);
    CHECK(repeated > 2000);
  }
}

}  // namespace
}  // namespace muster::worker
