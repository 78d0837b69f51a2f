// test_collectives: checks collectives against a reference that every rank computes by itself.
// Modes by name; the exit code is 1 if anything was wrong, and what was is on standard error.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "collectives_modes.h"
#include "muster/muster.h"

namespace muster::test {
namespace {

constexpr const char* kUsage = R"(test_collectives --mode NAME[,NAME]... [option value]...
  --sets 1          init() with process sets: even ranks, odd ranks
  --seed S          of data and orders (1)
  --rounds N        of `random` (10)
  --cases N         calls per round (60)
  --elements N      most elements of a random tensor (20000)
  --count N         the largest tensor of `matrix` (100003); tensors of `outstanding` (10000)
  --elastic 1       the mode enters elastic::run by itself
  --op NAME --go-file PATH --late-ranks R,R --until FILE    see the modes)";

// Averages of booleans are refused, as is Adasum of anything but floats.
bool Exists(Op op, DType dtype) {
  if (dtype == DType::kBool) {
    return op != Op::kAverage && op != Op::kAdasum;
  }
  return op != Op::kAdasum || IsFloat(dtype);
}

bool WorldIsPowerOfTwo() {
  return (size() & (size() - 1)) == 0;
}

class Matrix {
 public:
  explicit Matrix(Context& context)
      : context_(context), largest_(context.arguments.Number("count", 100003)) {}

  void Run() {
    for (const DType dtype : AllTypes()) {
      for (const Op op : {Op::kSum, Op::kAverage, Op::kMin, Op::kMax, Op::kProduct}) {
        if (Exists(op, dtype)) {
          Reductions(dtype, op);
        }
      }
      if (IsFloat(dtype)) {
        Adasum(dtype);
      }
      Moves(dtype);
      CompareHashes(context_, cases_, hashes_);
      cases_.clear();
      hashes_.clear();
    }
  }

 private:
  void Reductions(DType dtype, Op op) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1024}, largest_}) {
      for (const Values values : {Values::kExact, Values::kWide}) {
        Case of = Single(Kind::kAllreduce, dtype, {count}, op, next_);
        of.values = values;
        of.in_place = next_ % 2 == 0;
        Do(std::move(of));
      }
    }
    for (const auto& [pre, post] : {std::pair{0.5, 1.0}, {1.0, 0.25}, {2.5, 1.3}}) {
      if (dtype == DType::kBool) {
        break;  // No factors.
      }
      for (const Kind kind : {Kind::kAllreduce, Kind::kReducescatter}) {
        Case of = Single(kind, dtype, {41, 3}, op, next_);
        of.prescale = pre;
        of.postscale = post;
        Do(std::move(of));
      }
    }
    for (const Shape& shape : {Shape{0},
                               Shape{0, 3},
                               Shape{1},
                               Shape{3, 0},
                               Shape{7, 5},
                               Shape{1000, 3},
                               Shape{largest_}}) {
      Case of = Single(Kind::kReducescatter, dtype, shape, op, next_);
      of.values = next_ % 2 == 0 ? Values::kWide : Values::kExact;
      Do(std::move(of));
    }
  }

  void Adasum(DType dtype) {
    for (const int64_t count : {0, 1, 7, 1024, 4099}) {
      Case of = Single(Kind::kAllreduce, dtype, {count}, Op::kAdasum, next_);
      of.values = WorldIsPowerOfTwo() ? Values::kWide : Values::kSame;
      of.in_place = next_ % 2 == 0;
      Do(std::move(of));
    }
  }

  void Moves(DType dtype) {
    for (const Kind kind : {Kind::kAllgather, Kind::kBroadcast, Kind::kAlltoall}) {
      for (const Shape& shape :
           {Shape{0}, Shape{1}, Shape{7}, Shape{5, 3}, Shape{4, 0}, Shape{largest_ / 10, 2}}) {
        Case of = Single(kind, dtype, shape, Op::kSum, next_);
        of.values = Values::kWide;
        of.root = static_cast<int>(next_ % static_cast<uint64_t>(size()));
        of.equal_splits = next_ % 3 == 0;
        Do(std::move(of));
      }
    }
  }

  void Do(Case of) {
    if (next_ % 2 == 1) {
      of.name = "matrix." + std::to_string(next_);
    }
    ++next_;
    Running running(of);
    running.Call();
    context_.report.Check(running);
    cases_.push_back(std::move(of));
    hashes_.push_back(running.Hash());
  }

  Context& context_;
  const int64_t largest_;
  uint64_t next_ = 0;
  std::vector<Case> cases_;
  std::vector<uint64_t> hashes_;
};

// Names that every rank has; the order of those without one is left as it is.
std::vector<size_t> OwnOrder(const std::vector<Case>& cases, uint64_t seed) {
  std::vector<size_t> order;
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<int>& ranks = cases[i].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank()) != ranks.end()) {
      order.push_back(i);
    }
  }
  Chance(Mix(seed, static_cast<uint64_t>(rank()), 9)).Shuffle(order);
  std::vector<size_t> nameless;
  for (const size_t index : order) {
    if (cases[index].name.empty()) {
      nameless.push_back(index);
    }
  }
  std::sort(nameless.rbegin(), nameless.rend());
  for (size_t& index : order) {
    if (cases[index].name.empty()) {
      index = nameless.back();
      nameless.pop_back();
    }
  }
  return order;
}

// Handles call back once each, with nothing wrong.
class Callbacks {
 public:
  void Await(Running& running) {
    ++expected_;
    running.Then([counts = counts_](const std::exception_ptr& error) {
      ++(error ? counts->errors : counts->calls);
    });
  }
  bool AllCame() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (counts_->calls + counts_->errors < expected_) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      std::this_thread::yield();
    }
    return counts_->calls == expected_;
  }

 private:
  struct Counts {
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> errors{0};
  };
  int64_t expected_ = 0;
  // Shared with callbacks that come later than anybody waits.
  std::shared_ptr<Counts> counts_ = std::make_shared<Counts>();
};

std::string SomeBytes(uint64_t seed, int from, size_t size) {
  std::string bytes(size, '\0');
  Fill({DType::kU8, Op::kSum, Values::kWide, seed},
       from,
       0,
       static_cast<int64_t>(size),
       bytes.data());
  return bytes;
}

size_t ObjectSize(int64_t round, int from) {
  const uint64_t chance = Mix(static_cast<uint64_t>(round), static_cast<uint64_t>(from), 3);
  return chance % 4 == 0 ? 0 : chance % (round % 7 == 0 ? 300000 : 50);
}

}  // namespace

std::vector<int> Everyone() {
  std::vector<int> ranks;
  for (int i = 0; i < size(); ++i) {
    ranks.push_back(i);
  }
  return ranks;
}

Case Single(Kind kind, DType dtype, Shape shape, Op op, uint64_t seed) {
  Case of;
  of.kind = kind;
  of.parts = {{dtype, std::move(shape)}};
  of.op = op;
  of.seed = seed;
  of.ranks = Everyone();
  return of;
}

void CheckUsable(Context& context, const std::string& name) {
  Case of = Single(Kind::kAllreduce, DType::kF32, {5}, Op::kSum, 1);
  of.name = name;
  Running running(of);
  running.Call();
  context.report.Check(running);
}

void CompareHashes(Context& context,
                   const std::vector<Case>& cases,
                   const std::vector<uint64_t>& hashes) {
  const size_t count = hashes.size();
  std::vector<uint64_t> own = hashes;
  std::vector<uint64_t> all;
  Options options;
  options.name = "hashes";
  allgather(
      {own.data(), DType::kI64, {1, static_cast<int64_t>(count)}, {}},
      [&all](const Shape& shape, DType, const Device&) {
        all.resize(static_cast<size_t>(CountOf(shape)));
        return static_cast<void*>(all.data());
      },
      options);
  for (size_t i = 0; i < count; ++i) {
    const auto of_rank = [&](int r) { return all[static_cast<size_t>(r) * count + i]; };
    for (const int other : cases[i].ranks) {
      context.report.Check(of_rank(other) == of_rank(cases[i].ranks[0]),
                           cases[i].Describe() + ": rank " + std::to_string(other) +
                               " has other bits than rank " + std::to_string(cases[i].ranks[0]));
    }
  }
}

Case RandomCase(Chance& chance, int64_t index, int64_t elements_max) {
  const auto kind = static_cast<Kind>(chance.Below(8) % 5);  // More allreduces than others.
  Case of = Single(kind, DType::kF32, {0}, Op::kSum, Mix(static_cast<uint64_t>(index), 3));
  of.parts.clear();
  of.seed = static_cast<uint64_t>(chance.Below(int64_t{1} << 40));
  of.grouped =
      (kind == Kind::kAllreduce || kind == Kind::kAllgather || kind == Kind::kReducescatter) &&
      chance.OneIn(4);
  const bool reduces = kind == Kind::kAllreduce || kind == Kind::kReducescatter;
  of.op = static_cast<Op>(reduces ? chance.Below(6) : 1);
  if (of.op == Op::kAdasum && (kind == Kind::kReducescatter || of.grouped)) {
    of.op = Op::kSum;
  }
  const int64_t parts = of.grouped ? 1 + chance.Below(6) : 1;
  while (of.parts.size() < static_cast<size_t>(parts)) {
    const DType dtype = AllTypes()[static_cast<size_t>(chance.Below(11))];
    if (!Exists(of.op, dtype)) {
      continue;
    }
    const int64_t row = chance.OneIn(3) ? chance.Size(6) : 1;
    const int64_t most = kind == Kind::kAlltoall || kind == Kind::kAllgather
                             ? std::max<int64_t>(elements_max / 8, 2)
                             : elements_max;
    const int64_t rows = chance.OneIn(8) ? 0 : chance.Size(most / row + 2);
    of.parts.push_back({dtype, row == 1 ? Shape{rows} : Shape{rows, row}});
  }
  const bool has_bool = std::any_of(of.parts.begin(), of.parts.end(), [](const Part& part) {
    return part.dtype == DType::kBool;
  });
  if (reduces && of.op != Op::kAdasum && !has_bool && chance.OneIn(3)) {
    of.prescale = chance.OneIn(2) ? 0.5 : 1.7;
    of.postscale = chance.OneIn(2) ? 1 : 0.3;
  } else if (of.op != Op::kAdasum || WorldIsPowerOfTwo()) {
    of.values = chance.OneIn(2) ? Values::kWide : Values::kExact;
  } else {
    of.values = Values::kSame;
  }
  of.root = static_cast<int>(chance.Below(size()));
  of.in_place = kind == Kind::kAllreduce && chance.OneIn(2);
  of.equal_splits = chance.OneIn(4);
  of.offset = static_cast<size_t>(chance.Below(4)) * 8;
  if (of.grouped || !chance.OneIn(5)) {
    of.name = "random." + std::to_string(index);
  }
  return of;
}

void RunInRandomOrder(Context& context, const std::vector<Case>& cases, uint64_t seed) {
  const std::vector<size_t> order = OwnOrder(cases, seed);
  std::map<size_t, std::unique_ptr<Running>> running;
  for (const size_t index : order) {
    running[index] = std::make_unique<Running>(cases[index]);
  }
  Chance own(Mix(seed, static_cast<uint64_t>(rank()), 10));
  Callbacks callbacks;
  for (const size_t index : order) {
    running[index]->Submit();
    if (own.OneIn(4)) {
      callbacks.Await(*running[index]);
    }
    if (own.OneIn(8)) {
      std::this_thread::yield();
    }
  }
  std::vector<size_t> waits = order;
  own.Shuffle(waits);
  std::vector<uint64_t> hashes(cases.size());
  for (const size_t index : waits) {
    running[index]->Wait();
    context.report.Check(running[index]->poll(), "a handle that was waited for is not complete");
    context.report.Check(*running[index]);
    hashes[index] = running[index]->Hash();
  }
  context.report.Check(callbacks.AllCame(), "then() called back with an error, or not at all");
  CompareHashes(context, cases, hashes);
}

void RunMatrix(Context& context) {
  Matrix(context).Run();
}

void RunRandom(Context& context) {
  const int64_t rounds = context.arguments.Number("rounds", 10);
  const int64_t count = context.arguments.Number("cases", 60);
  const int64_t elements_max = context.arguments.Number("elements", 20000);
  const auto seed = static_cast<uint64_t>(context.arguments.Number("seed", 1));
  for (int64_t round = 0; round < rounds; ++round) {
    // Every other round repeats the calls of the one before: names that are known by now.
    Chance chance(Mix(seed, static_cast<uint64_t>(round / 2)));
    std::vector<Case> cases;
    for (int64_t i = 0; i < count; ++i) {
      cases.push_back(RandomCase(chance, i, elements_max));
    }
    RunInRandomOrder(context, cases, Mix(seed, static_cast<uint64_t>(round), 4));
    barrier();
  }
}

void RunObjects(Context& context) {
  for (int64_t round = 0; round < 20; ++round) {
    const auto seed = static_cast<uint64_t>(round);
    const auto root = static_cast<int>(round % size());
    Options options;
    options.name = round % 2 == 0 ? "objects" : "";
    const std::string mine =
        rank() == root ? SomeBytes(seed, root, ObjectSize(round, root)) : "ignored";
    const std::string got = broadcast_object(mine, root, options);
    context.report.Check(got == SomeBytes(seed, root, ObjectSize(round, root)),
                         "broadcast_object of round " + std::to_string(round));
    const std::vector<std::string> all =
        allgather_object(SomeBytes(seed, rank(), ObjectSize(round, rank())), options);
    context.report.Check(all.size() == static_cast<size_t>(size()), "allgather_object: its size");
    for (int from = 0; from < static_cast<int>(all.size()); ++from) {
      context.report.Check(
          all[static_cast<size_t>(from)] == SomeBytes(seed, from, ObjectSize(round, from)),
          "allgather_object of round " + std::to_string(round) + ", from " + std::to_string(from));
    }
  }
}

void RunJoin(Context& context) {
  for (int64_t round = 0; round < 6; ++round) {
    const auto steps_of = [&](int r) {
      return static_cast<int64_t>(Mix(static_cast<uint64_t>(round), static_cast<uint64_t>(r)) % 5);
    };
    for (int64_t step = 0; step < steps_of(rank()); ++step) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kI64}) {
        Case of = Single(Kind::kAllreduce,
                         dtype,
                         {17},
                         step % 2 == 0 ? Op::kSum : Op::kAverage,
                         static_cast<uint64_t>(step));
        of.name = "join." + std::to_string(step) + NameOf(dtype);
        Running running(of);
        running.Call();
        std::vector<int> bringing;
        for (const int other : Everyone()) {
          if (steps_of(other) > step) {
            bringing.push_back(other);
          }
        }
        if (bringing.size() == of.ranks.size()) {
          context.report.Check(running);
        } else {
          context.report.Check(running.CheckAs(bringing));
        }
      }
    }
    const int last = join();
    const std::vector<std::string> all = allgather_object(std::to_string(last));
    context.report.Check(
        std::set<std::string>(all.begin(), all.end()).size() == 1 && last >= 0 && last < size(),
        "join() returned " + std::to_string(last) + ", or not the same to all");
  }
}

void RunSets(Context& context) {
  Report& report = context.report;
  if (size() < 2) {
    report.Check(process_sets().size() == 1, "a world of one has one set");
    return;
  }
  std::vector<std::vector<int>> members(2);
  for (const int r : Everyone()) {
    members[static_cast<size_t>(r % 2)].push_back(r);
  }
  const bool fixed = context.arguments.Has("sets");
  std::vector<ProcessSet> sets;
  for (size_t i = 0; i < 2; ++i) {
    sets.push_back(fixed ? ProcessSet{static_cast<int32_t>(i + 1)} : add_process_set(members[i]));
    report.Check(process_set_ranks(sets[i]) == members[i], "process_set_ranks of a set");
  }
  report.Check(process_sets().size() == 3, "there are three sets");
  report.Check(process_set_ranks({}) == Everyone(), "process_set_ranks of the world");
  report.Refused("a set that exists", [&] { add_process_set(members[0]); });
  report.Refused("a set that is the world", [&] { add_process_set(Everyone()); });
  report.Refused("a set of ranks that do not exist", [&] { add_process_set({0, size()}); });
  report.Refused("sets that differ", [&] { add_process_set({rank() == 0 ? 0 : 1}); });
  report.Refused("a set of nobody", [] { add_process_set({}); });
  report.Refused("a rank twice", [] { add_process_set({1, 1}); });
  if (size() >= 3) {
    members.push_back(Everyone());
    members.back().erase(members.back().begin());
    sets.push_back(add_process_set({members.back().rbegin(), members.back().rend()}));
    report.Check(process_set_ranks(sets.back()) == members.back(), "ranks of a set grow");
  }
  Chance chance(5);
  for (int round = 0; round < 4; ++round) {
    std::vector<Case> cases;
    for (int64_t i = 0; i < 80; ++i) {
      Case of = RandomCase(chance, i, 2000);
      const auto which = static_cast<size_t>(chance.Below(static_cast<int64_t>(sets.size()) + 1));
      if (which < sets.size() && of.op != Op::kAdasum) {
        of.set = sets[which];
        of.ranks = members[which];
        of.root =
            members[which]
                   [static_cast<size_t>(chance.Below(static_cast<int64_t>(members[which].size())))];
        // The same names are in flight in several sets.
        of.name = "set." + std::to_string(i / 3) + (of.grouped ? "g" : NameOf(of.kind));
        while (std::any_of(cases.begin(), cases.end(), [&of](const Case& other) {
          return other.set == of.set && other.name == of.name;
        })) {
          of.name += "+";
        }
      }
      cases.push_back(std::move(of));
    }
    RunInRandomOrder(context, cases, static_cast<uint64_t>(round));
  }
  remove_process_set(sets.back());
  report.Refused("a set that was removed", [&] {
    float value = 1;
    Options options;
    options.set = sets.back();
    allreduce({&value, DType::kF32, {}, {}}, {&value, DType::kF32, {}, {}}, options);
  });
  report.Refused("its ranks", [&] { process_set_ranks(sets.back()); });
  const ProcessSet again = add_process_set(members.back());
  report.Check(process_set_ranks(again) == members.back(), "a set that was added again");
  CheckUsable(context, "after sets");
}

}  // namespace muster::test

namespace {

using muster::test::Mode;

const std::map<std::string, Mode>& Modes() {
  using namespace muster::test;  // NOLINT(google-build-using-namespace): the list is long.
  static const std::map<std::string, Mode> kModes{
      {"matrix", RunMatrix},
      {"random", RunRandom},
      {"objects", RunObjects},
      {"join", RunJoin},
      {"sets", RunSets},
      {"threads", RunThreads},
      {"polling", RunPolling},
      {"absent", RunAbsent},
      {"outstanding", RunOutstanding},
      {"big", RunBig},
      {"big_gather", RunBigGather},
      {"idle", RunIdle},
      {"latency", RunLatency},
      {"mismatches", RunMismatches},
      {"empty_parts", RunEmptyParts},
      {"splits", RunSplits},
      {"scalars", RunScalars},
      {"averages", RunAverages},
      {"bfloat", RunBFloat},
      {"half_overflow", RunHalfOverflow},
      {"odd_counts", RunOddCounts},
      {"reproducible", RunReproducible},
      {"groups", RunGroups},
      {"same_name", RunSameName},
      {"renegotiation", RunRenegotiation},
      {"late_group", RunLateGroup},
      {"join_batches", RunJoinBatches},
      {"late_ranks", RunLateRanks},
      {"uneven_steps", RunUnevenSteps},
      {"uneven_join", RunUnevenJoin},
      {"allocation_fails", RunAllocationFails},
      {"operations", RunOperations},
      {"pending_loss", RunPendingLoss},
      {"reset", RunReset},
      {"joined_loss", RunJoinedLoss},
      {"elastic_late", RunElasticLate},
  };
  return kModes;
}

void Init(const muster::test::Arguments& arguments) {
  const std::string size = muster::test::Environment("HOROVOD_SIZE");
  if (!arguments.Has("sets") || size.empty() || std::stoi(size) < 2) {
    muster::init();
    return;
  }
  std::vector<std::vector<int>> sets(2);
  for (int rank = 0; rank < std::stoi(size); ++rank) {
    sets[static_cast<size_t>(rank % 2)].push_back(rank);
  }
  muster::init(sets);
}

int RunModes(const muster::test::Arguments& arguments, const muster::test::EventLog& log) {
  Init(arguments);
  log.Write("init");
  muster::test::Report report(log);
  muster::test::Context context{arguments, log, report};
  std::stringstream names(arguments.Text("mode"));
  for (std::string name; std::getline(names, name, ',');) {
    const auto it = Modes().find(name);
    if (it == Modes().end()) {
      std::cerr << "no such mode: " << name << std::endl;
      return 2;
    }
    it->second(context);
    report.Finish(name);
  }
  muster::shutdown();
  log.Write("end");
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const muster::test::EventLog log;
  const muster::test::Arguments arguments(argc, argv, muster::test::kUsage);
  try {
    return RunModes(arguments, log);
  } catch (const muster::Error& error) {
    std::cerr << "test_collectives: " << error.what() << std::endl;
    return 1;
  }
}
