#include "worker/core/log_follower.h"

#include <catch2/catch.hpp>

#include "test/worker/core/follower_fixture.h"

namespace muster::worker {

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

}  // namespace muster::worker
