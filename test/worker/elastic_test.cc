#include "muster/elastic.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "test/support/fake_runtime.h"

namespace muster::elastic {
namespace {

using testing::FakeJob;
using testing::FakeRuntime;

struct Model {
  std::vector<double> weights{1, 2, 3};
  int64_t step = 0;
  State state;

  Model() {
    state.tensor("weights", {.data = weights.data(), .dtype = DType::kF64, .shape = {3}})
        .value("step", step);
  }
};

muster::CommitId Internal(CommitId id) {
  return {id.generation, id.sequence};
}

TEST_CASE("State commits and restores tensors and values together") {
  FakeJob job(2);
  std::array<Model, 2> models;
  job.RunAll([&](FakeRuntime& runtime) {
    Model& model = models[runtime.id()];
    model.state.sync();
    model.weights[0] = 10;
    model.step = 1;
    model.state.commit();
    model.weights[0] = 20;
    model.step = 2;
    model.state.restore();
  });
  for (const Model& model : models) {
    CHECK(model.weights == std::vector<double>{10, 2, 3});
    CHECK(model.step == 1);
    CHECK(model.state.last_commit() == CommitId{1, 1});
  }
  CHECK(job.worker(0).holds == muster::CommitId{1, 1});
  CHECK(job.worker(1).synced == std::vector<muster::CommitId>{{1, 0}});
}

TEST_CASE("State restores nothing before its first commit") {
  FakeJob job(1);
  Model model;
  job.RunAll([&](FakeRuntime&) {
    model.step = 4;
    model.state.restore();
  });
  CHECK(model.step == 4);
  CHECK(model.state.last_commit() == CommitId{});
}

TEST_CASE("State refuses a name twice and a member after the first sync") {
  FakeJob job(1);
  Model model;
  std::string late;
  CHECK_THROWS_WITH(model.state.value("weights", model.step),
                    "elastic::State: two members have the name \"weights\"");
  job.RunAll([&](FakeRuntime&) {
    model.state.sync();
    try {
      model.state.value("late", model.step);
    } catch (const Error& error) {
      late = error.what();
    }
  });
  CHECK(late == "elastic::State: \"late\" is added after the first sync");
}

struct Version {
  int major = 0;
  std::vector<int> parts;  // Not trivially copyable.
};
std::string encode(const Version& version) {
  std::string text = std::to_string(version.major);
  for (const int part : version.parts) {
    text += "." + std::to_string(part);
  }
  return text;
}
void decode(std::string_view bytes, Version& version) {
  version = {.major = bytes.at(0) - '0'};
  for (size_t i = 2; i < bytes.size(); i += 2) {
    version.parts.push_back(bytes[i] - '0');
  }
}

TEST_CASE("State syncs values of any type whose size differs between ranks") {
  FakeJob job(3);
  std::array<Version, 3> versions;
  std::array<std::string, 3> texts = {"long enough to be on the heap, on rank 0", "", "b"};
  versions[0] = {.major = 2, .parts = {7, 1, 8}};
  job.RunAll([&](FakeRuntime& runtime) {
    State state;
    state.value("version", versions[runtime.id()]).value("text", texts[runtime.id()]);
    state.sync();
  });
  CHECK(versions[2].major == 2);
  CHECK(versions[2].parts == std::vector<int>{7, 1, 8});
  CHECK(texts[1] == texts[0]);
}

// What each rank did: the number of the commit in which HostsUpdated came, or 0.
struct Outcome {
  int thrown_at = 0;
  CommitId held;
  int64_t step = 0;
};

std::vector<Outcome> CommitUntilUpdated(FakeJob& job, int ranks, int told, int told_before) {
  std::vector<Outcome> outcomes(ranks);
  job.RunAll([&](FakeRuntime& runtime) {
    Model model;
    model.state.sync();
    for (int i = 1; i <= 10; ++i) {
      if (runtime.id() == told && i == told_before) {
        job.NotifyPending(told);
      }
      model.step = i;
      try {
        model.state.commit();
      } catch (const HostsUpdated&) {
        outcomes[runtime.id()] = {i, model.state.last_commit(), model.step};
        return;
      }
    }
  });
  return outcomes;
}

TEST_CASE("State throws HostsUpdated at the same commit on all ranks if one was told") {
  for (int told = 0; told < 3; ++told) {
    FakeJob job(3);
    for (const Outcome& outcome : CommitUntilUpdated(job, 3, told, 4)) {
      CHECK(outcome.thrown_at == 5);  // Commit 4 votes, commit 5 acts.
      CHECK(outcome.held == CommitId{1, 5});
      CHECK(outcome.step == 5);
    }
  }
}

TEST_CASE("State acts only on an agreement of a previous call") {
  FakeJob job(1);
  const std::vector<Outcome> outcomes = CommitUntilUpdated(job, 1, 0, 1);
  CHECK(outcomes[0].thrown_at == 2);
}

TEST_CASE("State keeps two names for its agreements") {
  FakeJob job(1);
  job.RunAll([&](FakeRuntime&) {
    Model model;
    model.state.sync();
    for (int i = 0; i < 6; ++i) {
      model.state.commit();
    }
  });
  std::vector<std::string> names = job.worker(0).submitted;
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("muster.agree"); });
  CHECK(names.size() == 6);
  std::sort(names.begin(), names.end());
  CHECK(std::unique(names.begin(), names.end()) - names.begin() == 2);
}

TEST_CASE("State checks for updates without a commit until it throws") {
  FakeJob job(2);
  std::array<Model, 2> models;
  std::array<int, 2> thrown_at{};
  job.RunAll([&](FakeRuntime& runtime) {
    Model& model = models[runtime.id()];
    model.state.sync();
    for (int i = 1; i <= 10; ++i) {
      model.step = i;
      if (i == 3 && runtime.id() == 1) {
        job.NotifyPending(1);
      }
      try {
        model.state.check_host_updates();
      } catch (const HostsUpdated&) {
        thrown_at[runtime.id()] = i;
        break;
      }
      if (i == 2 && model.state.last_commit() != CommitId{1, 0}) {
        return;  // It has committed.
      }
    }
    model.step = 99;
    model.state.restore();
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(thrown_at[rank] == 4);
    CHECK(models[rank].state.last_commit() == CommitId{1, 4});
    CHECK(models[rank].step == 4);
  }
}

TEST_CASE("State forgets the agreement of an older generation") {
  FakeJob job(2);
  std::array<bool, 2> thrown{};
  CommitId held;
  job.LoseAt(1, "muster.agreement.0");  // The second commit of worker 1.
  job.RunAll([&](FakeRuntime& runtime) {
    Model model;
    if (runtime.id() == 0) {
      job.NotifyPending(0);
    }
    model.state.sync();
    try {
      model.state.commit();  // Votes yes.
      model.state.commit();  // Worker 1 dies in here.
    } catch (const Error&) {
    }
    runtime.AwaitWorld();
    model.state.sync();
    try {
      model.state.commit();
      model.state.commit();
      held = model.state.last_commit();
    } catch (const HostsUpdated&) {
      thrown[runtime.id()] = true;
    }
  });
  CHECK_FALSE(thrown[0]);
  CHECK(held == CommitId{2, 2});
}

TEST_CASE("State holds the commit in which the loss was met") {
  FakeJob job(2);
  Model model;
  muster::CommitId held;
  std::string met;
  job.LoseAt(1, "muster.agreement.0");
  job.RunAll([&](FakeRuntime& runtime) {
    if (runtime.id() == 1) {
      Model other;
      other.state.sync();
      other.state.commit();
      other.state.commit();
      return;
    }
    model.state.sync();
    try {
      for (model.step = 1; model.step <= 3; ++model.step) {
        model.state.commit();
      }
    } catch (const WorkersLost& lost) {
      met = lost.what();
    }
    held = Internal(model.state.last_commit());
    model.step = 0;
    model.state.restore();
  });
  CHECK(met == "worker 1 was lost");
  // The third commit acts on the second agreement, which worker 1 never posted; the loss may have
  // come sooner.
  CHECK(held.sequence >= 2);
  CHECK(model.step == static_cast<int64_t>(held.sequence));
}

class Frozen final : public Member {
 public:
  std::vector<double> data{1};
  int saved = 0;
  std::vector<Tensor> tensors() override {
    return {{.data = data.data(), .dtype = DType::kF64, .shape = {1}}};
  }
  bool changed(size_t) override { return false; }
  std::string save() override {
    ++saved;
    return "x";
  }
  void load(std::string_view) override {}
};

TEST_CASE("State does not copy what a member says is unchanged") {
  FakeJob job(1);
  Frozen frozen;
  job.RunAll([&](FakeRuntime&) {
    State state;
    state.member("frozen", frozen);
    state.sync();
    frozen.data[0] = 7;
    state.commit();
    state.restore();
  });
  CHECK(frozen.data[0] == 1);
}

TEST_CASE("State refuses device memory where it is named") {
  State state;
  float x = 0;
  CHECK_THROWS_WITH(state.tensor("w", {.data = &x, .device = {.kind = 1}}),
                    Catch::Contains("\"w\"") && Catch::Contains("CPU memory"));
}

}  // namespace
}  // namespace muster::elastic
