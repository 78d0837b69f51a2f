// Modes for user cases on single calls: wrong ones, empty ones, odd types and numbers.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "collectives_modes.h"

namespace muster::test {
namespace {

using std::chrono::steady_clock;

/// What one rank passes to one call; memory is made for it.
struct Call {
  const char* kind = "allreduce";
  Shape shape{4};
  DType dtype = DType::kF32;
  Op op = Op::kSum;
  double prescale = 1;
  double postscale = 1;
  int root = 0;
  std::vector<int64_t> splits;
};

void Make(const Call& call, const std::string& name) {
  std::vector<unsigned char> in(static_cast<size_t>(std::max<int64_t>(CountOf(call.shape), 0)) * 8 +
                                8);
  std::vector<unsigned char> out(in.size());
  const Allocate into = [&out](const Shape& shape, DType, const Device&) {
    out.resize(static_cast<size_t>(CountOf(shape)) * 8 + 8);
    return static_cast<void*>(out.data());
  };
  Options options;
  options.name = name;
  options.op = call.op;
  options.prescale = call.prescale;
  options.postscale = call.postscale;
  const Tensor tensor{in.data(), call.dtype, call.shape, {}};
  const std::string kind = call.kind;
  if (kind == "allreduce") {
    allreduce(tensor, {out.data(), call.dtype, call.shape, {}}, options);
  } else if (kind == "grouped_allreduce") {
    grouped_allreduce({tensor}, {{out.data(), call.dtype, call.shape, {}}}, options);
  } else if (kind == "allgather") {
    allgather(tensor, into, options);
  } else if (kind == "broadcast") {
    broadcast(tensor, call.root, options);
  } else if (kind == "alltoall") {
    alltoall(tensor, call.splits, into, nullptr, options);
  } else if (kind == "reducescatter") {
    reducescatter(tensor, into, options);
  } else {
    barrier(options);
  }
}

struct Mismatch {
  const char* what;
  Call most;
  Call odd;  // Of the last rank.
};

// The same error on every rank, soon, naming the tensor; then all goes on.
void CheckMismatch(Context& context, const Mismatch& mismatch, int64_t index) {
  const std::string name = "odd." + std::to_string(index);
  const auto start = steady_clock::now();
  const std::string message = context.report.Refused(
      mismatch.what, [&] { Make(rank() == size() - 1 ? mismatch.odd : mismatch.most, name); });
  context.report.Check(steady_clock::now() - start < std::chrono::seconds(2),
                       std::string(mismatch.what) + " took too long");
  context.report.Check(message.find(name) != std::string::npos,
                       std::string(mismatch.what) + " does not name the tensor: " + message);
  const std::vector<std::string> all = allgather_object(message);
  context.report.Check(
      std::set<std::string>(all.begin(), all.end()).size() == 1,
      std::string(mismatch.what) + " reads differently on other ranks: " + message);
  context.log.Write("refused", {{"what", mismatch.what}, {"message", message}});
  CheckUsable(context, "good." + std::to_string(index));
  CheckUsable(context, name);
}

Case Bytes(Kind kind, Shape shape, uint64_t seed) {
  return Single(kind, DType::kU8, std::move(shape), Op::kSum, seed);
}

/// An alltoall of one byte per row, checked by its received splits and its values (the sender).
void CheckSplits(Context& context,
                 const std::string& what,
                 const std::function<int64_t(int, int)>& rows) {
  std::vector<int64_t> splits;
  std::vector<int64_t> expected_received;
  std::vector<float> in;
  std::vector<float> expected;
  for (const int other : Everyone()) {
    splits.push_back(rows(rank(), other));
    in.insert(
        in.end(), static_cast<size_t>(splits.back()), static_cast<float>(100 * rank() + other));
    expected_received.push_back(rows(other, rank()));
    expected.insert(expected.end(),
                    static_cast<size_t>(expected_received.back()),
                    static_cast<float>(100 * other + rank()));
  }
  std::vector<float> out;
  Shape shape;
  std::vector<int64_t> received;
  alltoall({in.data(), DType::kF32, {static_cast<int64_t>(in.size())}, {}},
           splits,
           [&](const Shape& of, DType, const Device&) {
             shape = of;
             out.resize(static_cast<size_t>(CountOf(of)));
             return static_cast<void*>(out.data());
           },
           &received,
           {});
  context.report.Check(out == expected, what + ": the values");
  context.report.Check(received == expected_received, what + ": the received splits");
  context.report.Check(shape == Shape{static_cast<int64_t>(expected.size())}, what + ": the shape");
}

/// An allreduce of one number, stored as `dtype`, per rank.
template <class T>
T Reduce(DType dtype, T value, Op op, double prescale = 1) {
  Options options;
  options.op = op;
  options.prescale = prescale;
  allreduce({&value, dtype, {1}, {}}, {&value, dtype, {1}, {}}, options);
  return value;
}

long double ReduceFloat(DType dtype, long double value, Op op, double prescale = 1) {
  uint64_t stored = 0;
  StoreFloat(dtype, value, &stored);
  stored = Reduce(dtype, stored, op, prescale);
  return LoadFloat(dtype, &stored);
}

}  // namespace

void RunMismatches(Context& context) {
  const std::vector<Mismatch> mismatches{
      {"shapes", {}, {.shape = {5}}},
      {"numbers of dimensions", {}, {.shape = {2, 2}}},
      {"types", {}, {.dtype = DType::kF64}},
      {"types of one size", {}, {.dtype = DType::kI32}},
      {"reductions", {}, {.op = Op::kAverage}},
      {"operations", {}, {.kind = "allgather"}},
      {"operations, with a barrier", {}, {.kind = "barrier"}},
      {"operations, broadcast", {}, {.kind = "broadcast"}},
      {"prescale factors", {}, {.prescale = 2}},
      {"postscale factors", {}, {.postscale = 0.5}},
      {"a NaN factor", {}, {.prescale = std::numeric_limits<double>::quiet_NaN()}},
      {"roots", {.kind = "broadcast"}, {.kind = "broadcast", .root = 1}},
      {"a root that does not exist",
       {.kind = "broadcast", .root = 9},
       {.kind = "broadcast", .root = 9}},
      {"a root that does not exist, on one rank",
       {.kind = "broadcast"},
       {.kind = "broadcast", .root = 9}},
      {"a negative root", {.kind = "broadcast", .root = -1}, {.kind = "broadcast", .root = -1}},
      {"shapes of a broadcast", {.kind = "broadcast"}, {.kind = "broadcast", .shape = {3}}},
      {"other dimensions of an allgather",
       {.kind = "allgather", .shape = {2, 3}},
       {.kind = "allgather", .shape = {2, 4}}},
      {"numbers of dimensions of an allgather",
       {.kind = "allgather", .shape = {2, 3}},
       {.kind = "allgather", .shape = {6}}},
      {"other dimensions of an alltoall",
       {.kind = "alltoall", .shape = {3, 3}},
       {.kind = "alltoall", .shape = {3, 4}}},
      {"types of an alltoall",
       {.kind = "alltoall", .shape = {3}},
       {.kind = "alltoall", .shape = {3}, .dtype = DType::kI8}},
      {"shapes of a reducescatter",
       {.kind = "reducescatter", .shape = {6}},
       {.kind = "reducescatter", .shape = {7}}},
      {"reductions of a reducescatter",
       {.kind = "reducescatter"},
       {.kind = "reducescatter", .op = Op::kMax}},
      {"a grouped call and one alone", {}, {.kind = "grouped_allreduce"}},
      {"an average of booleans",
       {.dtype = DType::kBool, .op = Op::kAverage},
       {.dtype = DType::kBool, .op = Op::kAverage}},
      {"Adasum of integers",
       {.dtype = DType::kI32, .op = Op::kAdasum},
       {.dtype = DType::kI32, .op = Op::kAdasum}},
      {"Adasum with a factor",
       {.op = Op::kAdasum, .prescale = 2},
       {.op = Op::kAdasum, .prescale = 2}},
      {"Adasum as a reducescatter",
       {.kind = "reducescatter", .op = Op::kAdasum},
       {.kind = "reducescatter", .op = Op::kAdasum}},
      {"a negative dimension", {}, {.shape = {-4}}},
  };
  for (size_t i = 0; i < mismatches.size(); ++i) {
    if (std::string(mismatches[i].what) == "a grouped call and one alone") {
      continue;  // Members of a group have names of their own: nobody else asks for those.
    }
    CheckMismatch(context, mismatches[i], static_cast<int64_t>(i));
  }
}

void RunEmptyParts(Context& context) {
  CheckSplits(context, "nothing at all", [](int, int) { return 0; });
  CheckSplits(
      context, "nothing to rank 2", [](int from, int to) { return to == 2 ? 0 : from + to + 1; });
  CheckSplits(
      context, "nothing from rank 1", [](int from, int to) { return from == 1 ? 0 : to + 1; });
  CheckSplits(
      context, "only ranks 0 and 1", [](int from, int to) { return from < 2 && to < 2 ? 3 : 0; });
  CheckSplits(context, "only to oneself", [](int from, int to) { return from == to ? 2 : 0; });
  for (const Kind kind : {Kind::kAllgather,
                          Kind::kBroadcast,
                          Kind::kAllreduce,
                          Kind::kReducescatter,
                          Kind::kAlltoall}) {
    for (const Shape& shape : {Shape{0}, Shape{0, 5}, Shape{5, 0}}) {
      Running running(Bytes(kind, shape, 3));
      running.Call();
      context.report.Check(running);
    }
  }
}

void RunSplits(Context& context) {
  Chance chance(92);
  for (int trial = 0; trial < 100; ++trial) {
    const auto seed = static_cast<uint64_t>(chance.Below(1 << 30));
    CheckSplits(context, "trial " + std::to_string(trial), [seed](int from, int to) {
      return static_cast<int64_t>(
          Mix(seed, static_cast<uint64_t>(from), static_cast<uint64_t>(to)) % 9);
    });
  }
  const auto rows = static_cast<int64_t>(size()) * 2;
  const std::vector<int64_t> good(static_cast<size_t>(size()), 2);
  std::vector<int64_t> long_ones = good;
  long_ones.push_back(0);
  std::vector<int64_t> negative = good;
  negative[0] = -1;
  negative[1] = 5;
  std::vector<int64_t> sum = good;
  sum[0] = 1;
  std::vector<int64_t> huge = good;
  huge[0] = std::numeric_limits<int64_t>::max();
  huge[1] = std::numeric_limits<int64_t>::max();
  const Call right{.kind = "alltoall", .shape = {rows}, .splits = good};
  int64_t index = 100;
  for (const auto& [what, splits] : std::vector<std::pair<const char*, std::vector<int64_t>>>{
           {"a split too many", long_ones},
           {"a split too few", {rows}},
           {"a negative split", negative},
           {"splits that are less than the rows", sum},
           {"splits that overflow", huge}}) {
    const Call wrong{.kind = "alltoall", .shape = {rows}, .splits = splits};
    CheckMismatch(context, {what, wrong, wrong}, index++);
    CheckMismatch(context, {what, right, wrong}, index++);
  }
  const Call uneven{.kind = "alltoall", .shape = {rows + 1}};
  CheckMismatch(context, {"rows that do not divide", uneven, uneven}, index++);
  CheckMismatch(context, {"rows that do not divide, on one rank", right, uneven}, index++);
}

void RunScalars(Context& context) {
  for (const Kind kind : {Kind::kAllreduce, Kind::kBroadcast}) {
    Running running(Single(kind, DType::kF32, {}, Op::kSum, 4));
    running.Call();
    context.report.Check(running);
  }
  int64_t index = 0;
  for (const char* kind : {"allgather", "reducescatter", "alltoall"}) {
    const Call scalar{.kind = kind, .shape = {}};
    CheckMismatch(context, {kind, scalar, scalar}, index++);
  }
}

void RunAverages(Context& context) {
  Report& report = context.report;
  const auto of = [](std::vector<int64_t> values) { return values[static_cast<size_t>(rank())]; };
  if (size() == 3) {
    // Toward zero.
    report.Check(
        Reduce<int32_t>(DType::kI32, static_cast<int32_t>(of({1, 1, 0})), Op::kAverage) == 0,
        "the average of 1, 1, 0");
    report.Check(
        Reduce<int32_t>(DType::kI32, static_cast<int32_t>(of({-1, -1, 0})), Op::kAverage) == 0,
        "the average of -1, -1, 0");
    report.Check(
        Reduce<int8_t>(DType::kI8, static_cast<int8_t>(of({-100, -100, -99})), Op::kAverage) == -99,
        "the average of -100, -100, -99");
    return;
  }
  constexpr int64_t kLarge = int64_t{1} << 62;
  report.Check(
      Reduce<int64_t>(DType::kI64, of({kLarge + 11, kLarge + 14}), Op::kAverage) == kLarge + 12,
      "the average near 2^62");
  report.Check(
      Reduce<int64_t>(DType::kI64, of({-kLarge - 11, -kLarge - 14}), Op::kAverage) == -kLarge - 12,
      "the average near -2^62");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  report.Check(Reduce<int64_t>(DType::kI64, of({kMost, kMost}), Op::kAverage) == kMost,
               "the average of the largest");
  report.Check(Reduce<int64_t>(DType::kI64, of({kMost, -kMost}), Op::kAverage) == 0,
               "the average of the largest and its negative");
  report.Check(
      Reduce<uint8_t>(DType::kU8, static_cast<uint8_t>(of({200, 100})), Op::kAverage) == 150,
      "the average of 200 and 100");
  report.Check(Reduce<uint8_t>(DType::kU8, static_cast<uint8_t>(of({200, 100})), Op::kSum) == 44,
               "the sum of 200 and 100 wraps");
}

void RunBFloat(Context& context) {
  Report& report = context.report;
  report.Check(ReduceFloat(DType::kBF16, 1, Op::kSum) == size(), "a sum of ones");
  for (const Op op : {Op::kSum, Op::kAverage, Op::kMin, Op::kMax, Op::kProduct, Op::kAdasum}) {
    for (const Kind kind : {Kind::kAllreduce, Kind::kReducescatter}) {
      if (op == Op::kAdasum && kind == Kind::kReducescatter) {
        continue;
      }
      Case of = Single(kind, DType::kBF16, {1001}, op, 97);
      of.values = op == Op::kAdasum ? Values::kSame : Values::kWide;
      Running running(of);
      running.Call();
      report.Check(running);
    }
  }
  const long double infinity = std::numeric_limits<long double>::infinity();
  const long double nan = std::numeric_limits<long double>::quiet_NaN();
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}) {
    for (const Op op : {Op::kSum, Op::kAverage, Op::kMin, Op::kMax, Op::kProduct}) {
      const std::string what = std::string(NameOf(dtype)) + " " + NameOf(op);
      report.Check(std::isnan(ReduceFloat(dtype, rank() == 1 ? nan : 1, op)), what + " of a NaN");
      const long double most = ReduceFloat(dtype, rank() == 1 ? infinity : 1, op);
      report.Check(op == Op::kMin ? most == 1 : most == infinity, what + " of an infinity");
    }
    report.Check(std::isnan(ReduceFloat(dtype,
                                        rank() == 0   ? infinity
                                        : rank() == 1 ? -infinity
                                                      : 0,
                                        Op::kSum)),
                 "infinities of both signs");
  }
}

void RunHalfOverflow(Context& context) {
  Report& report = context.report;
  report.Check(ReduceFloat(DType::kF16, 40000, Op::kAverage) == 40000, "the average of 40000");
  report.Check(std::isinf(ReduceFloat(DType::kF16, 40000, Op::kSum)), "the sum of 40000");
  report.Check(ReduceFloat(DType::kF16, 40000, Op::kSum, 0.25) == 40000, "prescaled by a quarter");
  uint64_t tiny = 0;
  StoreFloat(DType::kF16, 6e-8L, &tiny);
  report.Check(
      ReduceFloat(DType::kF16, 6e-8L, Op::kAverage) == LoadFloat(DType::kF16, &tiny) && tiny != 0,
      "the average of 6e-8");
}

void RunOddCounts(Context& context) {
  for (const bool together : {false, true}) {
    std::vector<Case> cases;
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      for (const int64_t count : {1, 2, 3, 5, 127, 129}) {
        for (const size_t offset : {0, 2, 4, 6}) {
          for (const bool in_place : {false, true}) {
            Case of = Single(
                Kind::kAllreduce, dtype, {count}, in_place ? Op::kSum : Op::kAverage, cases.size());
            of.offset = offset;
            of.in_place = in_place;
            of.name = "offset." + std::to_string(cases.size());
            cases.push_back(of);
          }
        }
      }
    }
    if (together) {
      RunInRandomOrder(context, cases, 99);
      continue;
    }
    for (const Case& of : cases) {
      Running running(of);
      running.Call();
      context.report.Check(running);
    }
  }
}

// Floats whose sum depends on the order: the same bits in every run, whatever else is in flight.
void RunReproducible(Context& context) {
  Case group;
  group = Single(Kind::kAllreduce, DType::kF32, {1}, Op::kSum, 101);
  group.grouped = true;
  group.values = Values::kWide;
  group.parts = {
      {DType::kF32, {3}}, {DType::kF32, {1000}}, {DType::kF16, {77}}, {DType::kF32, {20001}}};
  group.name = "group";
  std::set<uint64_t> hashes;
  for (uint64_t run = 0; run < 10; ++run) {
    Chance own(Mix(run, static_cast<uint64_t>(rank())));
    std::vector<std::unique_ptr<Running>> running;
    for (int64_t i = 0; i < 12; ++i) {
      Case noise = Single(Kind::kAllreduce, DType::kF32, {100 * i}, Op::kSum, run);
      noise.name = "noise." + std::to_string(i);
      running.push_back(std::make_unique<Running>(noise));
    }
    running.push_back(std::make_unique<Running>(group));
    Running* wanted = running.back().get();
    own.Shuffle(running);
    for (const auto& one : running) {
      one->Submit();
    }
    for (const auto& one : running) {
      one->Wait();
      context.report.Check(*one);
    }
    hashes.insert(wanted->Hash());
  }
  context.report.Check(hashes.size() == 1,
                       "a group has given " + std::to_string(hashes.size()) + " different results");
}

void RunGroups(Context& context) {
  std::vector<Case> groups;
  for (const size_t length : {1, 2, 7}) {
    for (const Op op : {Op::kAverage, Op::kMax}) {
      Case of = Single(Kind::kAllreduce, DType::kF32, {1}, op, length);
      of.grouped = true;
      of.prescale = 0.5;
      of.parts.clear();
      for (size_t i = 0; i < length; ++i) {
        // Booleans have no average.
        of.parts.push_back({AllTypes()[(3 * i + length) % 10], {static_cast<int64_t>(i) + 2, 3}});
      }
      of.name = "group." + std::to_string(length) + NameOf(op);
      groups.push_back(of);
    }
  }
  RunInRandomOrder(context, groups, 102);
  for (const Case& group : groups) {
    Running together(group);
    together.Call();
    context.report.Check(together);
    for (const Kind kind : {Kind::kAllgather, Kind::kReducescatter}) {
      Case other = group;
      other.kind = kind;
      other.prescale = kind == Kind::kAllgather ? 1 : 0.5;
      other.name += NameOf(kind);
      Running running(other);
      running.Call();
      context.report.Check(running);
    }
  }
}

void RunSameName(Context& context) {
  Report& report = context.report;
  float first = static_cast<float>(rank()) + 1;
  const float expected = static_cast<float>(size() * (size() + 1)) / 2;
  float second = 100;
  const auto submit = [](float& value) {
    Options options;
    options.name = "x";
    options.op = Op::kSum;
    const Tensor tensor{&value, DType::kF32, {}, {}};
    return allreduce_async(tensor, tensor, options);
  };
  Handle handle;
  if (rank() == 0) {
    handle = submit(first);
    const auto start = steady_clock::now();
    const std::string message = report.Refused("a name in flight", [&] { submit(second).wait(); });
    report.Check(steady_clock::now() - start < std::chrono::seconds(1), "it was refused late");
    report.Check(
        message.find("'x'") != std::string::npos || message.find("\"x\"") != std::string::npos,
        "the name is not in: " + message);
    report.Check(!handle.poll(), "the first call is complete without the others");
  }
  barrier();
  if (rank() != 0) {
    handle = submit(first);
  }
  handle.wait();
  report.Check(first == expected, "the first of two of one name");
  report.Check(second == 100, "the second was written to");
  first = static_cast<float>(rank()) + 1;
  submit(first).wait();
  report.Check(first == expected, "the name, used again");
}

void RunRenegotiation(Context& context) {
  for (const auto& [dtype, count] : std::vector<std::pair<DType, int64_t>>{{DType::kF32, 10},
                                                                           {DType::kF32, 10},
                                                                           {DType::kF32, 20},
                                                                           {DType::kF32, 10},
                                                                           {DType::kF64, 10},
                                                                           {DType::kF32, 10}}) {
    Case of = Single(Kind::kAllreduce, dtype, {count}, Op::kSum, 104);
    of.name = "a";
    Running running(of);
    running.Call();
    context.report.Check(running);
  }
  for (const Kind kind : {Kind::kAllgather, Kind::kBroadcast, Kind::kAllreduce}) {
    Case of = Single(kind, DType::kF32, {9}, Op::kSum, 105);
    of.name = "a";
    Running running(of);
    running.Call();
    context.report.Check(running);
  }
  const int64_t names = context.arguments.Number("count", 3000);
  for (int64_t round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<Running>> running;
    for (int64_t i = 0; i < names; ++i) {
      Case of =
          Single(Kind::kAllreduce, DType::kF32, {1 + i % 5}, Op::kSum, static_cast<uint64_t>(i));
      of.name = "name." + std::to_string(i);
      running.push_back(std::make_unique<Running>(of));
      running.back()->Submit();
    }
    for (const auto& one : running) {
      one->Wait();
      context.report.Check(*one);
    }
  }
}

}  // namespace muster::test
