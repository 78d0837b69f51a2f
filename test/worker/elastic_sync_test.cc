#include "worker/elastic_sync.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "test/support/fake_runtime.h"

namespace muster::worker {
namespace {

using testing::FakeJob;
using testing::FakeRuntime;

// One rank's registered members, as a State would hold them.
class Rank final {
 public:
  std::vector<float> weights = std::vector<float>(5, 0.0F);
  std::string note;
  std::vector<float> random{0, 0};
  std::vector<Registered> entries;
  Snapshot snapshot;
  CommitLedger ledger;
  std::string error;  // What Sync threw, after its kind.

  Rank() {
    entries.push_back({.name = "weights", .member = &weights_member_});
    entries.push_back({.name = "note", .member = &note_member_});
    entries.push_back({.name = "random", .per_rank = true, .member = &random_member_});
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void Set(float x, const std::string& text) {
    std::fill(weights.begin(), weights.end(), x);
    note = text;
    random = {x + 0.5F, x + 0.5F};
  }
  void Commit(CommitId id) {
    snapshot.Take(entries, Snapshot::Copy::kAll);
    ledger.Hold(id);
  }
  SyncReport Sync(FakeRuntime& runtime) {
    try {
      return Synchronizer(runtime, entries, snapshot, ledger).Run();
    } catch (const WorkersLost& lost) {
      error = std::string("WorkersLost: ") + lost.what();
    } catch (const Error& wrong) {
      error = std::string("Error: ") + wrong.what();
    }
    return {};
  }
  void Restore() { snapshot.WriteBack(entries, Snapshot::Part::kAll); }

 private:
  struct Floats final : elastic::Member {
    explicit Floats(std::vector<float>& floats) : data(floats) {}
    std::vector<Tensor> tensors() override {
      return {{.data = data.data(), .shape = {static_cast<int64_t>(data.size())}}};
    }
    std::string save() override { return {}; }
    void load(std::string_view) override {}
    std::vector<float>& data;
  };
  struct Text final : elastic::Member {
    explicit Text(std::string& where) : text(where) {}
    std::vector<Tensor> tensors() override { return {}; }
    std::string save() override { return text; }
    void load(std::string_view bytes) override { text = bytes; }
    std::string& text;
  };
  Floats weights_member_{weights};
  Text note_member_{note};
  Floats random_member_{random};
};

template <size_t N>
void SyncAll(FakeJob& job, std::array<Rank, N>& ranks, std::array<SyncReport, N>& reports) {
  job.RunAll(
      [&](FakeRuntime& runtime) { reports[runtime.id()] = ranks[runtime.id()].Sync(runtime); });
}

const auto kFives = std::vector<float>(5, 5.0F);

TEST_CASE("a first sync spreads the live values of rank 0 as commit (g,0)") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  std::array<SyncReport, 3> reports;
  ranks[0].Set(5, "a note of another length");
  SyncAll(job, ranks, reports);
  for (Rank& rank : ranks) {
    CHECK(rank.weights == kFives);
    CHECK(rank.note == "a note of another length");
    CHECK(rank.ledger.held() == CommitId{1, 0});
    rank.Set(9, "x");
    rank.Restore();
    CHECK(rank.weights == kFives);
    CHECK(rank.note == "a note of another length");
  }
  CHECK(reports[2].source.rank == 0);
  CHECK(reports[2].bytes == 5 * sizeof(float));
}

TEST_CASE("a sync spreads the newest commit, not the live values of its holder") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  std::array<SyncReport, 3> reports;
  ranks[0].Set(4, "old");
  ranks[0].Commit({1, 3});
  ranks[1].Set(5, "new");
  ranks[1].Commit({1, 4});
  for (Rank& rank : ranks) {
    rank.Set(8, "live");
  }
  SyncAll(job, ranks, reports);
  for (const Rank& rank : ranks) {
    CHECK(rank.error.empty());
    CHECK(rank.weights == kFives);
    CHECK(rank.note == "new");
    CHECK(rank.ledger.held() == CommitId{1, 4});
  }
  CHECK(reports[0].source.rank == 1);
}

TEST_CASE("a sync leaves what is per rank to its rank") {
  FakeJob job(2);
  std::array<Rank, 2> ranks;
  std::array<SyncReport, 2> reports;
  ranks[0].Set(5, "a");
  ranks[0].Commit({1, 1});
  ranks[1].Set(7, "b");
  SyncAll(job, ranks, reports);
  CHECK(ranks[0].random == std::vector<float>{5.5F, 5.5F});
  CHECK(ranks[1].random == std::vector<float>{7.5F, 7.5F});
  ranks[1].random = {0, 0};
  ranks[1].Restore();  // It is committed all the same.
  CHECK(ranks[1].random == std::vector<float>{7.5F, 7.5F});
}

TEST_CASE("a holder of the winning commit gets its own part per rank back from that commit") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  std::array<SyncReport, 3> reports;
  for (int i = 0; i < 2; ++i) {
    ranks[i].Set(5, "a");
    ranks[i].random = {static_cast<float>(i), 0};
    ranks[i].Commit({1, 1});
    ranks[i].Set(6, "live");
  }
  SyncAll(job, ranks, reports);
  CHECK(ranks[0].random == std::vector<float>{0, 0});
  CHECK(ranks[1].random == std::vector<float>{1, 0});
  CHECK(ranks[1].weights == kFives);
}

TEST_CASE("a sync of ranks that hold the same bytes sends none") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  std::array<SyncReport, 3> reports;
  for (Rank& rank : ranks) {
    rank.Set(5, "same");
    rank.Commit({1, 2});
    rank.Set(8, "live");
  }
  SyncAll(job, ranks, reports);
  for (int i = 0; i < 3; ++i) {
    CHECK(ranks[i].weights == kFives);
    CHECK(ranks[i].note == "same");
    CHECK(reports[i].bytes == 0);
    CHECK(reports[i].source.commit == CommitId{1, 2});
  }
}

TEST_CASE("a sync makes equal what differs under the same commit") {
  FakeJob job(2);
  std::array<Rank, 2> ranks;
  std::array<SyncReport, 2> reports;
  for (int i = 0; i < 2; ++i) {
    ranks[i].Set(5.0F + static_cast<float>(i), "drifted");
    ranks[i].Commit({1, 2});
  }
  SyncAll(job, ranks, reports);
  CHECK(ranks[1].weights == kFives);
  CHECK(reports[1].bytes > 0);
}

TEST_CASE("a sync with another shape on a newcomer ends the newcomer and frees the others") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  std::array<SyncReport, 3> reports;
  for (int i = 0; i < 2; ++i) {
    ranks[i].Set(5, "a");
    ranks[i].Commit({1, 1});
  }
  ranks[2].weights.resize(6);
  SyncAll(job, ranks, reports);
  CHECK(ranks[2].error ==
        "Error: elastic::State of rank 2 differs from the source's: tensor 0 of \"weights\" is "
        "f32[6] here and f32[5] at the source");
  for (int i = 0; i < 2; ++i) {
    CHECK_THAT(ranks[i].error, Catch::StartsWith("WorkersLost: elastic::State of rank 2"));
    CHECK(ranks[i].ledger.held() == CommitId{1, 1});
  }
}

TEST_CASE("a first sync with another shape is an error on every rank") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  std::array<SyncReport, 3> reports;
  ranks[1].weights.resize(6);
  SyncAll(job, ranks, reports);
  for (const Rank& rank : ranks) {
    CHECK_THAT(rank.error, Catch::StartsWith("Error: elastic::State of rank 1"));
    CHECK_THAT(rank.error, Catch::Contains("f32[6]") && Catch::Contains("f32[5]"));
  }
}

// A source (rank 0 of 3) dies at each operation of a sync in turn, and just after.
TEST_CASE("a source that dies anywhere in a sync leaves every rank a whole commit") {
  const std::vector<std::string> operations = {"muster.sync.claims",
                                               "muster.sync.manifest.size.0",
                                               "muster.sync.manifest.0",
                                               "muster.sync.problems",
                                               "muster.sync.tensors.0",
                                               "muster.sync.end"};
  for (const std::string& operation : operations) {
    for (const auto moment : {FakeJob::Moment::kBefore, FakeJob::Moment::kAfter}) {
      INFO(operation << (moment == FakeJob::Moment::kAfter ? ", after" : ", before"));
      FakeJob job(3);
      std::array<Rank, 3> ranks;
      ranks[0].Set(5, "newest");
      ranks[0].Commit({1, 9});
      ranks[1].Set(4, "older");
      ranks[1].Commit({1, 8});
      job.LoseAt(0, operation, 1, moment);
      job.RunAll([&](FakeRuntime& runtime) {
        Rank& rank = ranks[runtime.id()];
        rank.Sync(runtime);
        if (!rank.error.empty()) {
          rank.error.clear();
          rank.snapshot.WriteBack(rank.entries, Snapshot::Part::kAll);
          runtime.AwaitWorld();
          rank.Sync(runtime);
        } else {
          // The dead source was needed no more; the next operation would have met the loss.
          runtime.AwaitWorld();
          rank.Sync(runtime);
        }
      });
      CHECK(ranks[1].error.empty());
      CHECK(ranks[1].weights == ranks[2].weights);
      CHECK(ranks[1].note == ranks[2].note);
      CHECK(ranks[1].ledger.held() == ranks[2].ledger.held());
      const bool newest = ranks[1].ledger.held() == CommitId{1, 9};
      CHECK(ranks[1].weights == std::vector<float>(5, newest ? 5.0F : 4.0F));
      CHECK(ranks[1].note == (newest ? "newest" : "older"));
    }
  }
}

TEST_CASE("a first sync whose source dies leaves no mixture of two ranks' values") {
  FakeJob job(3);
  std::array<Rank, 3> ranks;
  ranks[0].Set(9, "of rank 0");
  ranks[1].Set(5, "of rank 1");
  job.LoseAt(0, "muster.sync.end");  // All has arrived, but nobody holds it.
  std::array<std::optional<CommitId>, 3> held;
  job.RunAll([&](FakeRuntime& runtime) {
    Rank& rank = ranks[runtime.id()];
    rank.Sync(runtime);
    held[runtime.id()] = rank.ledger.held();
    runtime.AwaitWorld();
    rank.error.clear();
    rank.Sync(runtime);
  });
  CHECK_FALSE(held[1]);
  for (int i = 1; i < 3; ++i) {
    CHECK(ranks[i].error.empty());
    CHECK(ranks[i].weights == kFives);
    CHECK(ranks[i].note == "of rank 1");
    CHECK(ranks[i].ledger.held() == CommitId{2, 0});
  }
}

TEST_CASE("a sync of a State without members agrees on a commit") {
  FakeJob job(2);
  std::array<Rank, 2> ranks;
  std::array<SyncReport, 2> reports;
  for (Rank& rank : ranks) {
    rank.entries.clear();
  }
  SyncAll(job, ranks, reports);
  CHECK(ranks[1].error.empty());
  CHECK(ranks[1].ledger.held() == CommitId{1, 0});
}

}  // namespace
}  // namespace muster::worker
