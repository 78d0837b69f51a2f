// Modes that run inside elastic::run: operations while ranks are killed, and what is left of names,
// sets and joins in the world after.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "collectives_modes.h"
#include "muster/elastic.h"

namespace muster::test {
namespace {

constexpr int64_t kTraceEvery = 8;
constexpr int64_t kVoteEvery = 16;
constexpr int64_t kBytesMax = int64_t{1} << 20;

[[noreturn]] void KillSelf() {
  ::kill(::getpid(), SIGKILL);
  for (;;) {
    ::pause();
  }
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

// One kind of operation, step after step, with random sizes, until a file exists.
class OperationLoop {
 public:
  explicit OperationLoop(Context& context)
      : context_(context),
        op_(context.arguments.Text("op")),
        go_file_(context.arguments.Text("go-file")) {
    state_.value("step", step_);
  }

  void Run() {
    elastic::run(state_, [this](elastic::State&) { Loop(); });
    context_.log.Write("done", {{"step", step_}});
  }

 private:
  void Loop() {
    PrepareSets();
    for (bool first = true;; first = false) {
      if ((first || step_ % kVoteEvery == 0) && !MustStay()) {
        return;
      }
      Chance chance(Mix(static_cast<uint64_t>(step_), 2));
      Step(chance);
      ++step_;
      if (first || step_ % kTraceEvery == 0) {
        trace_step(step_);
      }
      if (step_ % kVoteEvery == 0) {
        state_.commit();
      }
    }
  }

  bool MustStay() {
    float stays = ::access(go_file_.c_str(), F_OK) == 0 ? 0.0F : 1.0F;
    Options options;
    options.name = "stay";
    options.op = Op::kSum;
    const Tensor tensor{&stays, DType::kF32, {}, {}};
    allreduce(tensor, tensor, options);
    return stays > 0;
  }

  // Those of the world before have lost somebody, or hold a newcomer's place.
  void PrepareSets() {
    if (op_ != "process_set") {
      return;
    }
    for (const ProcessSet set : process_sets()) {
      if (set.id != 0) {
        remove_process_set(set);
      }
    }
    sets_.clear();
    for (int i = 0; i < 2 && size() > 2; ++i) {
      std::vector<int> ranks;
      for (int r = i; r < size(); r += 2) {
        ranks.push_back(r);
      }
      sets_.push_back(add_process_set(ranks));
    }
  }

  void Step(Chance& chance) {
    if (op_ == "barrier") {
      barrier();
      return;
    }
    if (op_ == "join") {
      JoinStep();
      return;
    }
    const DType dtype = AllTypes()[static_cast<size_t>(4 + chance.Below(6))];
    Case of = Single(KindOf(), dtype, {0}, Op::kSum, static_cast<uint64_t>(step_));
    of.values = Values::kConstant;
    of.name = "op." + std::to_string(step_ % 7);
    of.root = static_cast<int>(chance.Below(size()));
    of.in_place = chance.OneIn(2);
    of.grouped = op_ == "grouped";
    of.parts.clear();
    const bool per_rank = of.kind == Kind::kAlltoall || of.kind == Kind::kAllgather;
    for (int i = 0; i < (of.grouped ? 4 : 1); ++i) {
      const int64_t bytes = chance.Size(kBytesMax) / (of.grouped ? 4 : 1);
      const int64_t rows = bytes / static_cast<int64_t>(SizeOf(dtype)) / (per_rank ? size() : 1);
      of.parts.push_back({dtype, {std::max<int64_t>(rows, 1)}});
    }
    if (op_ == "process_set" && !sets_.empty()) {
      const auto mine = static_cast<size_t>(rank() % 2);
      of.set = sets_[mine];
      of.ranks = process_set_ranks(of.set);
    }
    Do(of);
  }

  Kind KindOf() const {
    for (const Kind kind :
         {Kind::kAllgather, Kind::kBroadcast, Kind::kAlltoall, Kind::kReducescatter}) {
      if (op_ == NameOf(kind)) {
        return kind;
      }
    }
    return Kind::kAllreduce;
  }

  void Do(const Case& of) {
    Running running(of);
    running.Call();
    const std::optional<std::string> wrong = running.Check();
    context_.report.Check(wrong);
    if (wrong) {
      ::_exit(90);
    }
  }

  // Up to two allreduces per rank, the rest is for those who are not there yet.
  void JoinStep() {
    const auto count_of = [this](int r) {
      return Mix(static_cast<uint64_t>(step_), static_cast<uint64_t>(r), 6) % 3;
    };
    for (uint64_t i = 0; i < count_of(rank()); ++i) {
      Case of = Single(Kind::kAllreduce, DType::kF32, {1 + step_ % 1000}, Op::kSum, i);
      of.name = "join." + std::to_string(i);
      Running running(of);
      running.Call();
      std::vector<int> bringing;
      for (const int other : Everyone()) {
        if (count_of(other) > i) {
          bringing.push_back(other);
        }
      }
      context_.report.Check(running.CheckAs(bringing));
    }
    const int last = join();
    context_.report.Check(last >= 0 && last < size(), "join() returned " + std::to_string(last));
  }

  Context& context_;
  const std::string op_;
  const std::string go_file_;
  std::vector<ProcessSet> sets_;
  elastic::State state_;
  int64_t step_ = 0;
};

Tensor Whole(std::vector<float>& values) {
  return {values.data(), DType::kF32, {static_cast<int64_t>(values.size())}, {}};
}

// Each operation in turn is pending while the last rank, which never submits it, is killed.
class PendingOperation {
 public:
  PendingOperation(Context& context, std::string op, ProcessSet set)
      : context_(context),
        op_(std::move(op)),
        values_(static_cast<size_t>(size()) * 2),
        set_(set) {}

  void Run() {
    const Tensor in = Whole(values_);
    Options options;
    options.name = "pending." + op_;
    if (op_ == "allreduce") {
      Await(allreduce_async(in, in, options));
    } else if (op_ == "grouped_allreduce") {
      Await(grouped_allreduce_async({in, in}, {Whole(more_[0]), Whole(more_[1])}, options));
    } else if (op_ == "allgather") {
      Await(allgather_async(in, Into(), options));
    } else if (op_ == "grouped_allgather") {
      Await(grouped_allgather_async({in, in}, {Into(), Into()}, options));
    } else if (op_ == "broadcast") {
      Await(broadcast_async(in, 0, options));
    } else if (op_ == "broadcast_from_victim") {
      Await(broadcast_async(in, size() - 1, options));
    } else if (op_ == "alltoall") {
      Await(alltoall_async(in, {}, Into(), nullptr, options));
    } else if (op_ == "reducescatter") {
      Await(reducescatter_async(in, Into(), options));
    } else if (op_ == "grouped_reducescatter") {
      Await(grouped_reducescatter_async({in, in}, {Into(), Into()}, options));
    } else if (op_ == "barrier") {
      Await(barrier_async(options));
    } else {
      RunBlocking(options);
    }
  }

 private:
  void Await(Handle handle) {
    context_.report.Check(!handle.poll(), op_ + " is complete without the last rank");
    context_.log.Write("waiting", {{"op", op_}});
    handle.wait();
  }

  void RunBlocking(Options options) {
    context_.log.Write("waiting", {{"op", op_}});
    if (op_ == "join") {
      join();
    } else if (op_ == "process_set") {
      options.set = rank() == 0 ? set_ : ProcessSet{};
      allreduce(Whole(values_), Whole(values_), options);
    } else if (op_ == "add_process_set") {
      add_process_set({0});
    } else if (op_ == "broadcast_object") {
      broadcast_object("bytes", size() - 1, options);
    } else if (op_ == "allgather_object") {
      allgather_object("bytes", options);
    } else if (op_ == "commit") {
      barrier(options);
    } else {
      context_.report.Fail("no such operation: " + op_);
    }
  }

  Allocate Into() {
    return [this](const Shape& shape, DType, const Device&) {
      results_.push_back(std::make_unique<std::vector<float>>(static_cast<size_t>(CountOf(shape))));
      return static_cast<void*>(results_.back()->data());
    };
  }

  Context& context_;
  const std::string op_;
  std::vector<float> values_;
  std::vector<float> more_[2]{values_, values_};
  std::vector<std::unique_ptr<std::vector<float>>> results_;
  ProcessSet set_;
};

void AwaitBeingKilled(const Context& context, const std::string& op) {
  context.log.Write("victim", {{"op", op}});
  for (;;) {
    ::pause();
  }
}

float Average(float value, ProcessSet set, const std::string& name) {
  Options options;
  options.name = name;
  options.set = set;
  const Tensor tensor{&value, DType::kF32, {1}, {}};
  allreduce(tensor, tensor, options);
  return value;
}

void CheckNamed(Context& context, DType dtype, int64_t count) {
  Case of = Single(Kind::kAllreduce, dtype, {count}, Op::kSum, 104);
  of.name = "a";
  Running running(of);
  running.Call();
  context.report.Check(running);
}

void CallAlltoall(std::vector<int64_t> splits) {
  int64_t rows = 0;
  for (const int64_t split : splits) {
    rows += split;
  }
  std::vector<float> in(static_cast<size_t>(rows));
  std::vector<float> out;
  Options options;
  options.name = "alltoall";
  alltoall(
      Whole(in),
      std::move(splits),
      [&out](const Shape& shape, DType, const Device&) {
        out.resize(static_cast<size_t>(CountOf(shape)));
        return static_cast<void*>(out.data());
      },
      nullptr,
      options);
}

// What three ranks set up, and what is left of it when one of them is gone.
class ResetStory {
 public:
  explicit ResetStory(Context& context) : context_(context), report_(context.report) {}

  void Run() {
    elastic::State state;
    int64_t step = 0;
    state.value("step", step);
    elastic::run(state, [this](elastic::State&) { size() == 3 ? Before() : After(); });
  }

 private:
  void Before() {
    for (int i = 0; i < 3; ++i) {
      CheckNamed(context_, DType::kF32, 10);
    }
    CallAlltoall({1, 2, 3});
    one_ = add_process_set({1});
    two_ = add_process_set({0, 2});
    const float mine = Average(rank() == 2 ? 4 : 2, rank() == 1 ? one_ : two_, "same");
    report_.Check(mine == (rank() == 1 ? 2.0F : 3.0F), "an average on a set divides by its size");
    barrier();
    trace_step(1);
    if (rank() == 2) {
      KillSelf();
    }
    barrier();
    report_.Fail("a barrier was passed without rank 2");
  }

  void After() {
    report_.Check(size() == 2, "the world has another size than 2");
    report_.Check(process_set_ranks(one_) == std::vector<int>{1}, "a set follows its workers");
    report_.Refused("the ranks of a set that has lost a worker",
                    [this] { process_set_ranks(two_); });
    if (rank() == 0) {
      report_.Refused("the use of a set that has lost a worker",
                      [this] { Average(1, two_, "same"); });
    } else {
      report_.Check(Average(5, one_, "same") == 5, "the use of a set that is whole");
    }
    CheckNamed(context_, DType::kF64, 20);
    CheckNamed(context_, DType::kF32, 10);
    report_.Refused("splits for another size", [] { CallAlltoall({1, 2, 3}); });
    CallAlltoall({2, 3});
    remove_process_set(two_);
    remove_process_set(one_);
    report_.Check(process_sets().size() == 1, "sets that were removed are still there");
    const ProcessSet again = add_process_set({0});
    report_.Check(process_set_ranks(again) == std::vector<int>{0}, "a new set in the new world");
    CheckUsable(context_, "after");
    trace_step(2);
  }

  Context& context_;
  Report& report_;
  ProcessSet one_;
  ProcessSet two_;
};

}  // namespace

void RunOperations(Context& context) {
  OperationLoop(context).Run();
}

void RunPendingLoss(Context& context) {
  const std::vector<std::string> ops = Split(context.arguments.Text("op"));
  const auto full = static_cast<int>(context.arguments.Number("count", 0));
  elastic::State state;
  int64_t step = 0;
  state.value("step", step);
  elastic::run(state, [&](elastic::State&) {
    CheckUsable(context, "usable");
    trace_step(++step);
    const auto index = static_cast<size_t>(full - size());
    if (index >= ops.size()) {
      return;
    }
    const ProcessSet set =
        ops[index] == "process_set" ? add_process_set({0, size() - 1}) : ProcessSet{};
    if (rank() == size() - 1) {
      AwaitBeingKilled(context, ops[index]);
    }
    try {
      PendingOperation(context, ops[index], set).Run();
      context.report.Fail(ops[index] + " was completed without the last rank");
    } catch (const WorkersLost&) {
      context.log.Write("caught", {{"op", ops[index]}});
      throw;
    }
  });
}

void RunReset(Context& context) {
  ResetStory(context).Run();
}

// The last rank is killed after it has joined.
void RunJoinedLoss(Context& context) {
  const auto full = static_cast<int>(context.arguments.Number("count", 0));
  elastic::State state;
  int64_t step = 0;
  state.value("step", step);
  elastic::run(state, [&](elastic::State&) {
    CheckUsable(context, "usable");
    trace_step(++step);
    if (size() == full && rank() == size() - 1) {
      context.log.Write("victim");
      join();
      context.report.Fail("join() returned though nobody else has joined");
    }
    std::vector<float> values(4, 1.0F);
    for (bool first = true; size() == full; first = false) {
      Options options;
      options.name = "without the last";
      options.op = Op::kSum;
      std::vector<float> out(4);
      allreduce(Whole(values), Whole(out), options);
      context.report.Check(out[0] == static_cast<float>(size() - 1), "a sum without the last");
      if (first) {
        context.log.Write("waiting");
      }
    }
    const int last = join();
    context.report.Check(last >= 0 && last < size(), "join() of the survivors");
    CheckUsable(context, "after join");
  });
}

// A rank that never comes to "b" in the first world.
void RunElasticLate(Context& context) {
  const auto full = static_cast<int>(context.arguments.Number("count", 0));
  elastic::State state;
  int64_t step = 0;
  state.value("step", step);
  elastic::run(state, [&](elastic::State&) {
    CheckUsable(context, "a");
    trace_step(++step);
    if (size() == full && std::to_string(rank()) == context.arguments.Text("late-ranks")) {
      context.log.Write("late");
      AwaitFile(context.arguments.Text("until"));
    }
    CheckUsable(context, "b");
    trace_step(++step);
  });
}

}  // namespace muster::test
