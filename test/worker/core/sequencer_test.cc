#include "worker/core/sequencer.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "test/worker/core/log_fixture.h"

namespace muster::worker {
namespace {

/// What all ranks are told when rank 0 calls `a` and rank 1 calls `b` under the same name.
std::string Rejection(FullRequest a, FullRequest b) {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, a);
  MustSubmit(sequencer, 1, b);
  return TakeOnly<Rejected>(sequencer).message;
}

}  // namespace

// ---------------------------------------------------------------- order

TEST_CASE("sequencer appends nothing before the last rank has submitted") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 2, Named("w", Sum({4})));
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  REQUIRE(sequencer.TakeEntries().empty());
  REQUIRE(sequencer.pending_count() == 1);
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  REQUIRE(TakeItem(sequencer).key.name == "w");
  REQUIRE(sequencer.pending_count() == 0);
}

TEST_CASE("sequencer logs operations in the order in which they become ready") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("a", Sum({1})));
  MustSubmit(sequencer, 0, Named("b", Sum({1})));
  MustSubmit(sequencer, 1, Named("b", Sum({1})));
  MustSubmit(sequencer, 1, Named("a", Sum({1})));
  CHECK(Story(sequencer.TakeEntries()) == "run(b a)");
}

TEST_CASE("sequencer of a world of one decides at once") {
  TestSequencer sequencer(1);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  REQUIRE(TakeItem(sequencer).key == OperationKey{1, "w"});
}

TEST_CASE("sequencer gives entries out once") {
  TestSequencer sequencer(1);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  REQUIRE(sequencer.TakeEntries().size() == 1);
  REQUIRE(sequencer.TakeEntries().empty());
}

TEST_CASE("sequencer refuses what no honest rank sends") {
  TestSequencer sequencer(2);
  CHECK_FALSE(sequencer.Submit(2, Named("w", Sum({4})), At(0)).ok());
  CHECK_FALSE(sequencer.Submit(0, KnownRequest{7}, At(0)).ok());
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  CHECK_FALSE(sequencer.Submit(0, Named("w", Sum({4})), At(0)).ok());
  CHECK(sequencer.TakeEntries().empty());
}

// ---------------------------------------------------------------- kinds

TEST_CASE("sequencer ORs the votes of an agreement") {
  const auto outcome = [](bool a, bool b, bool c) {
    TestSequencer sequencer(3);
    MustSubmit(sequencer, 0, OfKind("v", OpKind::kAgreement, a));
    MustSubmit(sequencer, 1, OfKind("v", OpKind::kAgreement, b));
    MustSubmit(sequencer, 2, OfKind("v", OpKind::kAgreement, c));
    return TakeOnly<Agreed>(sequencer).vote;
  };
  CHECK_FALSE(outcome(false, false, false));
  CHECK(outcome(true, false, false));
  CHECK(outcome(false, false, true));
  CHECK(outcome(true, true, true));
}

TEST_CASE("sequencer makes the entry the barrier") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, OfKind("b", OpKind::kBarrier));
  MustSubmit(sequencer, 0, OfKind("b", OpKind::kBarrier));
  CHECK(TakeOnly<BarrierPassed>(sequencer).key == OperationKey{0, "b"});
}

TEST_CASE("sequencer tells an allgather the first dimension of every rank") {
  TestSequencer sequencer(3);
  Signature gather = Sum({0, 5});
  gather.kind = OpKind::kAllgather;
  for (const uint32_t rank : {2u, 0u, 1u}) {
    gather.shape.front() = 10 + rank;
    MustSubmit(sequencer, rank, Named("g", gather));
  }
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{10, 11, 12});
}

// ---------------------------------------------------------------- ids

TEST_CASE("sequencer gives a name an id with its first entry and no name after") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  const OperationKey key = TakeItem(sequencer).key;
  REQUIRE(key == OperationKey{1, "w"});
  MustSubmit(sequencer, 0, KnownRequest{key.id});
  MustSubmit(sequencer, 1, Named("w", Sum({4})));  // A rank may still be spelling it out.
  CHECK(TakeItem(sequencer).key == OperationKey{1, ""});
}

TEST_CASE("sequencer gives no id to a name that will not come again") {
  TestSequencer sequencer(1);
  FullRequest once = Named("allreduce.noname.1", Sum({4}));
  once.reusable = false;
  MustSubmit(sequencer, 0, once);
  CHECK(TakeItem(sequencer).key == OperationKey{0, "allreduce.noname.1"});
}

TEST_CASE("sequencer takes an id for the call that it last stood for") {
  TestSequencer sequencer(2);
  for (const uint32_t rank : {0u, 1u}) {
    MustSubmit(sequencer, rank, Named("w", Sum({4})));
  }
  const uint32_t id = TakeItem(sequencer).key.id;
  MustSubmit(sequencer, 0, KnownRequest{id});
  MustSubmit(sequencer, 1, Named("w", Sum({5})));
  const std::string message = TakeOnly<Rejected>(sequencer).message;
  Contains(message, "shape [4] on rank 0; shape [5] on rank 1");
}

TEST_CASE("sequencer follows a shape that all ranks change together") {
  TestSequencer sequencer(2);
  for (const int64_t size : {4, 5}) {
    for (const uint32_t rank : {0u, 1u}) {
      MustSubmit(sequencer, rank, Named("w", Sum({size})));
    }
    CHECK(TakeItem(sequencer).key.id == 1);
  }
  MustSubmit(sequencer, 0, KnownRequest{1});
  MustSubmit(sequencer, 1, Named("w", Sum({5})));
  TakeItem(sequencer);
}

TEST_CASE("sequencer remembers each rank's own first dimension under an id") {
  TestSequencer sequencer(2);
  Signature gather = Sum({3, 5});
  gather.kind = OpKind::kAllgather;
  MustSubmit(sequencer, 0, Named("g", gather));
  gather.shape.front() = 4;
  MustSubmit(sequencer, 1, Named("g", gather));
  TakeItem(sequencer);
  MustSubmit(sequencer, 1, KnownRequest{1});
  gather.shape.front() = 9;
  MustSubmit(sequencer, 0, Named("g", gather));
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{9, 4});
}

TEST_CASE("sequencer forgets the id of a call that was rejected") {
  TestSequencer sequencer(2);
  for (const uint32_t rank : {0u, 1u}) {
    MustSubmit(sequencer, rank, Named("w", Sum({4})));
  }
  sequencer.TakeEntries();
  MustSubmit(sequencer, 0, Named("w", Sum({5})));
  MustSubmit(sequencer, 1, Named("w", Sum({6})));
  CHECK(TakeOnly<Rejected>(sequencer).key == OperationKey{0, "w"});
  CHECK_FALSE(sequencer.Submit(0, KnownRequest{1}, At(0)).ok());
  for (const uint32_t rank : {0u, 1u}) {
    MustSubmit(sequencer, rank, Named("w", Sum({4})));
  }
  CHECK(TakeItem(sequencer).key == OperationKey{2, "w"});
}

// ---------------------------------------------------------------- calls that do not fit

TEST_CASE("sequencer rejects different dtypes, naming both and the ranks") {
  Signature other = Sum({4});
  other.dtype = DType::kF64;
  const std::string message = Rejection(Named("grad/w", Sum({4})), Named("grad/w", other));
  Contains(message, "'grad/w'");
  Contains(message, "dtype f32 on rank 0; dtype f64 on rank 1");
}

TEST_CASE("sequencer rejects different operations before it looks at shapes") {
  Signature other = Sum({9, 9});
  other.kind = OpKind::kBroadcast;
  const std::string message = Rejection(Named("w", Sum({4})), Named("w", other));
  Contains(message, "operation allreduce on rank 0; operation broadcast on rank 1");
}

TEST_CASE("sequencer rejects different shapes, also with as many elements") {
  Contains(Rejection(Named("w", Sum({2, 6})), Named("w", Sum({12}))),
           "shape [2, 6] on rank 0; shape [12] on rank 1");
  Contains(Rejection(Named("w", Sum({})), Named("w", Sum({1}))),
           "shape [] on rank 0; shape [1] on rank 1");
}

TEST_CASE("sequencer rejects different reductions") {
  Signature other = Sum({4});
  other.op = Op::kMax;
  Contains(Rejection(Named("w", Sum({4})), Named("w", other)),
           "reduction sum on rank 0; reduction max on rank 1");
}

TEST_CASE("sequencer rejects different factors") {
  Signature other = Sum({4});
  other.postscale = 0.5;
  Contains(Rejection(Named("w", Sum({4})), Named("w", other)), "postscale 0.5");
  other.postscale = 1 + 1e-12;
  Contains(Rejection(Named("w", Sum({4})), Named("w", other)), "postscale 1.00000000000");
  other.postscale = std::nan("");
  Contains(Rejection(Named("w", other), Named("w", other)), "differ");
}

TEST_CASE("sequencer rejects different roots, and a root outside of the world") {
  Signature from_0 = Sum({4});
  from_0.kind = OpKind::kBroadcast;
  Signature from_1 = from_0;
  from_1.root = 1;
  Contains(Rejection(Named("w", from_0), Named("w", from_1)), "root 0 on rank 0; root 1 on rank 1");
  for (const int32_t root : {-1, 2}) {
    from_0.root = root;
    Contains(Rejection(Named("w", from_0), Named("w", from_0)),
             "root " + std::to_string(root) + " is not a rank of a world of 2");
  }
}

TEST_CASE("sequencer lets an allgather differ in the first dimension only") {
  Signature gather = Sum({3, 5});
  gather.kind = OpKind::kAllgather;
  Signature other = gather;
  other.shape = {7, 6};
  Contains(Rejection(Named("g", gather), Named("g", other)),
           "shape [*, 5] on rank 0; shape [*, 6] on rank 1");
  other.shape = {3};
  Contains(Rejection(Named("g", gather), Named("g", other)), "shape [*] on rank 1");
}

TEST_CASE("sequencer rejects what nobody may call") {
  Signature scalar = Sum({});
  scalar.kind = OpKind::kAllgather;
  Contains(Rejection(Named("g", scalar), Named("g", scalar)), "without dimensions");
  Signature adasum = Sum({4});
  adasum.op = Op::kAdasum;
  adasum.dtype = DType::kI32;
  Contains(Rejection(Named("w", adasum), Named("w", adasum)), "adasum");
  Signature flags = Sum({4});
  flags.dtype = DType::kBool;
  flags.op = Op::kAverage;
  Contains(Rejection(Named("w", flags), Named("w", flags)), "no average");
  flags.op = Op::kSum;
  flags.prescale = 2;
  Contains(Rejection(Named("w", flags), Named("w", flags)), "cannot be scaled");
  Signature device = Sum({4});
  device.device_kind = 1;
  Contains(Rejection(Named("w", device), Named("w", device)), "GPU");
  Contains(Rejection(Named("w", device), Named("w", Sum({4}))), "host memory on rank 1");
}

TEST_CASE("sequencer passes one rank's own objection on to all") {
  FullRequest wrong = Named("w", Sum({4}));
  wrong.objection = "the tensor has no data";
  Contains(Rejection(Named("w", Sum({4})), wrong), "the tensor has no data (on rank 1)");
}

TEST_CASE("sequencer goes on after a rejection") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("w", Sum({4})));
  MustSubmit(sequencer, 1, Named("w", Sum({5})));
  TakeOnly<Rejected>(sequencer);
  MustSubmit(sequencer, 0, Named("w", Sum({5})));
  MustSubmit(sequencer, 1, Named("w", Sum({5})));
  TakeItem(sequencer);
}

TEST_CASE("sequencer writes many ranks as ranges") {
  TestSequencer sequencer(64);
  for (uint32_t rank = 0; rank < 64; ++rank) {
    MustSubmit(sequencer, rank, Named("w", Sum({rank == 63 ? 5 : 4})));
  }
  Contains(TakeOnly<Rejected>(sequencer).message, "shape [4] on ranks 0-62; shape [5] on rank 63");
}

// ---------------------------------------------------------------- members that finish

TEST_CASE("sequencer fails pending and later data operations of a finished member") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 0, Named("early", Sum({4})));
  sequencer.Finish(2);
  auto entries = sequencer.TakeEntries();
  REQUIRE(entries.size() == 2);
  CHECK(std::get<MemberFinished>(entries[0]).rank == 2);
  CHECK(std::get<Unserved>(entries[1]).key.name == "early");
  Contains(std::get<Unserved>(entries[1]).message, "rank 2 has finished and shut down");
  MustSubmit(sequencer, 1, Named("late", Sum({4})));
  CHECK(TakeOnly<Unserved>(sequencer).key == OperationKey{0, "late"});
}

TEST_CASE("sequencer fails what the finished member had submitted but will not do") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  sequencer.Finish(1);
  const auto entries = sequencer.TakeEntries();
  REQUIRE(entries.size() == 2);
  CHECK(std::get<Unserved>(entries[1]).key.name == "w");
}

TEST_CASE("sequencer keeps the vote of a member that finished after it") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, OfKind("commit.9", OpKind::kAgreement, true));
  sequencer.Finish(1);
  sequencer.TakeEntries();
  MustSubmit(sequencer, 0, OfKind("commit.9", OpKind::kAgreement));
  CHECK(TakeOnly<Agreed>(sequencer).vote);
  MustSubmit(sequencer, 0, OfKind("commit.10", OpKind::kAgreement));
  TakeOnly<Unserved>(sequencer);
}

TEST_CASE("sequencer lets a finished member's known calls fail by name") {
  TestSequencer sequencer(2);
  for (const uint32_t rank : {0u, 1u}) {
    MustSubmit(sequencer, rank, Named("w", Sum({4})));
  }
  const uint32_t id = TakeItem(sequencer).key.id;
  sequencer.Finish(1);
  sequencer.TakeEntries();
  MustSubmit(sequencer, 0, KnownRequest{id});
  CHECK(TakeOnly<Unserved>(sequencer).key == OperationKey{0, "w"});
}

TEST_CASE("sequencer hears of a finish once and knows when all others have") {
  TestSequencer sequencer(3);
  CHECK_FALSE(sequencer.AllOthersFinished(0));
  sequencer.Finish(1);
  sequencer.Finish(1);
  CHECK(sequencer.TakeEntries().size() == 1);
  sequencer.Finish(0);
  CHECK_FALSE(sequencer.AllOthersFinished(0));
  sequencer.Finish(2);
  CHECK(sequencer.AllOthersFinished(0));
  CHECK(TestSequencer(1).AllOthersFinished(0));
}

// ---------------------------------------------------------------- stalls

TEST_CASE("sequencer warns once of a stall, with the missing ranks") {
  TestSequencer sequencer(4);
  MustSubmit(sequencer, 1, Named("w", Sum({4})), 10);
  MustSubmit(sequencer, 3, Named("w", Sum({4})), 50);
  CHECK(sequencer.CheckStalls(At(69), seconds(60), seconds(0)).warnings.empty());
  const StallReport report = sequencer.CheckStalls(At(70), seconds(60), seconds(0));
  REQUIRE(report.warnings.size() == 1);
  CHECK(report.warnings[0].name == "w");
  CHECK(report.warnings[0].missing == std::vector<uint32_t>{0, 2});
  CHECK(report.warnings[0].waited == seconds(60));
  CHECK(report.lost.empty());
  CHECK(sequencer.CheckStalls(At(500), seconds(60), seconds(0)).warnings.empty());
}

TEST_CASE("sequencer reports the lost of a stall past the shutdown time") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, Named("w", Sum({4})), 0);
  CHECK(sequencer.CheckStalls(At(89), seconds(60), seconds(90)).lost.empty());
  const StallReport report = sequencer.CheckStalls(At(90), seconds(60), seconds(90));
  REQUIRE(report.lost.size() == 1);
  CHECK(report.lost[0].missing == std::vector<uint32_t>{0});
}

TEST_CASE("sequencer has no stall while nothing is pending, or when told never") {
  TestSequencer sequencer(2);
  CHECK(sequencer.CheckStalls(At(1000), seconds(1), seconds(1)).warnings.empty());
  MustSubmit(sequencer, 1, Named("w", Sum({4})), 0);
  const StallReport never = sequencer.CheckStalls(At(1000), seconds(0), seconds(0));
  CHECK(never.warnings.empty());
  CHECK(never.lost.empty());
}

TEST_CASE("sequencer counts a stall from the first submission of each round") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("w", Sum({4})), 0);
  MustSubmit(sequencer, 1, Named("w", Sum({4})), 30);
  MustSubmit(sequencer, 0, Named("w", Sum({4})), 31);
  CHECK(sequencer.CheckStalls(At(60), seconds(60), seconds(60)).warnings.empty());
  CHECK(sequencer.CheckStalls(At(91), seconds(60), seconds(60)).warnings.size() == 1);
}

}  // namespace muster::worker
