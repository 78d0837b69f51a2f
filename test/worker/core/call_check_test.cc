#include "worker/core/call_check.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <numeric>

namespace muster::worker {
namespace {

using Change = std::function<void(Signature&)>;
using Ranks = std::vector<uint32_t>;

Signature Call(OpKind kind) {
  Signature signature;
  signature.kind = kind;
  if (kind != OpKind::kBarrier && kind != OpKind::kAgreement) {
    signature.dtype = DType::kF32;
    signature.shape = {2, 3};
  }
  if (kind == OpKind::kAllgather) {
    signature.shape.front() = 0;  // As the sequencer keeps it.
  }
  return signature;
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
  return FindMismatch("grad/w", {{&usual, &most}, {&other, &one}}, 3);
}

/// All three ranks make the same call.
std::string AllCall(const Signature& signature, uint32_t world_size = 3) {
  Ranks ranks(world_size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return FindMismatch("grad/w", {{&signature, &ranks}}, world_size);
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
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast}) {
    all.push_back({kind, [](Signature& s) { s.dtype = DType::kBF16; }, "dtype f32", "dtype bf16"});
    all.push_back({kind,
                   [](Signature& s) { s.device_kind = 1; },
                   "a tensor in host memory",
                   "a tensor on a GPU"});
    all.push_back({kind, [](Signature& s) { s.set = 4; }, "process set 0", "process set 4"});
  }
  for (const OpKind kind : {OpKind::kAllreduce, OpKind::kBroadcast}) {
    all.push_back({kind, [](Signature& s) { s.shape = {6}; }, "shape [2, 3]", "shape [6]"});
    all.push_back({kind, [](Signature& s) { s.shape = {3, 2}; }, "shape [2, 3]", "shape [3, 2]"});
    all.push_back({kind, [](Signature& s) { s.shape = {}; }, "shape [2, 3]", "shape []"});
  }
  const OpKind gather = OpKind::kAllgather;
  all.push_back({gather, [](Signature& s) { s.shape = {0, 4}; }, "shape [*, 3]", "shape [*, 4]"});
  all.push_back({gather, [](Signature& s) { s.shape = {0}; }, "shape [*, 3]", "shape [*]"});
  all.push_back({gather, [](Signature& s) { s.shape = {}; }, "shape [*, 3]", "shape []"});
  const OpKind reduce = OpKind::kAllreduce;
  all.push_back({reduce, [](Signature& s) { s.op = Op::kMin; }, "reduction sum", "reduction min"});
  all.push_back({reduce,
                 [](Signature& s) { s.prescale = 0.5; },
                 "prescale 1 and postscale 1",
                 "prescale 0.5 and postscale 1"});
  all.push_back({reduce,
                 [](Signature& s) { s.postscale = -2; },
                 "prescale 1 and postscale 1",
                 "prescale 1 and postscale -2"});
  all.push_back({OpKind::kBroadcast, [](Signature& s) { s.root = 2; }, "root 0", "root 2"});
  for (const OpKind kind : {OpKind::kBarrier, OpKind::kAgreement}) {
    all.push_back({kind, [](Signature& s) { s.set = 1; }, "process set 0", "process set 1"});
  }
  return all;
}

struct Fault {
  OpKind kind;
  Change change;
  std::string message;  // Empty: the call is in order.
};

std::vector<Fault> Faults() {
  const OpKind reduce = OpKind::kAllreduce;
  const OpKind gather = OpKind::kAllgather;
  const OpKind spread = OpKind::kBroadcast;
  const auto nothing = [](Signature&) {};
  const double nan = std::nan("");
  return {
      {reduce, nothing, ""},
      {gather, nothing, ""},
      {spread, nothing, ""},
      {OpKind::kBarrier, nothing, ""},
      {OpKind::kAgreement, nothing, ""},
      {reduce, [](Signature& s) { s.set = 2; }, "process set 2 does not exist"},
      {OpKind::kBarrier, [](Signature& s) { s.set = -1; }, "process set -1 does not exist"},
      {OpKind::kAgreement, [](Signature& s) { s.set = 7; }, "process set 7 does not exist"},
      {reduce,
       [](Signature& s) { s.device_kind = 1; },
       "tensors on a GPU are not served by this build"},
      {gather,
       [](Signature& s) { s.device_kind = 1; },
       "tensors on a GPU are not served by this build"},
      {reduce, [](Signature& s) { s.op = Op::kAdasum; }, "the reduction adasum is not available"},
      {reduce, [](Signature& s) { s.op = Op::kProduct; }, ""},
      {reduce, [](Signature& s) { s.shape = {}; }, ""},
      {reduce, [nan](Signature& s) { s.prescale = nan; }, "a factor is not a number"},
      {reduce, [nan](Signature& s) { s.postscale = nan; }, "a factor is not a number"},
      {reduce, [](Signature& s) { s.postscale = 0; }, ""},
      {reduce,
       [](Signature& s) {
         s.dtype = DType::kBool;
         s.op = Op::kAverage;
       },
       "booleans have no average"},
      {reduce,
       [](Signature& s) {
         s.dtype = DType::kBool;
         s.prescale = 2;
       },
       "booleans cannot be scaled"},
      {reduce,
       [](Signature& s) {
         s.dtype = DType::kBool;
         s.postscale = 2;
       },
       "booleans cannot be scaled"},
      {reduce, [](Signature& s) { s.dtype = DType::kBool; }, ""},
      {reduce, [](Signature& s) { s.op = Op::kAverage; }, ""},
      {gather,
       [](Signature& s) { s.shape = {}; },
       "a tensor without dimensions cannot be gathered"},
      {gather, [](Signature& s) { s.dtype = DType::kBool; }, ""},
      {spread, [](Signature& s) { s.root = 2; }, ""},
      {spread, [](Signature& s) { s.root = 3; }, "root 3 is not a rank of a world of 3"},
      {spread, [](Signature& s) { s.root = -1; }, "root -1 is not a rank of a world of 3"},
      {spread, [](Signature& s) { s.shape = {}; }, ""},
  };
}

}  // namespace

TEST_CASE("call check finds no fault in calls that are alike") {
  for (const OpKind kind : {OpKind::kAllreduce,
                            OpKind::kAllgather,
                            OpKind::kBroadcast,
                            OpKind::kBarrier,
                            OpKind::kAgreement}) {
    CHECK(AllCall(Call(kind)).empty());
    CHECK(AllCall(Call(kind), 1).empty());
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
  const std::vector<std::pair<OpKind, std::string>> kinds = {{OpKind::kAllreduce, "allreduce"},
                                                             {OpKind::kAllgather, "allgather"},
                                                             {OpKind::kBroadcast, "broadcast"},
                                                             {OpKind::kBarrier, "barrier"},
                                                             {OpKind::kAgreement, "agreement"}};
  for (const auto& [kind, name] : kinds) {
    for (const auto& [other, other_name] : kinds) {
      if (kind != other) {
        const Signature replacement = Call(other);
        CHECK(OneDiffers(kind, [&](Signature& s) { s = replacement; }) ==
              "the calls of 'grad/w' differ: operation " + name + " on ranks 0 and 2; operation " +
                  other_name + " on rank 1");
      }
    }
  }
}

TEST_CASE("call check names the difference that explains the others") {
  const auto both = [](Signature& s) {
    s.dtype = DType::kI64;
    s.shape = {1};
    s.op = Op::kMax;
    s.set = 1;
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
  CHECK(FindMismatch("w", {{&first, &of_first}, {&second, &of_second}, {&third, &of_third}}, 4) ==
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
  CHECK(AllCall(nan, 1) == "allreduce of 'grad/w': a factor is not a number");
  // Unequal to itself, it makes a group of each rank.
  const Ranks zero = {0};
  const Ranks one = {1};
  CHECK(FindMismatch("w", {{&nan, &zero}, {&nan, &one}}, 2) ==
        "the calls of 'w' differ in prescale nan and postscale 1 on every rank");
}

TEST_CASE("call check knows what nobody may call") {
  for (const Fault& fault : Faults()) {
    const Signature signature = Changed(fault.kind, fault.change);
    CHECK(FindFault(signature, 3) == fault.message);
  }
}

TEST_CASE("call check names operation and tensor where all make the same wrong call") {
  const char* const names[] = {"allreduce", "allgather", "broadcast", "barrier", "agreement"};
  for (const Fault& fault : Faults()) {
    const std::string expected = fault.message.empty()
                                     ? ""
                                     : std::string(names[static_cast<size_t>(fault.kind)]) +
                                           " of 'grad/w': " + fault.message;
    CHECK(AllCall(Changed(fault.kind, fault.change)) == expected);
  }
}

TEST_CASE("call check prefers a difference to a fault") {
  const std::string message =
      OneDiffers(OpKind::kAllreduce, [](Signature& s) { s.op = Op::kAdasum; });
  CHECK(message ==
        "the calls of 'grad/w' differ: reduction sum on ranks 0 and 2; reduction adasum on rank 1");
}

TEST_CASE("rank list reads like a sentence and stops after eight") {
  const std::pair<Ranks, const char*> rows[] = {
      {{3}, "rank 3"},
      {{0, 5}, "ranks 0 and 5"},
      {{0, 1, 5}, "ranks 0, 1 and 5"},
      {{0, 1, 2, 3, 4, 5, 6, 7}, "ranks 0, 1, 2, 3, 4, 5, 6 and 7"},
      {{0, 1, 2, 3, 4, 5, 6, 7, 8}, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 other"},
      {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 others"},
  };
  for (const auto& [ranks, text] : rows) {
    CHECK(RankList(ranks) == text);
  }
}

}  // namespace muster::worker
