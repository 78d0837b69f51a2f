#include "worker/core/log_follower.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "test/worker/core/log_fixture.h"

namespace muster::worker {
namespace {

using Tickets = std::vector<Ticket>;

/// Rank 1 of a world of three with the sets 1 = {1, 2} and 2 = {0, 2}.
ProcessSets Sets() {
  ProcessSets sets = ProcessSets::OfSize(3);
  sets.Add({1, 2});
  sets.Add({0, 2});
  return sets;
}

class Follower : public LogFollower {
 public:
  Follower() : LogFollower(1, Sets()) {}
};

uint32_t MustSubmit(LogFollower& follower, Ticket ticket, const FullRequest& request) {
  const Result<uint32_t> result = follower.Submit(
      ticket, request.name, request.signature, request.splits, !request.objection.empty());
  INFO(result.status().message());
  REQUIRE(result.ok());
  return result.value();
}

FollowStep MustApply(LogFollower& follower, const LogEntry& entry) {
  Result<FollowStep> step = follower.Apply(entry);
  INFO(step.status().message());
  REQUIRE(step.ok());
  return std::move(step).value();
}

bool IsRefused(LogFollower& follower, const LogEntry& entry) {
  return !follower.Apply(entry).ok();
}

Execute Run(std::vector<Item> items, int32_t set = 0) {
  return Execute{set, std::move(items)};
}

Execute RunOne(OperationKey key, std::vector<int64_t> dims = {}) {
  const int32_t set = key.set;
  return Run({Item{std::move(key), std::move(dims), {}}}, set);
}

Execute RunJoined(OperationKey key, const Signature& signature) {
  const int32_t set = key.set;
  return Run({Item{std::move(key), {}, {signature}}}, set);
}

const FullRequest kCall = Named("w", Sum({4}));

}  // namespace

// ---------------------------------------------------------------- ids

TEST_CASE("log follower spells a call out once and uses the id after") {
  Follower follower;
  CHECK(MustSubmit(follower, 1, kCall) == 0);
  CHECK(follower.pending_count() == 1);
  CHECK(MustApply(follower, RunOne({5, "w"})).tickets == Tickets{1});
  CHECK(follower.pending_count() == 0);
  CHECK(follower.FindKnown("w", kCall.signature) == 5U);
  CHECK(MustSubmit(follower, 2, kCall) == 5);
  CHECK(MustApply(follower, RunOne({5, ""})).tickets == Tickets{2});
}

TEST_CASE("log follower spells a call out again when its signature has changed") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  const FullRequest changed = Named("w", Sum({6}));
  CHECK_FALSE(follower.FindKnown("w", changed.signature).has_value());
  CHECK(MustSubmit(follower, 2, changed) == 0);
  CHECK(MustApply(follower, RunOne({5, ""})).tickets == Tickets{2});
  CHECK(MustSubmit(follower, 3, changed) == 5);
}

TEST_CASE("log follower spells an alltoall out again when its splits have changed") {
  Follower follower;
  MustSubmit(follower, 1, WithSplits("a", {3}, {1, 1, 1}));
  MustApply(follower, RunOne({5, "a"}, {0, 0, 0, 1, 1, 1, 0, 0, 0}));
  CHECK(MustSubmit(follower, 2, WithSplits("a", {3}, {1, 1, 1})) == 5);
  MustApply(follower, RunOne({5, ""}, {0, 0, 0, 1, 1, 1, 0, 0, 0}));
  CHECK(MustSubmit(follower, 3, WithSplits("a", {3}, {0, 1, 2})) == 0);
  MustApply(follower, RunOne({5, ""}, {0, 0, 0, 0, 1, 2, 0, 0, 0}));
  CHECK(MustSubmit(follower, 4, WithSplits("a", {3}, {0, 1, 2})) == 5);
}

TEST_CASE("log follower uses no id for a name that got none") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({0, "w"}));
  CHECK(MustSubmit(follower, 2, kCall) == 0);
}

TEST_CASE("log follower never hides an objection or a vote behind an id") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  FullRequest wrong = kCall;
  wrong.objection = "no data";
  CHECK(MustSubmit(follower, 2, wrong) == 0);
  MustSubmit(follower, 3, OfKind("v", OpKind::kAgreement));
  MustApply(follower, Agreed{{6, "v"}, true});
  CHECK(MustSubmit(follower, 4, OfKind("v", OpKind::kAgreement)) == 0);
  CHECK_FALSE(follower.FindKnown("v", Plain(OpKind::kAgreement)).has_value());
}

TEST_CASE("log follower keeps one name on two sets apart") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustSubmit(follower, 2, Named("w", Sum({9}, 1)));
  CHECK(MustApply(follower, RunOne({5, "w", 1})).tickets == Tickets{2});
  CHECK(MustApply(follower, RunOne({6, "w", 0})).tickets == Tickets{1});
  CHECK(MustSubmit(follower, 3, kCall) == 6);
  CHECK(MustSubmit(follower, 4, Named("w", Sum({9}, 1))) == 5);
}

TEST_CASE("log follower drops the id of a call that failed") {
  for (const bool rejected : {false, true}) {
    Follower follower;
    MustSubmit(follower, 1, kCall);
    MustApply(follower, RunOne({5, "w"}));
    MustSubmit(follower, 2, kCall);
    const LogEntry failure =
        rejected ? LogEntry(Rejected{{0, "w"}, "no"}) : LogEntry(Unserved{{0, "w"}, "no"});
    CHECK(MustApply(follower, failure).tickets == Tickets{2});
    CHECK(MustSubmit(follower, 3, kCall) == 0);
  }
}

TEST_CASE("log follower drops an id that the log has taken back") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  MustSubmit(follower, 2, OfKind("w", OpKind::kAgreement));
  CHECK(MustApply(follower, Agreed{{0, "w"}, false}).tickets == Tickets{2});
  CHECK(MustSubmit(follower, 3, kCall) == 0);
  CHECK(MustApply(follower, RunOne({6, "w"})).tickets == Tickets{3});
  CHECK(IsRefused(follower, RunOne({5, ""})));
}

// ---------------------------------------------------------------- calls that are wrong here

TEST_CASE("log follower refuses calls that are wrong on this rank alone") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  const std::pair<FullRequest, std::string> rows[] = {
      {kCall, "'w' is already in flight on this rank"},
      {Named("x", Sum({4}, 2)), "rank 1 is not in process set 2 of ranks 0 and 2"},
      {Named("x", Sum({4}, 3)), "process set 3 does not exist"},
      {Named("join.noname", Sum({4})), "'join.noname' is the name of every join"},
      {OfKind("mine", OpKind::kJoin), "'mine' is the name of every join"},
  };
  for (const auto& [call, text] : rows) {
    const Result<uint32_t> result = follower.Submit(9, call.name, call.signature);
    REQUIRE_FALSE(result.ok());
    Contains(result.status().message(), text);
  }
  CHECK(follower.pending_count() == 1);
  LogFollower later(0, ProcessSets::FromRecords({{1, {7, 9}}}, 2, {7, 8}).value());
  Contains(later.Submit(1, "w", Sum({4}, 1)).status().message(), "has lost worker(s)");
}

TEST_CASE("log follower takes no calls of a rank that has joined") {
  Follower follower;
  CHECK_FALSE(follower.joined());
  CHECK(MustSubmit(follower, 1, Join()) == 0);
  CHECK(follower.joined());
  CHECK(follower.pending_count() == 1);
  CHECK_FALSE(follower.Submit(2, "w", Sum({4})).ok());
  CHECK_FALSE(follower.Submit(2, kJoinName, Plain(OpKind::kJoin)).ok());
  CHECK(MustApply(follower, AllJoined{{0, kJoinName}, 2}).tickets == Tickets{1});
  CHECK_FALSE(follower.joined());
  CHECK(follower.pending_count() == 0);
  CHECK(MustSubmit(follower, 2, kCall) == 0);
}

// ---------------------------------------------------------------- execute

TEST_CASE("log follower resolves an Execute to tickets in its order") {
  Follower follower;
  for (const auto& [ticket, name] : {std::pair<Ticket, const char*>{1, "a"}, {2, "b"}, {3, "c"}}) {
    MustSubmit(follower, ticket, Named(name, Sum({static_cast<int64_t>(ticket)})));
  }
  const FollowStep step =
      MustApply(follower, Run({{{7, "c"}, {}, {}}, {{0, "a"}, {}, {}}, {{8, "b"}, {}, {}}}));
  CHECK(step.concerns);
  CHECK(step.tickets == Tickets{3, 1, 2});
  CHECK(follower.pending_count() == 0);
}

TEST_CASE("log follower passes over what other sets do") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  const LogEntry entries[] = {RunOne({5, "w", 2}),
                              SmallResult{{6, "w", 2}, "abc"},
                              Agreed{{0, "w", 2}, true},
                              BarrierPassed{{0, "w", 2}},
                              Rejected{{0, "w", 2}, "no"},
                              Unserved{{0, "w", 2}, "no"}};
  for (const LogEntry& entry : entries) {
    const FollowStep step = MustApply(follower, entry);
    CHECK_FALSE(step.concerns);
    CHECK(step.tickets.empty());
    CHECK_FALSE(step.while_joined);
  }
  CHECK(follower.pending_count() == 1);
}

TEST_CASE("log follower takes dimensions that go with its own") {
  Follower follower;
  const FullRequest gather = Named("g", Tensor(OpKind::kAllgather, {3, 2}));
  MustSubmit(follower, 1, gather);
  CHECK(MustApply(follower, RunOne({5, "g"}, {0, 3, 9})).tickets == Tickets{1});
  CHECK(MustSubmit(follower, 2, gather) == 5);
  CHECK(MustApply(follower, RunOne({5, ""}, {1, 3, 1})).tickets == Tickets{2});
  MustSubmit(follower, 3, Named("g", Tensor(OpKind::kAllgather, {3, 2}, DType::kF32, 1)));
  CHECK(MustApply(follower, RunOne({6, "g", 1}, {3, 0})).tickets == Tickets{3});
}

TEST_CASE("log follower refuses dimensions that no honest coordinator sends") {
  const auto refuses = [](const FullRequest& call, std::vector<int64_t> dims) {
    Follower follower;
    MustSubmit(follower, 1, call);
    return IsRefused(follower, RunOne({5, call.name}, std::move(dims)));
  };
  const FullRequest gather = Named("g", Tensor(OpKind::kAllgather, {3, 2}));
  CHECK(refuses(gather, {}));
  CHECK(refuses(gather, {1, 3}));
  CHECK(refuses(gather, {1, 3, 1, 1}));
  CHECK(refuses(gather, {1, 4, 1}));
  CHECK(refuses(gather, {-1, 3, 1}));
  CHECK(refuses(gather, {INT64_MAX, 3, 1}));
  CHECK(refuses(gather, {INT64_MAX / 8, 3, 0}));
  const FullRequest exchange = WithSplits("a", {3}, {0, 1, 2});
  CHECK_FALSE(refuses(exchange, {1, 1, 1, 0, 1, 2, 5, 5, 5}));
  CHECK(refuses(exchange, {1, 1, 1, 1, 1, 1, 5, 5, 5}));  // Not what this rank asked for.
  CHECK(refuses(exchange, {1, 1, 1, 0, 1, 2}));
  CHECK(refuses(exchange, {1, -1, 1, 0, 1, 2, 5, 5, 5}));
  CHECK(refuses(exchange, {INT64_MAX / 4, 0, 0, 0, 1, 2, 1, 0, 0}));
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kReducescatter}) {
    CHECK(refuses(Named("w", Tensor(kind, {3})), {3, 3, 3}));
    CHECK_FALSE(refuses(Named("w", Tensor(kind, {3})), {}));
  }
}

TEST_CASE("log follower executes nothing that it knows to be wrong") {
  const auto refuses = [](const FullRequest& call, std::vector<int64_t> dims) {
    Follower follower;
    MustSubmit(follower, 1, call);
    return IsRefused(follower, RunOne({5, call.name}, std::move(dims)));
  };
  FullRequest objecting = kCall;
  objecting.objection = "no data";
  CHECK(refuses(objecting, {}));
  CHECK(refuses(Named("g", Tensor(OpKind::kAllgather, {})), {1, 1, 1}));
  CHECK(refuses(Named("r", Tensor(OpKind::kReducescatter, {})), {}));
  CHECK(refuses(WithSplits("a", {3}, {}), {}));
  CHECK(refuses(OfKind("b", OpKind::kBarrier), {}));
  CHECK(refuses(AddSet({0, 1}, "s"), {}));
}

TEST_CASE("log follower refuses to fuse what is not alike") {
  const auto refuses = [](const Signature& a, const Signature& b) {
    Follower follower;
    MustSubmit(follower, 1, Named("a", a));
    MustSubmit(follower, 2, Named("b", b));
    return IsRefused(follower, Run({{{1, "a", a.set}, {}, {}}, {{2, "b", b.set}, {}, {}}}, a.set));
  };
  CHECK_FALSE(refuses(Sum({1}), Sum({2, 2})));
  Signature other = Sum({1});
  other.op = Op::kMax;
  CHECK(refuses(Sum({1}), other));
  other = Sum({1});
  other.prescale = 2;
  CHECK(refuses(Sum({1}), other));
  CHECK(refuses(Sum({1}), Tensor(OpKind::kAllreduce, {1}, DType::kF64)));
  CHECK(refuses(Tensor(OpKind::kBroadcast, {1}), Tensor(OpKind::kBroadcast, {1})));
  other = Sum({1});
  other.op = Op::kAdasum;
  CHECK(refuses(other, other));
  CHECK(refuses(Sum({1}), Sum({1}, 1)));
  CHECK_FALSE(refuses(Sum({1}, 1), Sum({1}, 1)));
}

TEST_CASE("log follower refuses an entry for a call that this rank never made") {
  const LogEntry entries[] = {RunOne({0, "w"}),
                              RunOne({4, ""}),
                              RunOne({0, ""}),
                              Run({}),
                              RunOne({0, "w", 7}),
                              RunOne({0, "w", -1}),
                              SmallResult{{0, "w"}, "abcd"},
                              SmallResult{{3, ""}, ""},
                              Agreed{{0, "v"}, true},
                              BarrierPassed{{0, "b"}},
                              BarrierPassed{{0, "b", 9}},
                              AllJoined{{0, kJoinName}, 0},
                              SetAdded{{0, "add"}, 3, {0, 1}},
                              SetRemoved{{0, "remove"}, 1},
                              Rejected{{0, "w", 9}, "no"},
                              MemberFinished{3}};
  for (const LogEntry& entry : entries) {
    Follower follower;
    CHECK(IsRefused(follower, entry));
    CHECK(follower.pending_count() == 0);
  }
}

TEST_CASE("log follower refuses an operation twice in one Execute") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  CHECK(IsRefused(follower, Run({{{0, "w"}, {}, {}}, {{0, "w"}, {}, {}}})));
}

TEST_CASE("log follower refuses ids that contradict each other") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  MustSubmit(follower, 2, Named("v", Sum({4})));
  CHECK(IsRefused(follower, RunOne({5, "v"})));  // It is w's.
  Follower second;
  MustSubmit(second, 1, kCall);
  MustApply(second, RunOne({5, "w"}));
  MustSubmit(second, 2, kCall);
  CHECK(IsRefused(second, RunOne({6, "w"})));  // It has one.
  Follower third;
  MustSubmit(third, 1, kCall);
  CHECK(IsRefused(third, RunOne({UINT32_MAX, "w"})));
  Follower fourth;
  MustSubmit(fourth, 1, kCall);
  CHECK(MustApply(fourth, RunOne({kIdMax, "w"})).tickets == Tickets{1});
  CHECK(MustSubmit(fourth, 2, kCall) == kIdMax);
  CHECK(IsRefused(fourth, RunOne({kIdMax, "", 1})));  // On another set.
}

TEST_CASE("log follower refuses an entry of another kind than the call") {
  const auto refuses = [](const FullRequest& call, const LogEntry& entry) {
    Follower follower;
    MustSubmit(follower, 1, call);
    return IsRefused(follower, entry);
  };
  const FullRequest barrier = OfKind("x", OpKind::kBarrier);
  const FullRequest agreement = OfKind("x", OpKind::kAgreement);
  const FullRequest sum = Named("x", Sum({1}));
  CHECK(refuses(barrier, Agreed{{0, "x"}, true}));
  CHECK(refuses(agreement, BarrierPassed{{0, "x"}}));
  CHECK(refuses(sum, BarrierPassed{{0, "x"}}));
  CHECK(refuses(sum, Agreed{{0, "x"}, true}));
  CHECK(refuses(barrier, SmallResult{{0, "x"}, ""}));
  CHECK(refuses(sum, SetAdded{{0, "x"}, 3, {0, 1}}));
  CHECK(refuses(sum, SetRemoved{{0, "x"}, 1}));
  CHECK_FALSE(refuses(barrier, BarrierPassed{{0, "x"}}));
  CHECK_FALSE(refuses(agreement, Agreed{{0, "x"}, true}));
}

TEST_CASE("log follower takes a small result of the right size only") {
  const auto refuses = [](const Signature& signature, const std::string& bytes) {
    Follower follower;
    MustSubmit(follower, 1, Named("s", signature));
    return IsRefused(follower, SmallResult{{5, "s"}, bytes});
  };
  CHECK_FALSE(refuses(Sum({2}), "12345678"));
  CHECK(refuses(Sum({2}), "1234567"));
  CHECK(refuses(Sum({2}), "123456789"));
  CHECK(refuses(Tensor(OpKind::kBroadcast, {2}), "12345678"));
  Follower follower;
  MustSubmit(follower, 1, Named("s", Sum({1})));
  CHECK(MustApply(follower, SmallResult{{5, "s"}, "abcd"}).tickets == Tickets{1});
  CHECK(MustSubmit(follower, 2, Named("s", Sum({1}))) == 5);
}

TEST_CASE("log follower ignores failures and finishes that are not about its calls") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  CHECK(MustApply(follower, Unserved{{0, "other"}, "gone"}).tickets.empty());
  CHECK(MustApply(follower, Unserved{{9, ""}, "gone"}).tickets.empty());
  CHECK(MustApply(follower, Unserved{{0, kJoinName}, "gone"}).tickets.empty());
  CHECK(MustApply(follower, Rejected{{0, "w", 1}, "no"}).tickets.empty());
  CHECK(MustApply(follower, MemberFinished{2}).tickets.empty());
  CHECK(MustApply(follower, Unserved{{0, "w"}, "gone"}).tickets == Tickets{1});
  CHECK(MustApply(follower, Unserved{{0, "w"}, "gone"}).tickets.empty());
}

TEST_CASE("log follower ignores a rejection that is about other ranks only") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  MustSubmit(follower, 2, kCall);
  const FollowStep step = MustApply(follower, Rejected{{0, "w"}, "no", {0, 2}});
  CHECK_FALSE(step.concerns);
  CHECK(step.tickets.empty());
  CHECK(follower.pending_count() == 1);
  // The id stands, whether it is spelled out again or not.
  CHECK(MustApply(follower, RunOne({5, "w"})).tickets == Tickets{2});
  CHECK(MustSubmit(follower, 3, kCall) == 5);
  CHECK(MustApply(follower, Rejected{{0, "w"}, "no", {1}}).tickets == Tickets{3});
  CHECK(MustSubmit(follower, 4, kCall) == 0);
  CHECK(MustApply(follower, RunOne({5, "w"})).tickets == Tickets{4});
}

// ---------------------------------------------------------------- joined

TEST_CASE("log follower stands in with zeros for what a joined rank has not submitted") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustSubmit(follower, 2, Join());
  // Before the coordinator heard of the join.
  CHECK(MustApply(follower, RunOne({5, "w"})).tickets == Tickets{1});
  // After.
  const FollowStep step = MustApply(follower,
                                    Run({{{5, ""}, {}, {kCall.signature}},
                                         {{6, "v"}, {}, {Sum({7})}},
                                         {{0, "u"}, {}, {Sum({8})}}}));
  CHECK(step.concerns);
  CHECK(step.tickets == Tickets{kNoTicket, kNoTicket, kNoTicket});
  CHECK_FALSE(step.while_joined);
  CHECK(MustApply(follower, AllJoined{{0, kJoinName}, 0}).tickets == Tickets{2});
  // It has learned the id of what it never submitted.
  CHECK(MustSubmit(follower, 3, Named("v", Sum({7}))) == 6);
  CHECK(MustSubmit(follower, 4, Named("u", Sum({8}))) == 0);
}

TEST_CASE("log follower mixes its own operations with zeros in one Execute") {
  Follower follower;
  MustSubmit(follower, 1, Named("mine", Sum({4})));
  MustSubmit(follower, 2, Join());
  const FollowStep step = MustApply(
      follower,
      Run({{{0, "other"}, {}, {Sum({2})}}, {{0, "mine"}, {}, {}}, {{0, "more"}, {}, {Sum({3})}}}));
  CHECK(step.tickets == Tickets{kNoTicket, 1, kNoTicket});
}

TEST_CASE("log follower takes the description for the joined if it is of its own call") {
  for (const bool same : {true, false}) {
    Follower follower;
    MustSubmit(follower, 1, kCall);
    CHECK(IsRefused(follower, RunJoined({5, "w"}, same ? Sum({4}) : Sum({5}))) != same);
  }
}

TEST_CASE("log follower forgets what an id stands for if it may have changed unheard") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  MustSubmit(follower, 2, Join());
  // The others may have changed the shape: a small result says nothing of it.
  const FollowStep step = MustApply(follower, SmallResult{{5, ""}, "12"});
  CHECK(step.while_joined);
  CHECK(step.tickets.empty());
  MustApply(follower, AllJoined{{0, kJoinName}, 0});
  CHECK(MustSubmit(follower, 3, kCall) == 0);
  CHECK(MustApply(follower, RunOne({5, ""})).tickets == Tickets{3});
  CHECK(MustSubmit(follower, 4, kCall) == 5);
}

TEST_CASE("log follower learns a changed call while it has joined") {
  Follower follower;
  MustSubmit(follower, 1, kCall);
  MustApply(follower, RunOne({5, "w"}));
  MustSubmit(follower, 2, Join());
  MustApply(follower, RunJoined({5, ""}, Sum({9})));
  MustApply(follower, AllJoined{{0, kJoinName}, 0});
  CHECK(MustSubmit(follower, 3, Named("w", Sum({9}))) == 5);
}

TEST_CASE("log follower tells of agreements and barriers that pass while it has joined") {
  Follower follower;
  MustSubmit(follower, 1, OfKind("mine", OpKind::kAgreement));
  MustSubmit(follower, 2, Join());
  FollowStep step = MustApply(follower, Agreed{{0, "theirs"}, true});
  CHECK(step.concerns);
  CHECK(step.while_joined);
  CHECK(step.tickets.empty());
  step = MustApply(follower, Agreed{{0, "mine"}, true});
  CHECK_FALSE(step.while_joined);
  CHECK(step.tickets == Tickets{1});
  step = MustApply(follower, BarrierPassed{{8, "b", 1}});
  CHECK(step.while_joined);
  MustApply(follower, AllJoined{{0, kJoinName}, 0});
  CHECK(MustSubmit(follower, 3, OfKind("b", OpKind::kBarrier, false, 1)) == 0);
  CHECK(MustApply(follower, BarrierPassed{{8, "", 1}}).tickets == Tickets{3});
}

TEST_CASE("log follower that has joined refuses what it could not do") {
  Signature adasum = Sum({4});
  adasum.op = Op::kAdasum;
  Signature nan = Sum({4});
  nan.prescale = std::nan("");
  const LogEntry entries[] = {RunOne({0, "w"}),
                              RunOne({6, ""}),
                              RunJoined({0, "w"}, Tensor(OpKind::kBroadcast, {4})),
                              RunJoined({0, "w"}, Sum({-1})),
                              RunJoined({0, "w"}, Sum({4}, 1)),
                              RunJoined({0, "w"}, adasum),
                              RunJoined({0, "w"}, nan),
                              RunJoined({0, ""}, Sum({4})),
                              Run({{{0, "w"}, {4}, {Sum({4})}}}),
                              Run({{{0, "w"}, {}, {Sum({4}), Sum({4})}}}),
                              SetAdded{{0, "add"}, 3, {0, 1}},
                              AllJoined{{0, kJoinName}, 3}};
  for (const LogEntry& entry : entries) {
    Follower follower;
    MustSubmit(follower, 1, Join());
    CHECK(IsRefused(follower, entry));
  }
}

TEST_CASE("log follower ends a join that fails") {
  Follower follower;
  MustSubmit(follower, 1, Join());
  CHECK(MustApply(follower, Unserved{{0, kJoinName}, "gone"}).tickets == Tickets{1});
  CHECK_FALSE(follower.joined());
  CHECK(MustApply(follower, Unserved{{0, kJoinName}, "gone"}).tickets.empty());
}

// ---------------------------------------------------------------- process sets

TEST_CASE("log follower adds and removes sets as the log says") {
  Follower follower;
  MustSubmit(follower, 1, AddSet({0, 1}));
  CHECK(MustApply(follower, SetAdded{{0, "add"}, 3, {0, 1}}).tickets == Tickets{1});
  CHECK(follower.sets().Find(3)->ranks == std::vector<int32_t>{0, 1});
  MustSubmit(follower, 2, Named("w", Sum({4}, 3)));
  CHECK(MustApply(follower, RunOne({5, "w", 3})).tickets == Tickets{2});
  MustSubmit(follower, 3, RemoveSet(3));
  CHECK(MustApply(follower, SetRemoved{{0, "remove"}, 3}).tickets == Tickets{3});
  CHECK(follower.sets() != Sets());  // The id is used up.
  CHECK(follower.sets().Find(3) == nullptr);
  CHECK(follower.sets().next_id() == 4);
  CHECK(follower.pending_count() == 0);
  CHECK_FALSE(follower.Submit(4, "w", Sum({4}, 3)).ok());
}

TEST_CASE("log follower fails what came too late for a set that is gone") {
  Follower follower;
  MustSubmit(follower, 1, RemoveSet(1));
  MustSubmit(follower, 2, Named("z", Sum({4}, 1)));
  MustSubmit(follower, 3, Named("a", Sum({4}, 1)));
  MustSubmit(follower, 4, Named("a", Sum({4})));
  const FollowStep step = MustApply(follower, SetRemoved{{0, "remove"}, 1});
  CHECK(step.tickets == Tickets{1});
  CHECK(step.orphans == Tickets{2, 3});
  CHECK(follower.pending_count() == 1);
  CHECK(IsRefused(follower, RunOne({0, "a", 1})));
}

TEST_CASE("log follower refuses changes of sets that it did not ask for") {
  const auto refuses = [](const FullRequest& call, const LogEntry& entry) {
    Follower follower;
    MustSubmit(follower, 1, call);
    return IsRefused(follower, entry);
  };
  CHECK(refuses(AddSet({0, 1}), SetAdded{{0, "add"}, 4, {0, 1}}));
  CHECK(refuses(AddSet({0, 1}), SetAdded{{0, "add"}, 1, {0, 1}}));
  CHECK(refuses(AddSet({0, 1}), SetAdded{{0, "add"}, 3, {0}}));
  CHECK(refuses(AddSet({0, 1}), SetAdded{{0, "other"}, 3, {0, 1}}));
  CHECK(refuses(AddSet({0, 1}), SetAdded{{7, "add"}, 3, {0, 1}}));
  CHECK(refuses(AddSet({1, 2}), SetAdded{{0, "add"}, 3, {1, 2}}));  // There is one.
  CHECK(refuses(RemoveSet(1), SetRemoved{{0, "remove"}, 2}));
  CHECK(refuses(RemoveSet(9), SetRemoved{{0, "remove"}, 9}));
  CHECK(refuses(RemoveSet(0), SetRemoved{{0, "remove"}, 0}));
  CHECK_FALSE(refuses(RemoveSet(2), SetRemoved{{0, "remove"}, 2}));
}

// ---------------------------------------------------------------- with the sequencer

TEST_CASE("log follower and sequencer agree on calls by id while ranks join") {
  // The others change the call while rank 1 has joined; then it makes the old call again.
  TestSequencer sequencer(2);
  LogFollower follower(1, ProcessSets::OfSize(2));
  const auto submit = [&](Ticket ticket, const FullRequest& call) {
    const uint32_t id = MustSubmit(follower, ticket, call);
    MustSubmit(sequencer, 1, id == 0 ? Request(call) : Request(KnownRequest{id, call.small}));
    return id;
  };
  const auto follow = [&] {
    for (const LogEntry& entry : sequencer.TakeEntries()) {
      MustApply(follower, entry);
    }
  };
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  submit(1, Named("w", Sum({4})));
  follow();
  submit(2, Join());
  FullRequest small = Named("w", Sum({1}));
  small.small = "abcd";
  MustSubmit(sequencer, 0, small);
  MustSubmit(sequencer, 0, Join());
  follow();
  CHECK(submit(3, Named("w", Sum({4}))) == 0);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  follow();
  CHECK(follower.pending_count() == 0);
  CHECK(submit(4, Named("w", Sum({4}))) == 1);
}

}  // namespace muster::worker
