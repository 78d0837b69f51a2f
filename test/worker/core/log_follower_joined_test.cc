// The follower of a rank that joins, and of ranks whose process sets change.

#include <catch2/catch.hpp>
#include <cmath>

#include "test/worker/core/follower_fixture.h"

namespace muster::worker {

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
