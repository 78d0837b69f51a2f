#include "worker/core/call_check.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

using Change = std::function<void(Signature&)>;
using Ranks = std::vector<uint32_t>;

Signature Call(OpKind kind) {
  Signature signature;
  signature.kind = kind;
  if (kind <= OpKind::kReducescatter) {
    signature.dtype = DType::kF32;
    signature.shape = {2, 3};
  }
  if (kind == OpKind::kAllgather || kind == OpKind::kAlltoall) {
    signature.shape.front() = 0;  // As the sequencer keeps it.
  }
  if (kind == OpKind::kAddSet) {
    signature.ranks = {0, 2};
  }
  if (kind == OpKind::kRemoveSet) {
    signature.root = 5;
  }
  return signature;
}

/// The set 5 = {1, 2}, and 6, which has lost a worker, in a world of three.
ProcessSets Sets() {
  return ProcessSets::FromRecords({{5, {11, 12}}, {6, {11, 99}}}, 7, {10, 11, 12}).value();
}

Signature Changed(OpKind kind, const Change& change) {
  Signature signature = Call(kind);
  change(signature);
  return signature;
}

/// Rank 1 of three calls something else than ranks 0 and 2.
std::string OneDiffers(OpKind kind, const Change& change) {
  const Signature usual = Call(kind);
  const Signature other = Changed(kind, change);
  const Ranks most = {2, 0};  // In the order of their requests, not of their ranks.
  const Ranks one = {1};
  return FindMismatch("grad/w", {{&usual, &most}, {&other, &one}}, Sets());
}

/// All three ranks make the same call.
std::string AllCall(const Signature& signature, const ProcessSets& sets = Sets()) {
  Ranks ranks(sets.world_size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return FindMismatch("grad/w", {{&signature, &ranks}}, sets);
}

struct Difference {
  OpKind kind;
  Change change;
  std::string usual;
  std::string other;
};

/// Each member of a signature, for each operation that has a use for it.
std::vector<Difference> Differences() {
  std::vector<Difference> all;
  for (const OpKind kind : {OpKind::kAllreduce,
                            OpKind::kAllgather,
                            OpKind::kBroadcast,
                            OpKind::kAlltoall,
                            OpKind::kReducescatter}) {
    all.push_back({kind, [](Signature& s) { s.dtype = DType::kBF16; }, "dtype f32", "dtype bf16"});
    all.push_back({kind,
                   [](Signature& s) { s.device_kind = 1; },
                   "a tensor in host memory",
                   "a tensor on a GPU"});
  }
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kReducescatter}) {
    all.push_back({kind, [](Signature& s) { s.shape = {6}; }, "shape [2, 3]", "shape [6]"});
    all.push_back({kind, [](Signature& s) { s.shape = {3, 2}; }, "shape [2, 3]", "shape [3, 2]"});
    all.push_back({kind, [](Signature& s) { s.shape = {}; }, "shape [2, 3]", "shape []"});
  }
  for (const OpKind kind : {OpKind::kAllgather, OpKind::kAlltoall}) {
    all.push_back({kind, [](Signature& s) { s.shape = {0, 4}; }, "shape [*, 3]", "shape [*, 4]"});
    all.push_back({kind, [](Signature& s) { s.shape = {0}; }, "shape [*, 3]", "shape [*]"});
    all.push_back({kind, [](Signature& s) { s.shape = {}; }, "shape [*, 3]", "shape []"});
  }
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReducescatter}) {
    all.push_back({kind, [](Signature& s) { s.op = Op::kMin; }, "reduction sum", "reduction min"});
    all.push_back({kind,
                   [](Signature& s) { s.prescale = 0.5; },
                   "prescale 1 and postscale 1",
                   "prescale 0.5 and postscale 1"});
    all.push_back({kind,
                   [](Signature& s) { s.postscale = -2; },
                   "prescale 1 and postscale 1",
                   "prescale 1 and postscale -2"});
    all.push_back({kind,
                   [](Signature& s) {
                     s.group = {"g", 3, 1};
                   },
                   "no group",
                   "member 1 of 3 of group 'g'"});
  }
  all.push_back({OpKind::kBroadcast, [](Signature& s) { s.root = 2; }, "root 0", "root 2"});
  all.push_back(
      {OpKind::kRemoveSet, [](Signature& s) { s.root = 6; }, "process set 5", "process set 6"});
  all.push_back({OpKind::kAddSet,
                 [](Signature& s) {
                   s.ranks = {0, 1, 2};
                 },
                 "ranks 0 2",
                 "ranks 0 1 2"});
  all.push_back({OpKind::kAddSet, [](Signature& s) { s.ranks = {}; }, "ranks 0 2", "no ranks"});
  return all;
}

struct Fault {
  OpKind kind;
  Change change;
  std::string message;  // Empty: the call is in order.
};

std::vector<Fault> TensorFaults() {
  const auto nothing = [](Signature&) {};
  std::vector<Fault> all;
  for (const OpKind kind : {OpKind::kAllreduce,
                            OpKind::kAllgather,
                            OpKind::kBroadcast,
                            OpKind::kAlltoall,
                            OpKind::kReducescatter}) {
    all.push_back({kind, nothing, ""});
    all.push_back({kind, [](Signature& s) { s.dtype = DType::kBool; }, ""});
    all.push_back({kind,
                   [](Signature& s) { s.device_kind = 1; },
                   "tensors on a GPU are not served by this build"});
    all.push_back({kind, [](Signature& s) { s.set = 2; }, "process set 2 does not exist"});
    all.push_back({kind,
                   [](Signature& s) { s.set = 6; },
                   "process set 6 has lost worker(s), and cannot be used any more"});
    all.push_back({kind,
                   [](Signature& s) { s.shape.back() = -3; },
                   kind == OpKind::kAllgather || kind == OpKind::kAlltoall
                       ? "the shape [0, -3] is impossible"
                       : "the shape [2, -3] is impossible"});
  }
  return all;
}

std::vector<Fault> FlatFaults() {
  std::vector<Fault> all;
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast}) {
    all.push_back({kind, [](Signature& s) { s.shape = {}; }, ""});
  }
  const auto flat = [](Signature& s) { s.shape = {}; };
  all.push_back({OpKind::kAllgather, flat, "a tensor without dimensions cannot be gathered"});
  all.push_back({OpKind::kAlltoall, flat, "a tensor without dimensions cannot be split"});
  all.push_back({OpKind::kReducescatter, flat, "a tensor without dimensions cannot be scattered"});
  return all;
}

std::vector<Fault> ReductionFaults() {
  const double nan = std::nan("");
  std::vector<Fault> all;
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kReducescatter}) {
    for (const Op op : {Op::kAverage, Op::kSum, Op::kMin, Op::kMax, Op::kProduct}) {
      all.push_back({kind, [op](Signature& s) { s.op = op; }, ""});
      all.push_back({kind,
                     [op](Signature& s) {
                       s.dtype = DType::kBool;
                       s.op = op;
                     },
                     op == Op::kAverage ? "booleans have no average" : ""});
    }
    for (const bool post : {false, true}) {
      const auto with = [kind, post](double factor, DType dtype, std::string message) {
        return Fault{kind,
                     [=](Signature& s) {
                       (post ? s.postscale : s.prescale) = factor;
                       s.dtype = dtype;
                     },
                     std::move(message)};
      };
      all.push_back(with(nan, DType::kF32, "a factor is not a number"));
      all.push_back(with(0, DType::kF32, ""));
      all.push_back(with(-1e300, DType::kI8, ""));
      all.push_back(with(2, DType::kBool, "booleans cannot be scaled"));
      all.push_back(with(nan, DType::kBool, "a factor is not a number"));
    }
    all.push_back({kind, [](Signature& s) { s.set = 5; }, ""});
  }
  return all;
}

std::vector<Fault> AdasumFaults() {
  const OpKind reduce = OpKind::kAllreduce;
  const auto adasum = [](const Change& change) {
    return [change](Signature& s) {
      s.op = Op::kAdasum;
      change(s);
    };
  };
  return {
      {reduce, adasum([](Signature&) {}), ""},
      {reduce, adasum([](Signature& s) { s.dtype = DType::kBF16; }), ""},
      {reduce,
       adasum([](Signature& s) { s.dtype = DType::kI32; }),
       "adasum is for floating-point types, not i32"},
      {reduce,
       adasum([](Signature& s) { s.dtype = DType::kBool; }),
       "adasum is for floating-point types, not bool"},
      {reduce,
       adasum([](Signature& s) { s.set = 5; }),
       "adasum is for all workers, not for process set 5"},
      {reduce, adasum([](Signature& s) { s.prescale = 2; }), "adasum takes no factors"},
      {reduce, adasum([](Signature& s) { s.postscale = 0; }), "adasum takes no factors"},
      {OpKind::kReducescatter, adasum([](Signature&) {}), "adasum is for allreduce only"},
  };
}

std::vector<Fault> OtherFaults() {
  const auto nothing = [](Signature&) {};
  const OpKind spread = OpKind::kBroadcast;
  const std::string for_all = "it is for all workers, not for process set 5";
  return {
      {OpKind::kBarrier, nothing, ""},
      {OpKind::kBarrier, [](Signature& s) { s.set = 5; }, ""},
      {OpKind::kBarrier, [](Signature& s) { s.set = -1; }, "process set -1 does not exist"},
      {OpKind::kAgreement, nothing, ""},
      {OpKind::kAgreement, [](Signature& s) { s.set = 7; }, "process set 7 does not exist"},
      {spread, [](Signature& s) { s.root = 2; }, ""},
      {spread, [](Signature& s) { s.root = 3; }, "root 3 is not a rank of a world of 3"},
      {spread, [](Signature& s) { s.root = -1; }, "root -1 is not a rank of a world of 3"},
      {spread, [](Signature& s) { s.set = 5; }, "root 0 is not in process set 5 of ranks 1 and 2"},
      {spread,
       [](Signature& s) {
         s.set = 5;
         s.root = 2;
       },
       ""},
      {OpKind::kJoin, nothing, ""},
      {OpKind::kJoin, [](Signature& s) { s.set = 5; }, for_all},
  };
}

std::vector<Fault> SetAndGroupFaults() {
  const auto nothing = [](Signature&) {};
  const OpKind spread = OpKind::kBroadcast;
  const OpKind add = OpKind::kAddSet;
  const OpKind remove = OpKind::kRemoveSet;
  const std::string for_all = "it is for all workers, not for process set 5";
  return {
      {add, nothing, ""},
      {add, [](Signature& s) { s.set = 5; }, for_all},
      {add, [](Signature& s) { s.ranks = {}; }, "a process set needs a rank"},
      {add,
       [](Signature& s) {
         s.ranks = {1, 2};
       },
       "process set 5 has the same workers, ranks 1 and 2"},
      {remove, nothing, ""},
      {remove, [](Signature& s) { s.root = 6; }, ""},
      {remove, [](Signature& s) { s.set = 5; }, for_all},
      {remove,
       [](Signature& s) { s.root = 0; },
       "process set 0, of all workers, cannot be removed"},
      {remove, [](Signature& s) { s.root = 9; }, "process set 9 does not exist"},
      {OpKind::kAllreduce,
       [](Signature& s) {
         s.group = {"g", 1, 0};
       },
       ""},
      {OpKind::kAllgather,
       [](Signature& s) {
         s.group = {"g", 4, 3};
       },
       ""},
      {OpKind::kReducescatter,
       [](Signature& s) {
         s.group = {"g", 2, 1};
       },
       ""},
      {OpKind::kAllreduce,
       [](Signature& s) {
         s.group = {"g", 2, 2};
       },
       "member 2 of a group of 2"},
      {OpKind::kAllreduce,
       [](Signature& s) {
         s.group = {"g", 0, 0};
       },
       "member 0 of a group of 0"},
      {spread,
       [](Signature& s) {
         s.group = {"g", 2, 1};
       },
       "broadcast cannot be in a group"},
      {OpKind::kBarrier,
       [](Signature& s) {
         s.group = {"g", 2, 1};
       },
       "barrier cannot be in a group"},
  };
}

std::vector<Fault> Faults() {
  std::vector<Fault> all = TensorFaults();
  for (const auto& more :
       {FlatFaults(), ReductionFaults(), AdasumFaults(), OtherFaults(), SetAndGroupFaults()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

constexpr OpKind kAllKinds[] = {OpKind::kAllreduce,
                                OpKind::kAllgather,
                                OpKind::kBroadcast,
                                OpKind::kAlltoall,
                                OpKind::kReducescatter,
                                OpKind::kBarrier,
                                OpKind::kAgreement,
                                OpKind::kJoin,
                                OpKind::kAddSet,
                                OpKind::kRemoveSet};

}  // namespace

TEST_CASE("call check finds no fault in calls that are alike") {
  for (const OpKind kind : kAllKinds) {
    CHECK(AllCall(Call(kind)).empty());
    const bool about_sets = kind == OpKind::kAddSet || kind == OpKind::kRemoveSet;
    CHECK(AllCall(Call(kind), ProcessSets::OfSize(1)).empty() == !about_sets);
  }
}

TEST_CASE("call check names the tensor, each value and its ranks for each difference") {
  for (const Difference& difference : Differences()) {
    CHECK(OneDiffers(difference.kind, difference.change) ==
          "the calls of 'grad/w' differ: " + difference.usual + " on ranks 0 and 2; " +
              difference.other + " on rank 1");
  }
}

TEST_CASE("call check tells any two operations apart") {
  for (const OpKind kind : kAllKinds) {
    for (const OpKind other : kAllKinds) {
      if (kind != other) {
        const Signature replacement = Call(other);
        CHECK(OneDiffers(kind, [&](Signature& s) { s = replacement; }) ==
              std::string("the calls of 'grad/w' differ: operation ") + Name(kind) +
                  " on ranks 0 and 2; operation " + Name(other) + " on rank 1");
      }
    }
  }
}

TEST_CASE("call check names the difference that explains the others") {
  const auto both = [](Signature& s) {
    s.dtype = DType::kI64;
    s.shape = {1};
    s.op = Op::kMax;
    s.group = {"g", 1, 0};
  };
  CHECK(OneDiffers(OpKind::kAllreduce, both) ==
        "the calls of 'grad/w' differ: dtype f32 on ranks 0 and 2; dtype i64 on rank 1");
}

TEST_CASE("call check joins the ranks whose value is the same though another differs") {
  const Signature first = Call(OpKind::kAllreduce);
  const Signature second =
      Changed(OpKind::kAllreduce, [](Signature& s) { s.prescale = 2; });  // Later in the order.
  const Signature third = Changed(OpKind::kAllreduce, [](Signature& s) { s.shape = {6}; });
  const Ranks of_first = {3};
  const Ranks of_second = {1};
  const Ranks of_third = {2, 0};
  CHECK(FindMismatch("w",
                     {{&first, &of_first}, {&second, &of_second}, {&third, &of_third}},
                     ProcessSets::OfSize(4)) ==
        "the calls of 'w' differ: shape [6] on ranks 0 and 2; shape [2, 3] on ranks 1 and 3");
}

TEST_CASE("call check shows factors with digits enough to tell them apart") {
  const double near = std::nextafter(1.0, 2.0);
  const std::string message =
      OneDiffers(OpKind::kAllreduce, [near](Signature& s) { s.prescale = near; });
  CHECK(message ==
        "the calls of 'grad/w' differ: prescale 1 and postscale 1 on ranks 0 and 2; "
        "prescale 1.0000000000000002 and postscale 1 on rank 1");
}

TEST_CASE("call check takes the two zeros for the same factor") {
  Signature negative = Call(OpKind::kAllreduce);
  negative.postscale = -0.0;
  Signature positive = Call(OpKind::kAllreduce);
  positive.postscale = 0.0;
  CHECK(negative == positive);
}

TEST_CASE("call check refuses factors that are not numbers in a world of any size") {
  const Signature nan =
      Changed(OpKind::kAllreduce, [](Signature& s) { s.prescale = std::nan(""); });
  CHECK(AllCall(nan, ProcessSets::OfSize(1)) == "allreduce of 'grad/w': a factor is not a number");
  // Unequal to itself, it makes a group of each rank.
  const Ranks zero = {0};
  const Ranks one = {1};
  CHECK(FindMismatch("w", {{&nan, &zero}, {&nan, &one}}, ProcessSets::OfSize(2)) ==
        "the calls of 'w' differ in prescale nan and postscale 1 on every rank");
}

TEST_CASE("call check knows what nobody may call") {
  for (const Fault& fault : Faults()) {
    const Signature signature = Changed(fault.kind, fault.change);
    CHECK(FindFault(signature, Sets()) == fault.message);
  }
}

TEST_CASE("call check names operation and tensor where all make the same wrong call") {
  for (const Fault& fault : Faults()) {
    const std::string expected =
        fault.message.empty() ? ""
                              : std::string(Name(fault.kind)) + " of 'grad/w': " + fault.message;
    CHECK(AllCall(Changed(fault.kind, fault.change)) == expected);
  }
}

TEST_CASE("call check prefers a difference to a fault") {
  const std::string message =
      OneDiffers(OpKind::kAllreduce, [](Signature& s) { s.op = Op::kAdasum; });
  CHECK(message ==
        "the calls of 'grad/w' differ: reduction sum on ranks 0 and 2; reduction adasum on rank 1");
}

TEST_CASE("rank list reads like a sentence, with runs as ranges, and stops after eight") {
  const std::pair<Ranks, const char*> rows[] = {
      {{3}, "rank 3"},
      {{0, 5}, "ranks 0 and 5"},
      {{5, 0}, "ranks 0 and 5"},
      {{0, 1}, "ranks 0 and 1"},
      {{0, 1, 5}, "ranks 0, 1 and 5"},
      {{5, 6, 7}, "ranks 5-7"},
      {{12, 5, 6, 7}, "ranks 5-7 and 12"},
      {{1, 5, 6, 7, 9, 10}, "ranks 1, 5-7, 9 and 10"},
      {{0, 1, 2, 3, 4, 5, 6, 7}, "ranks 0-7"},
      {{0, 2, 4, 6, 8, 10, 12, 14}, "ranks 0, 2, 4, 6, 8, 10, 12 and 14"},
      {{0, 2, 4, 6, 8, 10, 12, 14, 16}, "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 1 other"},
      {{0, 2, 4, 6, 8, 10, 12, 14, 15, 16}, "ranks 0, 2, 4, 6, 8, 10, 12 and 14-16"},
      {{0, 2, 4, 6, 8, 10, 12, 14, 16, 17}, "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 2 others"},
      {{UINT32_MAX, UINT32_MAX - 1, UINT32_MAX - 2}, "ranks 4294967293-4294967295"},
  };
  for (const auto& [ranks, text] : rows) {
    CHECK(RankList(ranks) == text);
  }
}

TEST_CASE("clip cuts at the limit, never within a character") {
  CHECK(Clip("abcdef", 6) == "abcdef");
  CHECK(Clip("abcdefg", 6) == "abc...");
  CHECK(Clip("ab\xc3\xa4\xc3\xa4g", 6) == "ab...");
  CHECK(Clip("abc\xc3\xa4g", 6) == "abc\xc3\xa4g");
  CHECK(Clip("\x80\x80\x80\x80\x80", 4) == "...");
  CHECK(Clip("abcd", 2) == "..");
  CHECK(Clip("abcd", 0).empty());
  CHECK(Quoted("w") == "'w'");
  CHECK(Quoted(std::string(10'000, 'w')).size() == 82);
}

TEST_CASE("call check keeps its messages short at any size") {
  constexpr uint32_t kSize = 20'000;
  std::vector<Signature> signatures(kSize, Call(OpKind::kAllreduce));
  std::vector<Ranks> ranks(kSize);
  std::vector<CallGroup> groups;
  for (uint32_t rank = 0; rank < kSize; ++rank) {
    signatures[rank].shape.assign(64, INT64_MAX - rank);
    ranks[rank] = {rank};
    groups.push_back({&signatures[rank], &ranks[rank]});
  }
  const std::string message =
      FindMismatch(std::string(5'000, 'n'), groups, ProcessSets::OfSize(kSize));
  CHECK(message.size() <= kMessageMax);
  CHECK(message.find("on rank 0; ") != std::string::npos);
  CHECK(message.find("on rank 2") != std::string::npos);
  CHECK(message.find("and 19997 more") != std::string::npos);
}

// ---------------------------------------------------------------- splits

TEST_CASE("call check says what is wrong with splits") {
  const std::tuple<int64_t, std::vector<int64_t>, size_t, std::string> rows[] = {
      {6, {1, 2, 3}, 3, ""},
      {0, {0, 0}, 2, ""},
      {0, {}, 0, ""},
      {6, {1, 2}, 3, "2 splits for 3 ranks"},
      {6, {}, 3, "0 splits for 3 ranks"},
      {6, {1, 2, 3, 0}, 3, "4 splits for 3 ranks"},
      {6, {7, -1, 0}, 3, "the splits come to more than the 6 rows of the tensor"},
      {6, {5, -1, 2}, 3, "a split is negative: -1"},
      {6, {1, 2, 2}, 3, "the splits come to 5 rows, the tensor has 6"},
      {6, {1, 2, 4}, 3, "the splits come to more than the 6 rows of the tensor"},
      {6, {INT64_MAX, INT64_MAX, 8}, 3, "the splits come to more than the 6 rows of the tensor"},
      {INT64_MAX, {INT64_MAX, 0}, 2, ""},
      {-1, {0, 0}, 2, "the splits come to more than the -1 rows of the tensor"},
      {6, {INT64_MIN, 0}, 2, "a split is negative: -9223372036854775808"},
  };
  for (const auto& [count, splits, members, fault] : rows) {
    CHECK(FindSplitsFault(count, splits, members) == fault);
  }
}

TEST_CASE("call check splits evenly where it comes out even") {
  CHECK(EqualSplits(6, 3) == std::vector<int64_t>{2, 2, 2});
  CHECK(EqualSplits(0, 3) == std::vector<int64_t>{0, 0, 0});
  CHECK(EqualSplits(5, 1) == std::vector<int64_t>{5});
  CHECK_FALSE(EqualSplits(7, 3).has_value());
  CHECK_FALSE(EqualSplits(2, 3).has_value());
  CHECK_FALSE(EqualSplits(-3, 3).has_value());
  CHECK_FALSE(EqualSplits(3, 0).has_value());
}

TEST_CASE("call check adds up rows as long as their bytes can be counted") {
  const auto total = [](Shape shape, std::vector<int64_t> rows) {
    Signature signature = Call(OpKind::kAllgather);
    signature.shape = std::move(shape);
    return TotalRows(signature, rows);
  };
  CHECK(total({0, 3}, {1, 0, 4}) == 5);
  CHECK(total({0}, {}) == 0);
  CHECK_FALSE(total({}, {1}).has_value());
  CHECK_FALSE(total({0, 3}, {4, -1}).has_value());
  const int64_t most = INT64_MAX / 4;
  CHECK(total({0}, {most - 1, 1}) == most);
  CHECK_FALSE(total({0}, {most, 1}).has_value());
  CHECK_FALSE(total({0, 2}, {most, 0}).has_value());
  // Rows of nothing still have to be counted.
  CHECK(total({0, 0}, {INT64_MAX - 1, 1}) == INT64_MAX);
  CHECK_FALSE(total({0, 0}, {INT64_MAX, 1}).has_value());
  // Rows too large for any number, but there are none.
  CHECK(total({0, INT64_MAX, 4}, {0, 0}) == 0);
  CHECK_FALSE(total({0, INT64_MAX, 4}, {0, 1}).has_value());
}

TEST_CASE("call check adds up what each member of an alltoall receives") {
  const auto received = [](std::vector<int64_t> splits) {
    return ReceivedRows(Call(OpKind::kAlltoall), splits);
  };
  CHECK(received({1, 2, 3, 4}) == std::vector<int64_t>{4, 6});
  CHECK(received({7}) == std::vector<int64_t>{7});
  CHECK(received({0, 0, 1, 0, 0, 2, 0, 0, 3}) == std::vector<int64_t>{0, 0, 6});
  CHECK(received({}) == std::vector<int64_t>{});
  CHECK_FALSE(received({1, 2, 3}).has_value());
  CHECK_FALSE(received({1, 2, -3, 4}).has_value());
  CHECK_FALSE(received({INT64_MAX / 12, 0, 1, 0}).has_value());
  CHECK(received({INT64_MAX / 12, 0, 0, 0}).has_value());
}

}  // namespace muster::worker
