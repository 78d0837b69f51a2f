#include "muster/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <set>

#include "common/log.h"
#include "test/support/fake_runtime.h"
#include "worker/elastic_run.h"

namespace muster {
namespace {

using elastic::ElasticSampler;
using elastic::State;
using testing::FakeJob;
using testing::FakeRuntime;

using Samples = std::vector<int64_t>;
constexpr std::chrono::seconds kDeadline{20};
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

const bool quiet = [] {
  spdlog::set_level(spdlog::level::warn);  // Losses are the rule in here.
  return true;
}();

/// What each rank of a world of `size` says. It may CHECK in a world of one only: Catch counts for
/// one thread.
template <class Say>
auto OnAllRanks(int size, Say say) {
  FakeJob job(size);
  std::vector<decltype(say())> said(size);
  job.RunAll([&](FakeRuntime& runtime) { said[runtime.id()] = say(); });
  return said;
}

TEST_CASE("DistributedSampler gives every rank its share of the epoch, padded from the head") {
  const auto batches = OnAllRanks(3, [] {
    const DistributedSampler sampler(8, {.shuffle = false});
    return std::vector<Samples>{sampler.batch(2, 0), sampler.batch(2, 1), sampler.batch(2, 2)};
  });
  CHECK(batches[0] == std::vector<Samples>{{0, 3}, {6}, {}});
  CHECK(batches[1] == std::vector<Samples>{{1, 4}, {7}, {}});
  CHECK(batches[2] == std::vector<Samples>{{2, 5}, {0}, {}});
}

TEST_CASE("DistributedSampler shuffles by seed and epoch, alike on all ranks") {
  const auto epochs = OnAllRanks(2, [] {
    DistributedSampler sampler(500, {.seed = 4});
    std::vector<Samples> batches = {sampler.batch(kMax, 0)};
    sampler.set_epoch(1);
    batches.push_back(sampler.batch(kMax, 0));
    batches.push_back(DistributedSampler(500, {.seed = 5}).batch(kMax, 0));
    return batches;
  });
  for (size_t i = 0; i < 3; ++i) {
    std::set<int64_t> seen(epochs[0][i].begin(), epochs[0][i].end());
    seen.insert(epochs[1][i].begin(), epochs[1][i].end());
    CHECK(seen.size() == 500);
    CHECK(epochs[0][i].size() == 250);
  }
  CHECK(epochs[0][0] != epochs[0][1]);
  CHECK(epochs[0][0] != epochs[0][2]);
  CHECK(epochs[0][1] != epochs[0][2]);
}

TEST_CASE("samplers serve data sets of every size from 0 to 2^63 - 1") {
  const auto said = OnAllRanks(1, [] {
    CHECK(DistributedSampler(0).length() == 0);
    CHECK(DistributedSampler(0).batch(4, 0).empty());
    CHECK(ElasticSampler(0).batch(4).empty());
    const DistributedSampler huge(kMax, {.shuffle = false});
    CHECK(huge.length() == kMax);
    CHECK(huge.batch(3, kMax / 3) == Samples{kMax - 1});  // kMax is one more than 3 divides.
    CHECK(huge.batch(kMax / 2, 3).empty());
    CHECK(huge.batch(kMax, kMax).empty());
    CHECK(DistributedSampler(kMax, {.seed = 1}).batch(5, 1'000'000'000'000).size() == 5);
    return true;
  });
  CHECK(said.size() == 1);
}

TEST_CASE("samplers refuse what is out of range") {
  OnAllRanks(1, [] {
    CHECK_THROWS_WITH(
        DistributedSampler(-1),
        "DistributedSampler: the size of the data set is -1, but has to be at least 0");
    CHECK_THROWS_AS(DistributedSampler(5).set_epoch(-1), Error);
    CHECK_THROWS_AS(DistributedSampler(5).batch(0, 0), Error);
    CHECK_THROWS_AS(DistributedSampler(5).batch(1, -1), Error);
    CHECK_THROWS_WITH(ElasticSampler(-1), Catch::Contains("ElasticSampler"));
    ElasticSampler sampler(5);
    CHECK_THROWS_AS(sampler.set_epoch(-1), Error);
    CHECK_THROWS_AS(sampler.batch(0), Error);
    CHECK_THROWS_AS(sampler.batch(1, -1), Error);
    CHECK_THROWS_AS(sampler.record_batch(0), Error);
    CHECK_THROWS_AS(sampler.sample_at(-1), Error);
    CHECK_THROWS_WITH(sampler.sample_at(5),
                      "ElasticSampler: the epoch of 5 samples has no place 5");
    CHECK_THROWS_AS(sampler.record_samples(-1), Error);
    CHECK_THROWS_WITH(sampler.record_samples(6),
                      "ElasticSampler: 6 samples cannot be recorded where the epoch has 5 left");
    CHECK(sampler.position() == 0);
    return true;
  });
}

TEST_CASE("ElasticSampler goes on by what is recorded, and looks ahead without recording") {
  struct Said {
    std::vector<Samples> batches;
    std::vector<int64_t> positions;
    std::vector<int64_t> lengths;
  };
  const auto said = OnAllRanks(2, [] {
    ElasticSampler sampler(11, {.shuffle = false});
    Said said;
    for (const int64_t recorded : {2, 3, 2}) {
      said.batches.insert(said.batches.end(), {sampler.batch(2), sampler.batch(2, 1)});
      said.positions.push_back(sampler.position());
      said.lengths.push_back(sampler.length());
      sampler.record_batch(recorded);
    }
    said.batches.push_back(sampler.batch(2));
    said.positions.push_back(sampler.position());
    said.lengths.push_back(sampler.length());
    return said;
  });
  CHECK(said[0].batches == std::vector<Samples>{{0, 2}, {4, 6}, {4, 6}, {8, 10}, {10}, {}, {}});
  CHECK(said[1].batches == std::vector<Samples>{{1, 3}, {5, 7}, {5, 7}, {9, 0}, {0}, {}, {}});
  for (const Said& of_rank : said) {
    // In the end one was left for each rank, one of them padding, and two were recorded.
    CHECK(of_rank.positions == std::vector<int64_t>{0, 4, 10, 11});
    CHECK(of_rank.lengths == std::vector<int64_t>{6, 4, 1, 0});
  }
}

TEST_CASE("ElasticSampler begins an epoch with its first sample, and none twice") {
  OnAllRanks(1, [] {
    ElasticSampler sampler(10, {.seed = 1});
    sampler.record_batch(4);
    sampler.set_epoch(0);  // As a loop does that was left in the middle of this epoch.
    CHECK(sampler.position() == 4);
    sampler.set_epoch(1);
    CHECK(sampler.epoch() == 1);
    CHECK(sampler.position() == 0);
    CHECK(sampler.length() == 10);
    return true;
  });
}

TEST_CASE("ElasticSampler has the order of DistributedSampler, and tells it place by place") {
  OnAllRanks(1, [] {
    ElasticSampler elastic(50, {.seed = 8});
    DistributedSampler plain(50, {.seed = 8});
    elastic.set_epoch(3);
    plain.set_epoch(3);
    const Samples order = plain.batch(50, 0);
    CHECK(elastic.batch(50) == order);
    elastic.record_samples(20);
    CHECK(elastic.position() == 20);
    CHECK(elastic.batch(3) == Samples{order[20], order[21], order[22]});
    CHECK(elastic.sample_at(7) == order[7]);
    return true;
  });
}

TEST_CASE("ElasticSampler is committed and restored with the State") {
  OnAllRanks(1, [] {
    ElasticSampler sampler(100);
    State state;
    state.member("sampler", sampler);
    state.sync();
    sampler.set_epoch(2);
    sampler.record_batch(5);
    state.commit();
    const Samples next = sampler.batch(5);
    sampler.record_batch(5);
    sampler.set_epoch(3);
    state.restore();
    CHECK(sampler.epoch() == 2);
    CHECK(sampler.position() == 5);
    CHECK(sampler.batch(5) == next);
    return true;
  });
}

TEST_CASE("ElasticSampler of rank 0 gives seed and order to the others in a sync") {
  const auto batches = OnAllRanks(2, [] {
    const int rank = worker::GetRuntime().place().rank;
    ElasticSampler sampler(1000,
                           {.shuffle = rank == 0, .seed = rank == 0 ? uint64_t{77} : uint64_t{78}});
    State state;
    state.member("sampler", sampler);
    state.sync();
    return std::pair(sampler.sample_at(0), sampler.sample_at(999));
  });
  CHECK(batches[1] == batches[0]);
  CHECK(batches[0] != std::pair<int64_t, int64_t>(0, 999));
}

TEST_CASE("ElasticSampler refuses the state of another data set and what is no state") {
  ElasticSampler sampler(10);
  CHECK_THROWS_WITH(sampler.load(ElasticSampler(11).save()),
                    "ElasticSampler: the state is of a data set of 11 samples, but this worker's "
                    "has 10");
  CHECK_THROWS_AS(sampler.load("short"), Error);
  std::string bytes = ElasticSampler(10).save();
  bytes.back() = '\x80';  // The position: below 0.
  CHECK_THROWS_AS(sampler.load(bytes), Error);
  bytes.back() = '\x01';  // Beyond the end.
  CHECK_THROWS_AS(sampler.load(bytes), Error);
  CHECK(sampler.position() == 0);
}

// ---------------------------------------------------------------- in elastic::run

constexpr int64_t kSamples = 103;
constexpr int64_t kEpochs = 3;

/// A program whose State counts how often each sample was used, by all ranks together: `used` goes
/// back with a restore as the sampler does, so at the end it has the steps that count.
struct Program {
  std::vector<double> used = std::vector<double>(kSamples * kEpochs);
  int64_t step = 0;
  int size_last = 0;
  int worlds = 0;
  elastic::RunEnd end = elastic::RunEnd::kReleased;

  Tensor View(std::vector<double>& values) {
    return {.data = values.data(),
            .dtype = DType::kF64,
            .shape = {static_cast<int64_t>(values.size())}};
  }

  void TrainOnBatch(FakeRuntime& runtime, ElasticSampler& sampler) {
    std::vector<double> mine(used.size());
    for (const int64_t sample : sampler.batch(2)) {
      ++mine.at(sampler.epoch() * kSamples + sample);
    }
    std::vector<double> all(used.size());
    worker::Submission submission;
    submission.kind = worker::OpKind::kAllreduce;
    submission.name = "used";
    submission.in = View(mine);
    submission.out = View(all);
    runtime.Submit(std::move(submission)).wait();
    std::transform(all.begin(), all.end(), used.begin(), used.begin(), std::plus<>());
    sampler.record_batch(2);
    ++step;
  }

  void Run(FakeRuntime& runtime, const std::function<void()>& after_step = {}) {
    ElasticSampler sampler(kSamples, {.seed = 9});
    State state;
    state.member("sampler", sampler).tensor("used", View(used)).value("step", step);
    end = elastic::RunLoop(runtime, state, [&](State& s) {
      ++worlds;
      for (; sampler.epoch() < kEpochs; sampler.set_epoch(sampler.epoch() + 1)) {
        while (sampler.length() > 0) {
          TrainOnBatch(runtime, sampler);
          size_last = runtime.place().size;
          if (after_step) {
            after_step();
          }
          if (step % 3 == 0) {
            s.commit();
          }
        }
      }
    });
  }
};

/// Each sample once in each epoch, and padding from the epoch's head.
void CheckUsedOnce(const Program& program, int size_max) {
  CHECK(program.end == elastic::RunEnd::kFinished);
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    ElasticSampler order(kSamples, {.seed = 9});
    order.set_epoch(epoch);
    int64_t padding = 0;
    for (int64_t place = 0; place < kSamples; ++place) {
      const double times = program.used.at(epoch * kSamples + order.sample_at(place));
      INFO("epoch " << epoch << ", place " << place << ", used " << times << " times");
      REQUIRE((times == 1 || times == 2));
      padding += times == 2 ? 1 : 0;
      REQUIRE((times == 1 || padding == place + 1));  // From the head.
    }
    CHECK(padding < size_max);
  }
}

TEST_CASE("ElasticSampler uses each sample once when a worker is lost at any step") {
  for (int nth = 1; nth <= 18; ++nth) {
    INFO("lost at step " << nth);
    const int lost = nth % 4;
    FakeJob job(4);
    job.LoseAt(
        lost, "used", nth, nth % 2 == 0 ? FakeJob::Moment::kBefore : FakeJob::Moment::kAfter);
    std::array<Program, 4> programs;
    job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
    for (int id = 0; id < 4; ++id) {
      if (id != lost) {
        CHECK(programs[id].size_last == 3);
        CheckUsedOnce(programs[id], 4);
      }
    }
  }
}

TEST_CASE("ElasticSampler uses each sample once through a loss, an arrival and a leave") {
  FakeJob job(4);
  const int newcomer = job.AddNewcomer();
  job.LoseAt(3, "used", 8);                // 4 workers to 3,
  job.LoseAt(1, "muster.agreement.0", 3);  // to 2 in a commit,
  std::array<Program, 5> programs;
  std::promise<void> wanted;  // A newcomer that is warm would be taken in after the next loss.
  job.RunAll([&](FakeRuntime& runtime) {
    Program& program = programs[runtime.id()];
    if (runtime.id() == newcomer) {
      wanted.get_future().wait_for(kDeadline);
    }
    program.Run(runtime, [&, id = runtime.id()] {
      if (id == 0 && program.step == 25) {  // to 3 again,
        wanted.set_value();
        job.WaitUntilWarm(newcomer);
        job.NotifyPending();
      }
      if (id == 2 && program.step == 34) {  // and to 2.
        job.Drain(2);
      }
    });
  });
  CheckUsedOnce(programs[0], 4);
  CheckUsedOnce(programs[newcomer], 4);
  CHECK(programs[2].end == elastic::RunEnd::kReleased);
  CHECK(programs[0].worlds == 5);
  CHECK(programs[newcomer].worlds == 2);
  CHECK(programs[0].used == programs[newcomer].used);
  CHECK(programs[0].size_last == 2);
}

}  // namespace
}  // namespace muster
