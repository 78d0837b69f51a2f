// Ranks that join, that finish, and that keep others waiting.

#include <catch2/catch.hpp>

#include "test/worker/core/log_fixture.h"

namespace muster::worker {
namespace {

/// A world of four with the sets 1 = {0, 2} and 2 = {1, 2, 3}.
ProcessSets Sets() {
  ProcessSets sets = ProcessSets::OfSize(4);
  sets.Add({0, 2});
  sets.Add({1, 2, 3});
  return sets;
}

FullRequest Small(std::string name, std::string bytes) {
  FullRequest request =
      Named(std::move(name),
            Tensor(OpKind::kAllreduce, {static_cast<int64_t>(bytes.size())}, DType::kU8));
  request.small = std::move(bytes);
  return request;
}

}  // namespace

// ---------------------------------------------------------------- join

TEST_CASE("sequencer serves allreduces without the ranks that have joined") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 1, Join());
  CHECK(sequencer.TakeEntries().empty());
  FullRequest call = Named("w", Sum({4, 2}));
  call.signature.op = Op::kAverage;
  call.signature.prescale = 0.5;
  MustSubmit(sequencer, 0, call);
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 2, call);
  const Item item = TakeItem(sequencer);
  CHECK(item.key == OperationKey{1, "w"});
  CHECK(item.joined == std::vector<Signature>{call.signature});
  AllSubmit(sequencer, {0, 2}, KnownRequest{1});
  CHECK(TakeItem(sequencer).joined == std::vector<Signature>{call.signature});
}

TEST_CASE("sequencer tells nobody of joined ranks what all of them have submitted") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  MustSubmit(sequencer, 1, Join());
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  CHECK(TakeItem(sequencer).joined.empty());
}

TEST_CASE("sequencer looks again at what is pending when a rank joins") {
  TestSequencer sequencer(3);
  AllSubmit(sequencer, {0, 2}, Named("a", Sum({4})));
  MustSubmit(sequencer, 0, Named("b", Sum({4})));
  AllSubmit(sequencer, {0, 2}, OfKind("v", OpKind::kAgreement, true));
  AllSubmit(sequencer, {0, 2}, OfKind("z", OpKind::kBarrier));
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 1, Join());
  CHECK(Story(sequencer.TakeEntries()) == "run(a*) agreed(v) barrier(z)");
  CHECK(sequencer.pending_count() == 1);
  MustSubmit(sequencer, 2, Join());
  CHECK(Story(sequencer.TakeEntries()) == "run(b*)");
}

TEST_CASE("sequencer ends a join when the last rank has joined, and names it") {
  for (const std::vector<uint32_t>& order :
       {std::vector<uint32_t>{0, 1, 2}, {2, 1, 0}, {0, 2, 1}}) {
    TestSequencer sequencer(3);
    AllSubmit(sequencer, {order[0], order[1]}, Join());
    CHECK(sequencer.TakeEntries().empty());
    MustSubmit(sequencer, order[2], Join());
    CHECK(TakeOnly<AllJoined>(sequencer) == AllJoined{{0, "join.noname"}, order[2]});
    // Everything is as before.
    AllSubmit(sequencer, {order[0], order[1]}, Named("w", Sum({4})));
    CHECK(sequencer.TakeEntries().empty());
    MustSubmit(sequencer, order[2], Named("w", Sum({4})));
    CHECK(TakeItem(sequencer).joined.empty());
    AllSubmit(sequencer, order, Join());
    CHECK(TakeOnly<AllJoined>(sequencer).last_rank == order[2]);
  }
}

TEST_CASE("sequencer does what the last rank leaves behind before all have joined") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  MustSubmit(sequencer, 0, Join());
  CHECK(sequencer.TakeEntries().empty());  // Rank 1 may still submit it.
  MustSubmit(sequencer, 1, Join());
  CHECK(Story(sequencer.TakeEntries()) == "run(w*) joined(1)");
}

TEST_CASE("sequencer of a world of one joins at once") {
  TestSequencer sequencer(1);
  MustSubmit(sequencer, 0, Join());
  CHECK(TakeOnly<AllJoined>(sequencer).last_rank == 0);
}

TEST_CASE("sequencer rejects other operations that need a joined rank") {
  const FullRequest others[] = {Named("x", Tensor(OpKind::kAllgather, {4})),
                                Named("x", Tensor(OpKind::kBroadcast, {4})),
                                WithSplits("x", {3}, {1, 1, 1}),
                                Named("x", Tensor(OpKind::kReducescatter, {4})),
                                AddSet({0}, "x"),
                                RemoveSet(1, "x")};
  for (const FullRequest& call : others) {
    ProcessSets sets = ProcessSets::OfSize(3);
    sets.Add({0, 1});
    TestSequencer sequencer(sets);
    MustSubmit(sequencer, 1, Join());
    MustSubmit(sequencer, 0, call);
    CHECK(sequencer.TakeEntries().empty());
    MustSubmit(sequencer, 2, call);
    const auto rejected = TakeOnly<Rejected>(sequencer);
    CHECK(rejected.key == OperationKey{0, "x"});
    Contains(rejected.message, "of 'x' is not supported while rank 1 has joined");
  }
  TestSequencer sequencer(3);
  FullRequest adasum = Named("x", Sum({4}));
  adasum.signature.op = Op::kAdasum;
  AllSubmit(sequencer, {0, 1}, Join());
  MustSubmit(sequencer, 2, adasum);
  Contains(TakeOnly<Rejected>(sequencer).message,
           "allreduce of 'x' with adasum is not supported while ranks 0 and 1 have joined");
}

TEST_CASE("sequencer serves what a rank had submitted before it joined") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, Named("g", Tensor(OpKind::kAllgather, {3})));
  MustSubmit(sequencer, 1, Join());
  MustSubmit(sequencer, 0, Named("g", Tensor(OpKind::kAllgather, {4})));
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{4, 3});
}

TEST_CASE("sequencer still compares the calls of those who have not joined") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 0, Join());
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  MustSubmit(sequencer, 2, Named("w", Sum({5})));
  Contains(TakeOnly<Rejected>(sequencer).message, "shape [4] on rank 1; shape [5] on rank 2");
}

TEST_CASE("sequencer computes small data with zeros for the joined") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 1, Join());
  MustSubmit(sequencer, 2, Small("s", "\x01"));
  MustSubmit(sequencer, 0, Small("s", "\x02"));
  CHECK(TakeOnly<SmallResult>(sequencer) == SmallResult{{1, "s"}, "\x03"});
  MustSubmit(sequencer, 0, KnownRequest{1, "\x05"});
  MustSubmit(sequencer, 2, Join());
  // Rank 0 alone goes on; AddBytes has looked at the divisor.
  CHECK(TakeOnly<SmallResult>(sequencer) == SmallResult{{1, ""}, "\x05"});
}

TEST_CASE("sequencer counts a joined rank in the sets that it is in") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 2, Join());
  MustSubmit(sequencer, 0, Named("w", Sum({4}, 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(w@1*)");
  MustSubmit(sequencer, 1, Named("w", Sum({4}, 2)));
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 3, Named("w", Sum({4}, 2)));
  CHECK(Story(sequencer.TakeEntries()) == "run(w@2*)");
  MustSubmit(sequencer, 0, OfKind("b", OpKind::kBarrier, false, 1));
  CHECK(Story(sequencer.TakeEntries()) == "barrier(b@1)");
}

TEST_CASE("sequencer does a group without the joined") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Member("a", Sum({1}), "g", 2, 0));
  MustSubmit(sequencer, 1, Join());
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 0, Member("b", Sum({1}), "g", 2, 1));
  CHECK(Story(sequencer.TakeEntries()) == "run(a* b*)");
  MustSubmit(sequencer, 0, Member("c", Tensor(OpKind::kAllgather, {1}), "h", 2, 0));
  MustSubmit(sequencer, 0, Member("d", Sum({1}), "h", 2, 1));
  CHECK(Story(sequencer.TakeEntries()) == "no(c) no(d)");
}

TEST_CASE("sequencer refuses joins that no honest rank sends") {
  TestSequencer sequencer(Sets());
  FullRequest named = Join();
  named.name = "mine";
  CHECK_FALSE(sequencer.Submit(0, named, At(0)).ok());
  FullRequest of_set = Join();
  of_set.signature.set = 1;
  CHECK_FALSE(sequencer.Submit(0, of_set, At(0)).ok());
  FullRequest with_shape = Join();
  with_shape.signature.shape = {1};
  CHECK_FALSE(sequencer.Submit(0, with_shape, At(0)).ok());
  FullRequest objecting = Join();
  objecting.objection = "no";
  CHECK_FALSE(sequencer.Submit(0, objecting, At(0)).ok());
  FullRequest with_data = Join();
  with_data.small = "x";
  CHECK_FALSE(sequencer.Submit(0, with_data, At(0)).ok());
  CHECK_FALSE(sequencer.Submit(0, Named("join.noname", Sum({4})), At(0)).ok());
  MustSubmit(sequencer, 0, Join());
  CHECK_FALSE(sequencer.Submit(0, Join(), At(0)).ok());
  CHECK_FALSE(sequencer.Submit(0, Named("w", Sum({4})), At(0)).ok());
  CHECK(sequencer.TakeEntries().empty());
}

TEST_CASE("sequencer ends a join that can never be complete") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 0, Join());
  sequencer.Finish(2);
  const auto entries = sequencer.TakeEntries();
  CHECK(Story(entries) == "finished(2) unserved(join.noname)");
  Contains(std::get<Unserved>(entries[1]).message, "rank 2 has finished and shut down");
  MustSubmit(sequencer, 1, Join());
  CHECK(Story(sequencer.TakeEntries()) == "unserved(join.noname)");
  // Nobody is joined any more.
  MustSubmit(sequencer, 0, OfKind("v", OpKind::kAgreement));
  CHECK(Story(sequencer.TakeEntries()) == "unserved(v)");
}

TEST_CASE("sequencer waits again for those whose join has failed") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 2, Join());
  sequencer.Finish(3);
  sequencer.TakeEntries();
  MustSubmit(sequencer, 0, Named("w", Sum({4}, 1)));
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 2, Named("w", Sum({4}, 1)));
  CHECK(TakeItem(sequencer).joined.empty());
}

// ---------------------------------------------------------------- finish

TEST_CASE("sequencer goes on serving the sets without the finished rank") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 0, Named("a", Sum({4}, 1)));
  MustSubmit(sequencer, 1, Named("b", Sum({4}, 2)));
  MustSubmit(sequencer, 1, Named("c", Sum({4})));
  sequencer.Finish(3);
  CHECK(Story(sequencer.TakeEntries()) == "finished(3) unserved(c) unserved(b@2)");
  MustSubmit(sequencer, 2, Named("a", Sum({4}, 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(a@1)");
  MustSubmit(sequencer, 2, Named("b", Sum({4}, 2)));
  CHECK(Story(sequencer.TakeEntries()) == "unserved(b@2)");
  AllSubmit(sequencer, {2, 0}, KnownRequest{1});
  CHECK(Story(sequencer.TakeEntries()) == "run(#1@1)");
}

TEST_CASE("sequencer changes no sets once a rank has finished") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 3, AddSet({0, 1}));
  sequencer.Finish(3);
  CHECK(Story(sequencer.TakeEntries()) == "finished(3) unserved(add)");
  MustSubmit(sequencer, 0, RemoveSet(1));
  CHECK(Story(sequencer.TakeEntries()) == "unserved(remove)");
  CHECK(sequencer.sets() == Sets());
}

TEST_CASE("sequencer hears no more of a rank that finished, on any set") {
  TestSequencer sequencer(Sets());
  sequencer.Finish(2);
  sequencer.TakeEntries();
  MustSubmit(sequencer, 2, Named("w", Sum({4}, 1)));
  MustSubmit(sequencer, 2, Named("w", Sum({4}, 77)));
  MustSubmit(sequencer, 2, Join());
  CHECK(sequencer.TakeEntries().empty());
  CHECK(sequencer.pending_count() == 0);
}

// ---------------------------------------------------------------- stalls

TEST_CASE("sequencer reports stalls of sets by their members, in order") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 2, Named("z", Sum({4}, 2)));
  MustSubmit(sequencer, 2, Named("a", Sum({4}, 1)));
  MustSubmit(sequencer, 2, Named("m", Sum({4})));
  const StallReport report = sequencer.CheckStalls(At(60), seconds(60), seconds(60));
  REQUIRE(report.warnings.size() == 3);
  CHECK(report.warnings[0].name == "m");
  CHECK(report.warnings[0].set == 0);
  CHECK(report.warnings[0].missing == std::vector<uint32_t>{0, 1, 3});
  CHECK(report.warnings[1].name == "a");
  CHECK(report.warnings[1].set == 1);
  CHECK(report.warnings[1].missing == std::vector<uint32_t>{0});
  CHECK(report.warnings[2].set == 2);
  CHECK(report.warnings[2].missing == std::vector<uint32_t>{1, 3});
  CHECK(report.lost.size() == 3);
}

TEST_CASE("sequencer blames no rank that has joined") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 0, Join());
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  const StallReport report = sequencer.CheckStalls(At(60), seconds(60), seconds(0));
  REQUIRE(report.warnings.size() == 1);
  CHECK(report.warnings[0].missing == std::vector<uint32_t>{2});
}

TEST_CASE("stall reads like a sentence of bounded length") {
  CHECK(ToString(Stall{0, "w", "", {3}, seconds(61)}) ==
        "'w' has been waiting for 61 s: rank 3 did not submit it");
  CHECK(ToString(Stall{2, "w", "", {3, 4, 5}, std::chrono::milliseconds(60'900)}) ==
        "'w' of process set 2 has been waiting for 60 s: ranks 3-5 did not submit it");
  Stall huge{INT32_MAX, std::string(4000, 'n'), std::string(4000, 'g'), {}, Duration::max()};
  for (uint32_t rank = 0; rank < 100'000; rank += 2) {
    huge.missing.push_back(UINT32_MAX - rank);
  }
  CHECK(ToString(huge).size() <= 500);
  Contains(ToString(huge), "and 49992 others did not submit it");
}

}  // namespace muster::worker
