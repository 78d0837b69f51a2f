// Ranks that are not honest, or not careful: whatever some of them send, the sequencer stays whole,
// and the honest ranks get an answer to everything that they can get one for.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "common/random.h"
#include "test/worker/core/log_fixture.h"
#include "worker/core/call_check.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

ProcessSets Sets(uint32_t size) {
  ProcessSets sets = ProcessSets::OfSize(size);
  for (const std::vector<int32_t>& ranks :
       {std::vector<int32_t>{0, 1}, std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{3}}) {
    if (sets.FindAddFault(ranks).empty()) {
      sets.Add(ranks);
    }
  }
  return sets;
}

/// Requests in which nothing needs to fit together.
class Nonsense {
 public:
  explicit Nonsense(Random& random) : random_(random) {}

  Request Any() {
    if (random_.Below(4) == 0) {
      return KnownRequest{static_cast<uint32_t>(random_.Below(12)),
                          std::string(random_.Below(3) == 0 ? random_.Below(9) : 0, 'x')};
    }
    FullRequest call;
    call.name = random_.Below(12) == 0 ? kJoinName : "t" + std::to_string(random_.Below(6));
    Signature& signature = call.signature;
    signature.kind = static_cast<OpKind>(random_.Below(kOpKindCount));
    if (call.name == kJoinName && random_.Below(3) != 0) {
      signature.kind = OpKind::kJoin;
    }
    if (random_.Below(20) != 0 && signature.kind != OpKind::kJoin) {
      Fill(call);
    }
    return call;
  }

 private:
  int64_t Number() {
    static constexpr int64_t kNumbers[] = {0, 1, 2, 3, 4, -1, INT64_MAX, INT64_MIN, INT64_MAX / 8};
    return kNumbers[random_.Below(random_.Below(6) == 0 ? std::size(kNumbers) : 5)];
  }

  void Fill(FullRequest& call) {
    Signature& signature = call.signature;
    signature.dtype = static_cast<DType>(random_.Below(kDTypeCount));
    for (uint64_t i = 0, count = random_.Below(3); i < count; ++i) {
      signature.shape.push_back(Number());
    }
    signature.op = static_cast<Op>(random_.Below(kOpCount));
    signature.root = static_cast<int32_t>(Number());
    signature.set = random_.Below(3) == 0 ? static_cast<int32_t>(Number()) : 0;
    signature.prescale = random_.Below(10) == 0 ? std::strtod("nan", nullptr) : 1;
    for (uint64_t i = 0, count = random_.Below(4); i < count; ++i) {
      signature.ranks.push_back(static_cast<int32_t>(Number()));
      call.splits.push_back(Number());
    }
    if (random_.Below(3) == 0) {
      signature.group = {"g" + std::to_string(random_.Below(2)),
                         static_cast<uint32_t>(random_.Below(4)),
                         static_cast<uint32_t>(random_.Below(4))};
    }
    call.reusable = random_.Below(2) == 0;
    call.vote = random_.Below(2) == 0;
    call.objection = random_.Below(20) == 0 ? std::string(600, 'o') : "";
    call.small = std::string(random_.Below(8) == 0 ? random_.Below(9) : 0, 'x');
  }

  Random& random_;
};

/// Bounds that hold whatever has been asked for.
void CheckBounds(const LogEntry& entry, const ProcessSets& before) {
  if (const auto* rejected = std::get_if<Rejected>(&entry)) {
    CHECK(rejected->message.size() <= kMessageMax);
    CHECK_FALSE(rejected->message.empty());
    CHECK(std::is_sorted(rejected->only.begin(), rejected->only.end()));
  }
  if (const auto* execute = std::get_if<Execute>(&entry)) {
    REQUIRE_FALSE(execute->items.empty());
    for (const Item& item : execute->items) {
      CHECK(item.key.set == execute->set);
      CHECK(item.joined.size() <= 1);
    }
  }
  if (const auto* added = std::get_if<SetAdded>(&entry)) {
    CHECK(added->set >= before.next_id());
    CHECK_FALSE(added->ranks.empty());
  }
}

/// One honest rank among some that send anything at all. It makes its calls through a follower,
/// which must agree with everything that the sequencer appends.
class Siege {
 public:
  explicit Siege(uint64_t seed)
      : random_(seed),
        nonsense_(random_),
        size_(2 + static_cast<uint32_t>(random_.Below(3))),
        sequencer_(Sets(size_), {64, 6, 300}),
        follower_(0, Sets(size_)) {}

  void Run() {
    for (int step = 0; step < 300; ++step) {
      now_ += seconds(random_.Below(10));
      const auto rank = static_cast<uint32_t>(1 + random_.Below(size_ - 1));
      const Request request = nonsense_.Any();
      if (!gone_.contains(rank)) {
        const Status status = sequencer_.Submit(rank, request, now_);
        refused_ += status.ok() ? 0 : 1;
        if (!status.ok() && random_.Below(10) == 0) {
          gone_.insert(rank);  // Its link is closed, but now and then a coordinator listens on.
        }
      }
      if (const auto* call = std::get_if<FullRequest>(&request)) {
        CallHonestly(*call);
      }
      if (random_.Below(100) == 0) {
        sequencer_.Finish(rank);
      }
      if (random_.Below(3) == 0) {
        Follow();
      }
      if (random_.Below(10) == 0) {
        Look();
      }
    }
    Follow();
    CHECK(follower_.sets() == sequencer_.sets());
  }

  size_t refused() const { return refused_; }
  size_t answered() const { return answered_; }
  size_t stalls() const { return stalls_; }

 private:
  void CallHonestly(FullRequest call) {
    if (call.signature.kind == OpKind::kJoin) {
      call = Join();
    }
    const bool fits = call.signature.kind == OpKind::kAllreduce &&
                      ElementCount(call.signature.shape, call.signature.dtype) ==
                          static_cast<int64_t>(call.small.size()) &&
                      ElementSize(call.signature.dtype) == 1;
    if (!fits) {
      call.small.clear();
    }
    const Result<uint32_t> id =
        follower_.Submit(next_, call.name, call.signature, call.splits, !call.objection.empty());
    if (!id.ok()) {
      return;
    }
    ++next_;
    const Status status = sequencer_.Submit(
        0, id.value() == 0 ? Request(call) : Request(KnownRequest{id.value(), call.small}), now_);
    INFO(status.message());
    REQUIRE(status.ok());  // Nothing that the others do makes an honest rank look dishonest.
  }

  void Follow() {
    const ProcessSets before = follower_.sets();
    for (const LogEntry& entry : sequencer_.TakeEntries()) {
      CheckBounds(entry, before);
      const Result<FollowStep> step = follower_.Apply(entry);
      INFO(step.status().message());
      REQUIRE(step.ok());
      answered_ += step.value().tickets.size();
    }
  }

  void Look() {
    const StallReport report = sequencer_.CheckStalls(now_, seconds(60), seconds(120));
    for (const Stall& stall : report.lost) {
      CHECK_FALSE(stall.missing.empty());
      CHECK(std::is_sorted(stall.missing.begin(), stall.missing.end()));
      CHECK(stall.missing.back() < size_);
      CHECK(ToString(stall).size() <= kMessageMax);
    }
    stalls_ += report.lost.size();
  }

  Random random_;
  Nonsense nonsense_;
  const uint32_t size_;
  TestSequencer sequencer_;
  LogFollower follower_;
  Ticket next_ = 1;
  Instant now_;
  std::set<uint32_t> gone_;
  size_t refused_ = 0;
  size_t answered_ = 0;
  size_t stalls_ = 0;
};

}  // namespace

TEST_CASE("sequencer stays whole and the honest rank served, whatever the others send") {
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    Siege(std::strtoull(seed, nullptr, 10)).Run();
    return;
  }
  size_t refused = 0;
  size_t answered = 0;
  size_t stalls = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed);
    Siege siege(seed);
    siege.Run();
    refused += siege.refused();
    answered += siege.answered();
    stalls += siege.stalls();
  }
  CHECK(refused > 1000);
  CHECK(answered > 1000);
  CHECK(stalls > 1000);
}

TEST_CASE("sequencer lets no rank take part in a set that it is not in, not even by id") {
  TestSequencer sequencer(Sets(4));
  AllSubmit(sequencer, {0, 1}, Named("w", Sum({4}, 1)));
  CHECK(TakeItem(sequencer).key.id == 1);
  for (const uint32_t rank : {2U, 3U}) {
    CHECK_FALSE(sequencer.Submit(rank, KnownRequest{1, ""}, At(0)).ok());
    CHECK_FALSE(sequencer.Submit(rank, Named("w", Sum({4}, 1)), At(0)).ok());
  }
  MustSubmit(sequencer, 0, KnownRequest{1, ""});
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 1, KnownRequest{1, ""});
  CHECK(Story(sequencer.TakeEntries()) == "run(#1@1)");
}

TEST_CASE("sequencer is not confused by what it has refused") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  CHECK_FALSE(sequencer.Submit(0, Named("w", Sum({5})), At(0)).ok());
  FullRequest small = Named("v", Sum({1}));
  small.small = "too long";
  CHECK_FALSE(sequencer.Submit(0, small, At(0)).ok());
  CHECK(sequencer.pending_count() == 1);
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  CHECK(Story(sequencer.TakeEntries()) == "run(w)");
  small.small = "abcd";
  AllSubmit(sequencer, {0, 1}, small);
  CHECK(Story(sequencer.TakeEntries()) == "small(v)");
}

TEST_CASE("sequencer shortens objections as it shortens everything") {
  TestSequencer sequencer(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    FullRequest call = Named(std::string(3000, 'n'), Sum({4}));
    call.objection = std::string(3000, static_cast<char>('a' + rank));
    MustSubmit(sequencer, rank, call);
  }
  const auto rejected = TakeOnly<Rejected>(sequencer);
  CHECK(rejected.message.size() <= kMessageMax);
  CHECK(rejected.key.name.size() == 3000);  // The key is not a text for people.
}

}  // namespace muster::worker
