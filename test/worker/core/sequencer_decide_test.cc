// What the sequencer makes of operations that all have submitted: what moves, sets, small data.

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

std::string Rejection(const std::vector<FullRequest>& by_rank, const ProcessSets& sets) {
  TestSequencer sequencer(sets);
  for (uint32_t rank = 0; rank < by_rank.size(); ++rank) {
    MustSubmit(sequencer, rank, by_rank[rank]);
  }
  return TakeOnly<Rejected>(sequencer).message;
}

}  // namespace

// ---------------------------------------------------------------- what moves

TEST_CASE("sequencer tells an alltoall the splits of every rank") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 1, WithSplits("a", {5, 2}, {4, 1}));
  MustSubmit(sequencer, 0, WithSplits("a", {3, 2}, {0, 3}));
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{0, 3, 4, 1});
}

TEST_CASE("sequencer remembers each rank's own splits under an id") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, WithSplits("a", {3}, {0, 3}));
  MustSubmit(sequencer, 1, WithSplits("a", {5}, {4, 1}));
  CHECK(TakeItem(sequencer).key == OperationKey{1, "a"});
  AllSubmit(sequencer, {0, 1}, KnownRequest{1});
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{0, 3, 4, 1});
  MustSubmit(sequencer, 0, KnownRequest{1});
  MustSubmit(sequencer, 1, WithSplits("a", {2}, {1, 1}));
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{0, 3, 1, 1});
  AllSubmit(sequencer, {0, 1}, KnownRequest{1});
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{0, 3, 1, 1});
}

TEST_CASE("sequencer rejects splits that no alltoall can have, naming the rank") {
  const std::pair<FullRequest, std::string> rows[] = {
      {WithSplits("a", {3}, {1, 1}), "the splits come to 2 rows, the tensor has 3 (on rank 1)"},
      {WithSplits("a", {3}, {3}), "1 splits for 2 ranks (on rank 1)"},
      {WithSplits("a", {3}, {}), "0 splits for 2 ranks (on rank 1)"},
      {WithSplits("a", {3}, {4, -1}), "the splits come to more than the 3 rows"},
      {WithSplits("a", {3}, {-1, 4}), "a split is negative: -1 (on rank 1)"},
  };
  for (const auto& [wrong, text] : rows) {
    Contains(Rejection({WithSplits("a", {2}, {1, 1}), wrong}, ProcessSets::OfSize(2)), text);
  }
}

TEST_CASE("sequencer rejects what together is too large to be counted") {
  const auto gather = [](int64_t rows) {
    return Named("g", Tensor(OpKind::kAllgather, {rows, 2}));
  };
  Contains(Rejection({gather(INT64_MAX / 8), gather(1)}, ProcessSets::OfSize(2)),
           "allgather of 'g': the tensors of all ranks together are too large");
  const int64_t most = INT64_MAX / 4;
  Contains(Rejection({WithSplits("a", {most}, {0, most}), WithSplits("a", {most}, {0, most})},
                     ProcessSets::OfSize(2)),
           "together are too large");
  TestSequencer sequencer(2);  // As much, to different ranks.
  MustSubmit(sequencer, 0, WithSplits("a", {most}, {0, most}));
  MustSubmit(sequencer, 1, WithSplits("a", {most}, {most, 0}));
  CHECK(TakeItem(sequencer).key.name == "a");
}

TEST_CASE("sequencer rejects a shape that is impossible on one rank") {
  Contains(Rejection({Named("g", Tensor(OpKind::kAllgather, {2})),
                      Named("g", Tensor(OpKind::kAllgather, {-2}))},
                     ProcessSets::OfSize(2)),
           "the shape [-2] is impossible (on rank 1)");
  Contains(Rejection({Named("w", Sum({INT64_MAX}))}, ProcessSets::OfSize(1)),
           "the shape [9223372036854775807] is impossible (on rank 0)");
}

TEST_CASE("sequencer lets a reducescatter go by its shape") {
  TestSequencer sequencer(2);
  AllSubmit(sequencer, {0, 1}, Named("r", Tensor(OpKind::kReducescatter, {5, 2})));
  const Item item = TakeItem(sequencer);
  CHECK(item.dims.empty());
  CHECK(item.joined.empty());
  Contains(Rejection({Named("r", Tensor(OpKind::kReducescatter, {}))}, ProcessSets::OfSize(1)),
           "reducescatter of 'r': a tensor without dimensions cannot be scattered");
}

TEST_CASE("sequencer fuses what is ready when it is asked") {
  TestSequencer sequencer(2);
  for (const char* name : {"a", "b", "c"}) {
    MustSubmit(sequencer, 0, Named(name, Sum({2})));
  }
  for (const char* name : {"c", "a"}) {
    MustSubmit(sequencer, 1, Named(name, Sum({2})));
  }
  CHECK(sequencer.backlog().data_bytes == 16);
  CHECK_FALSE(sequencer.backlog().urgent);
  CHECK(Story(sequencer.TakeEntries()) == "run(c a)");
  MustSubmit(sequencer, 1, Named("b", Sum({2})));
  CHECK(Story(sequencer.TakeEntries()) == "run(b)");
  CHECK(sequencer.counters().executes == 2);
  CHECK(sequencer.counters().fused == 2);
  CHECK(sequencer.backlog().empty);
}

TEST_CASE("sequencer counts what a rank moves on average") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Named("g", Tensor(OpKind::kAllgather, {2, 3})));
  MustSubmit(sequencer, 1, Named("g", Tensor(OpKind::kAllgather, {6, 3})));
  CHECK(sequencer.backlog().data_bytes == 4 * 3 * 4);
}

// ---------------------------------------------------------------- process sets

TEST_CASE("sequencer completes an operation with the members of its set") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 2, Named("w", Sum({4}, 1)));
  CHECK(sequencer.TakeEntries().empty());
  MustSubmit(sequencer, 0, Named("w", Sum({4}, 1)));
  CHECK(TakeItem(sequencer).key == OperationKey{1, "w", 1});
  AllSubmit(sequencer, {0, 2}, KnownRequest{1});
  CHECK(TakeItem(sequencer).key == OperationKey{1, "", 1});
}

TEST_CASE("sequencer keeps one name on two sets apart") {
  TestSequencer sequencer(Sets(), {1 << 20, 100});
  MustSubmit(sequencer, 2, Named("w", Sum({4}, 1)));
  MustSubmit(sequencer, 2, Named("w", Sum({5}, 2)));
  MustSubmit(sequencer, 2, Named("w", Sum({6}, 0)));
  AllSubmit(sequencer, {1, 3}, Named("w", Sum({5}, 2)));
  CHECK(Story(sequencer.TakeEntries()) == "run(w@2)");
  AllSubmit(sequencer, {0, 1, 3}, Named("w", Sum({6}, 0)));
  MustSubmit(sequencer, 0, Named("w", Sum({4}, 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(w) run(w@1)");
  // And their ids.
  AllSubmit(sequencer, {1, 2, 3}, KnownRequest{1});
  CHECK(Story(sequencer.TakeEntries()) == "run(#1@2)");
}

TEST_CASE("sequencer gives dimensions in the order of the set's members") {
  TestSequencer sequencer(Sets());
  for (const uint32_t rank : {3U, 1U, 2U}) {
    MustSubmit(sequencer, rank, Named("g", Tensor(OpKind::kAllgather, {rank}, DType::kU8, 2)));
  }
  CHECK(TakeItem(sequencer).dims == std::vector<int64_t>{1, 2, 3});
}

TEST_CASE("sequencer takes no request of a rank that cannot use the set") {
  TestSequencer sequencer(Sets());
  CHECK_FALSE(sequencer.Submit(1, Named("w", Sum({4}, 1)), At(0)).ok());
  CHECK_FALSE(sequencer.Submit(1, Named("w", Sum({4}, 3)), At(0)).ok());
  CHECK_FALSE(sequencer.Submit(1, Named("w", Sum({4}, -1)), At(0)).ok());
  AllSubmit(sequencer, {0, 2}, Named("w", Sum({4}, 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(w@1)");
  CHECK_FALSE(sequencer.Submit(1, KnownRequest{1}, At(0)).ok());
  CHECK(sequencer.pending_count() == 0);
  TestSequencer later(ProcessSets::FromRecords({{1, {7, 9}}}, 2, {7, 8}).value());
  Contains(later.Submit(0, Named("w", Sum({4}, 1)), At(0)).message(), "has lost worker(s)");
}

TEST_CASE("sequencer names the set where the root is not in it") {
  TestSequencer sequencer(Sets());
  AllSubmit(sequencer, {0, 2}, Named("b", Tensor(OpKind::kBroadcast, {4}, DType::kF32, 2 - 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(b@1)");
  FullRequest wrong = Named("b", Tensor(OpKind::kBroadcast, {4}, DType::kF32, 1));
  wrong.signature.root = 3;
  AllSubmit(sequencer, {0, 2}, wrong);
  Contains(TakeOnly<Rejected>(sequencer).message,
           "root 3 is not in process set 1 of ranks 0 and 2");
}

TEST_CASE("sequencer adds a set that all ranks ask for, and serves it at once") {
  TestSequencer sequencer(3);
  AllSubmit(sequencer, {0, 2}, AddSet({0, 1}));
  CHECK_FALSE(sequencer.Submit(1, Named("w", Sum({4}, 1)), At(0)).ok());
  MustSubmit(sequencer, 1, AddSet({0, 1}));
  CHECK(sequencer.backlog().urgent);
  const auto added = TakeOnly<SetAdded>(sequencer);
  CHECK(added == SetAdded{{0, "add"}, 1, {0, 1}});
  CHECK(sequencer.sets().Find(1)->ranks == std::vector<int32_t>{0, 1});
  AllSubmit(sequencer, {0, 1}, Named("w", Sum({4}, 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(w@1)");
}

TEST_CASE("sequencer rejects a set that is wrong or differs between the ranks") {
  const ProcessSets two = ProcessSets::OfSize(2);
  Contains(Rejection({AddSet({0}), AddSet({1})}, two), "ranks 0 on rank 0; ranks 1 on rank 1");
  Contains(Rejection({AddSet({0, 1}), AddSet({0, 1})}, two), "process set 0 has the same workers");
  Contains(Rejection({AddSet({0, 2}), AddSet({0, 2})}, two), "rank 2 is not in a world of 2");
  Contains(Rejection({AddSet({1, 0}), AddSet({1, 0})}, two), "do not grow");
  Contains(Rejection({AddSet({}), AddSet({})}, two), "a process set needs a rank");
}

TEST_CASE("sequencer looks at a set again each time it is asked for") {
  TestSequencer sequencer(2);
  FullRequest add = AddSet({1});
  add.reusable = true;
  AllSubmit(sequencer, {0, 1}, add);
  CHECK(TakeOnly<SetAdded>(sequencer).key == OperationKey{0, "add"});
  AllSubmit(sequencer, {0, 1}, add);
  Contains(TakeOnly<Rejected>(sequencer).message, "process set 1 has the same workers, rank 1");
}

TEST_CASE("sequencer takes an id back from a name that is used for what has none") {
  TestSequencer sequencer(2);
  AllSubmit(sequencer, {0, 1}, Named("x", Sum({4})));
  CHECK(TakeItem(sequencer).key == OperationKey{1, "x"});
  AllSubmit(sequencer, {0, 1}, AddSet({1}, "x"));
  CHECK(TakeOnly<SetAdded>(sequencer).key == OperationKey{0, "x"});
  CHECK_FALSE(sequencer.Submit(0, KnownRequest{1}, At(0)).ok());
  AllSubmit(sequencer, {0, 1}, Named("x", Sum({4})));
  CHECK(TakeItem(sequencer).key == OperationKey{2, "x"});
}

TEST_CASE("sequencer removes a set, and hears no more of it") {
  TestSequencer sequencer(Sets());
  AllSubmit(sequencer, {0, 2}, Named("w", Sum({4}, 1)));
  AllSubmit(sequencer, {0, 1, 2, 3}, RemoveSet(1));
  CHECK(Story(sequencer.TakeEntries()) == "run(w@1) set-1");
  CHECK(sequencer.sets().Find(1) == nullptr);
  // Requests that were under way when the set went are nobody's fault, and count for nothing.
  MustSubmit(sequencer, 2, KnownRequest{1});
  MustSubmit(sequencer, 0, Named("v", Sum({4}, 1)));
  CHECK(sequencer.TakeEntries().empty());
  CHECK(sequencer.pending_count() == 0);
  AllSubmit(sequencer, {0, 1, 2, 3}, AddSet({0, 2}));
  CHECK(TakeOnly<SetAdded>(sequencer).set == 3);
}

TEST_CASE("sequencer does not remove a set that is at work, is unknown or is the world") {
  TestSequencer sequencer(Sets());
  MustSubmit(sequencer, 2, Named("grad", Sum({4}, 1)));
  AllSubmit(sequencer, {0, 1, 2, 3}, RemoveSet(1));
  Contains(TakeOnly<Rejected>(sequencer).message,
           "process set 1 has operations under way, 'grad' for one");
  MustSubmit(sequencer, 0, Named("grad", Sum({4}, 1)));
  CHECK(Story(sequencer.TakeEntries()) == "run(grad@1)");
  AllSubmit(sequencer, {0, 1, 2, 3}, RemoveSet(0));
  Contains(TakeOnly<Rejected>(sequencer).message, "of all workers, cannot be removed");
  AllSubmit(sequencer, {0, 1, 2, 3}, RemoveSet(7));
  Contains(TakeOnly<Rejected>(sequencer).message, "process set 7 does not exist");
  MustSubmit(sequencer, 0, RemoveSet(1));
  AllSubmit(sequencer, {1, 2, 3}, RemoveSet(2));
  Contains(TakeOnly<Rejected>(sequencer).message,
           "process set 1 on rank 0; process set 2 on ranks 1-3");
}

// ---------------------------------------------------------------- small data

TEST_CASE("sequencer computes a small allreduce from what the requests bring") {
  TestSequencer sequencer(3);
  MustSubmit(sequencer, 2, Small("s", "\x01\x02"));
  MustSubmit(sequencer, 0, Small("s", "\x10\x20"));
  MustSubmit(sequencer, 1, Small("s", "\x07\x01"));
  CHECK(TakeOnly<SmallResult>(sequencer) == SmallResult{{1, "s"}, "\x18\x23"});
  MustSubmit(sequencer, 0, KnownRequest{1, "\x01\x01"});
  MustSubmit(sequencer, 2, Small("s", "\x01\x01"));
  MustSubmit(sequencer, 1, KnownRequest{1, "\x02\x03"});
  CHECK(TakeOnly<SmallResult>(sequencer) == SmallResult{{1, ""}, "\x04\x05"});
}

TEST_CASE("sequencer hands the inputs over in rank order, with the signature") {
  std::vector<std::string> seen;
  const auto reduce = [&](const Signature& signature,
                          const std::vector<const std::string*>& inputs,
                          uint32_t divisor) {
    CHECK(signature.op == Op::kAverage);
    CHECK(divisor == 3);
    for (const std::string* input : inputs) {
      seen.push_back(*input);
    }
    return std::string("xy");
  };
  Sequencer sequencer(ProcessSets::OfSize(3), {}, reduce);
  for (const uint32_t rank : {1U, 2U, 0U}) {
    FullRequest request = Small("s", std::to_string(rank) + "!");
    request.signature.op = Op::kAverage;
    MustSubmit(sequencer, rank, request);
  }
  CHECK(seen == std::vector<std::string>{"0!", "1!", "2!"});
}

TEST_CASE("sequencer moves the data where some rank brought none") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Small("s", "ab"));
  FullRequest without = Small("s", "ab");
  without.small.clear();
  MustSubmit(sequencer, 1, without);
  CHECK(TakeItem(sequencer).key == OperationKey{1, "s"});
  MustSubmit(sequencer, 0, KnownRequest{1, "ab"});
  MustSubmit(sequencer, 1, KnownRequest{1, ""});
  CHECK(TakeItem(sequencer).key == OperationKey{1, ""});
  // What was brought in vain does not stay.
  AllSubmit(sequencer, {0, 1}, KnownRequest{1, "\x01\x01"});
  CHECK(TakeOnly<SmallResult>(sequencer).bytes == "\x02\x02");
}

TEST_CASE("sequencer moves the data of what it does not compute") {
  TestSequencer sequencer(1);
  FullRequest adasum = Named("a", Sum({1}));
  adasum.signature.op = Op::kAdasum;
  adasum.small = "abcd";
  MustSubmit(sequencer, 0, adasum);
  CHECK(Story(sequencer.TakeEntries()) == "run(a)");
  FullRequest member = Member("g0", Sum({1}), "g", 1, 0);
  member.small = "abcd";
  MustSubmit(sequencer, 0, member);
  CHECK(Story(sequencer.TakeEntries()) == "run(g0)");
  Sequencer without_arithmetic(ProcessSets::OfSize(1), {}, nullptr);
  MustSubmit(without_arithmetic, 0, Small("s", "abcd"));
  CHECK(Story(without_arithmetic.TakeEntries()) == "run(s)");
}

TEST_CASE("sequencer refuses small data that is not the tensor's") {
  TestSequencer sequencer(2);
  FullRequest request = Small("s", "abcd");
  request.small = "abc";
  CHECK_FALSE(sequencer.Submit(0, request, At(0)).ok());
  FullRequest broadcast = Named("b", Tensor(OpKind::kBroadcast, {4}, DType::kU8));
  broadcast.small = "abcd";
  CHECK_FALSE(sequencer.Submit(0, broadcast, At(0)).ok());
  FullRequest barrier = OfKind("c", OpKind::kBarrier);
  barrier.small = "a";
  CHECK_FALSE(sequencer.Submit(0, barrier, At(0)).ok());
  FullRequest impossible = Named("i", Tensor(OpKind::kAllreduce, {-1}, DType::kU8));
  impossible.small = "a";
  CHECK_FALSE(sequencer.Submit(0, impossible, At(0)).ok());
  AllSubmit(sequencer, {0, 1}, Small("s", "abcd"));
  CHECK(TakeOnly<SmallResult>(sequencer).key.id == 1);
  CHECK_FALSE(sequencer.Submit(0, KnownRequest{1, "abcde"}, At(0)).ok());
  CHECK(sequencer.pending_count() == 0);
}

TEST_CASE("sequencer rejects small calls that differ like any others") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Small("s", "ab"));
  MustSubmit(sequencer, 1, Small("s", "abc"));
  Contains(TakeOnly<Rejected>(sequencer).message, "shape [2] on rank 0; shape [3] on rank 1");
}

// ---------------------------------------------------------------- ids

TEST_CASE("sequencer gives no more ids than it may, and none if it may not") {
  TestSequencer none(1, {1 << 20, 0});
  MustSubmit(none, 0, Named("w", Sum({4})));
  CHECK(TakeItem(none).key == OperationKey{0, "w"});
  TestSequencer two(1, {1 << 20, 2});
  for (const char* name : {"a", "b", "c"}) {
    MustSubmit(two, 0, Named(name, Sum({4})));
  }
  const auto items = TakeOnly<Execute>(two).items;
  CHECK(items[0].key == OperationKey{1, "a"});
  CHECK(items[1].key == OperationKey{2, "b"});
  CHECK(items[2].key == OperationKey{0, "c"});
}

TEST_CASE("sequencer refuses a request without an id") {
  TestSequencer sequencer(1);
  CHECK_FALSE(sequencer.Submit(0, KnownRequest{0}, At(0)).ok());
  CHECK_FALSE(sequencer.Submit(0, KnownRequest{UINT32_MAX}, At(0)).ok());
}

}  // namespace muster::worker
