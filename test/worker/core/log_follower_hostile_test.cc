// A coordinator that is not honest: entries that begin as honest ones and are damaged. The follower
// refuses them, or takes them for what an honest coordinator might have said; it loses no call and
// ends none twice.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "common/random.h"
#include "test/worker/core/follower_fixture.h"

namespace muster::worker {
namespace {

const std::vector<FullRequest>& Calls() {
  static const std::vector<FullRequest> calls = {
      Named("a", Sum({4})),
      Named("b", Sum({2, 3})),
      Named("c", Sum({4}, 1)),
      Named("g", Tensor(OpKind::kAllgather, {3, 2})),
      WithSplits("x", {3}, {0, 1, 2}),
      Named("r", Tensor(OpKind::kReducescatter, {5})),
      OfKind("v", OpKind::kAgreement),
      OfKind("z", OpKind::kBarrier),
      AddSet({0, 1}),
      RemoveSet(1),
  };
  return calls;
}

/// What an honest coordinator might say about these calls.
const std::vector<LogEntry>& Honest() {
  static const std::vector<LogEntry> entries = {
      Run({{{1, "a"}, {}, {}}, {{2, "b"}, {}, {}}}),
      RunOne({3, "c", 1}),
      RunOne({4, "g"}, {1, 3, 0}),
      RunOne({5, "x"}, {1, 1, 1, 0, 1, 2, 2, 0, 0}),
      RunOne({0, "r"}),
      SmallResult{{1, ""}, std::string(16, 's')},
      Agreed{{0, "v"}, true},
      BarrierPassed{{6, "z"}},
      SetAdded{{0, "add"}, 3, {0, 1}},
      SetRemoved{{0, "remove"}, 1},
      AllJoined{{0, kJoinName}, 2},
      Rejected{{0, "a"}, "no"},
      Unserved{{0, "b"}, "gone"},
      RunJoined({7, "j"}, Sum({6})),
      MemberFinished{0},
  };
  return entries;
}

class Damage {
 public:
  explicit Damage(Random& random) : random_(random) {}

  void operator()(OperationKey& key) {
    switch (random_.Below(4)) {
      case 0:
        key.id = static_cast<uint32_t>(random_.Below(9));
        break;
      case 1:
        key.name = random_.Below(2) == 0 ? "" : Calls()[random_.Below(Calls().size())].name;
        break;
      case 2:
        key.set = static_cast<int32_t>(random_.Below(4)) - 1;
        break;
      default:
        key.id = random_.Below(2) == 0 ? kIdMax + 1 : UINT32_MAX;
    }
  }
  void operator()(Execute& entry) {
    Item& item = entry.items[random_.Below(entry.items.size())];
    switch (random_.Below(5)) {
      case 0:
        (*this)(item.key);
        break;
      case 1:
        entry.set = static_cast<int32_t>(random_.Below(4));
        break;
      case 2:
        item.dims.resize(random_.Below(10), static_cast<int64_t>(random_.Below(3)));
        break;
      case 3:
        if (!item.dims.empty()) {
          item.dims[random_.Below(item.dims.size())] = INT64_MAX >> random_.Below(63);
        }
        break;
      default:
        item.joined.assign(random_.Below(3), Sum({static_cast<int64_t>(random_.Below(6)) - 1}));
    }
  }
  void operator()(SmallResult& entry) { entry.bytes.resize(random_.Below(20)); }
  void operator()(SetAdded& entry) {
    entry.set = static_cast<int32_t>(random_.Below(5));
    entry.ranks.resize(random_.Below(4), 2);
  }
  void operator()(SetRemoved& entry) { entry.set = static_cast<int32_t>(random_.Below(5)) - 1; }
  void operator()(AllJoined& entry) { entry.last_rank = static_cast<uint32_t>(random_.Below(5)); }
  void operator()(Rejected& entry) { entry.only = {static_cast<uint32_t>(random_.Below(3))}; }
  void operator()(MemberFinished& entry) { entry.rank = static_cast<uint32_t>(random_.Below(5)); }
  template <class Other>
  void operator()(Other& entry) {
    (*this)(entry.key);
  }

 private:
  Random& random_;
};

struct Totals {
  size_t refused = 0;
  size_t taken = 0;
};

void Run(uint64_t seed, Totals& totals) {
  Random random(seed);
  Damage damage(random);
  Follower follower;
  std::set<Ticket> waiting;
  Ticket next = 1;
  for (int step = 0; step < 60; ++step) {
    if (random.Below(2) == 0) {
      const FullRequest call =
          random.Below(15) == 0 ? Join() : Calls()[random.Below(Calls().size())];
      if (follower.Submit(next, call.name, call.signature, call.splits).ok()) {
        waiting.insert(next++);
      }
      continue;
    }
    LogEntry entry = Honest()[random.Below(Honest().size())];
    if (random.Below(3) == 0) {
      std::visit(damage, entry);
    }
    const Result<FollowStep> result = follower.Apply(entry);
    if (!result.ok()) {
      CHECK(result.status().message().size() < 400);
      ++totals.refused;
      return;
    }
    ++totals.taken;
    std::vector<Ticket> ended = result.value().tickets;
    ended.insert(ended.end(), result.value().orphans.begin(), result.value().orphans.end());
    for (const Ticket ticket : ended) {
      REQUIRE((ticket == kNoTicket || waiting.erase(ticket) == 1));
    }
    REQUIRE((result.value().concerns || ended.empty()));
    REQUIRE(follower.pending_count() == waiting.size());
  }
}

}  // namespace

TEST_CASE("log follower ends each call once, whatever a coordinator says") {
  Totals totals;
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    INFO("seed " << seed);
    Run(seed, totals);
  }
  CHECK(totals.refused > 1000);
  CHECK(totals.taken > 1000);
}

}  // namespace muster::worker
