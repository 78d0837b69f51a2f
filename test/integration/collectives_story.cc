// Modes for user cases in which ranks come late, finish early, or have joined.

#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>

#include "collectives_modes.h"

namespace muster::test {
namespace {

bool IsListed(const std::string& ranks) {
  std::stringstream parts(ranks);
  for (std::string part; std::getline(parts, part, ',');) {
    if (std::stoi(part) == rank()) {
      return true;
    }
  }
  return false;
}

bool IsLate(const Context& context) {
  return IsListed(context.arguments.Text("late-ranks"));
}

Case Step(const std::string& name, uint64_t seed) {
  Case of = Single(Kind::kAllreduce, DType::kF32, {3}, Op::kSum, seed);
  of.name = name;
  return of;
}

void CheckStep(Context& context, const std::string& name, uint64_t seed) {
  Running running(Step(name, seed));
  running.Call();
  context.report.Check(running);
}

// While the last rank has joined, nothing but allreduces and barriers.
void CheckRefusedWhileJoined(Context& context) {
  if (rank() == size() - 1) {
    join();
    return;
  }
  Running seen(Step("seen", 1));  // Complete only once the last rank has joined.
  seen.Call();
  std::vector<int> bringing = Everyone();
  bringing.pop_back();
  context.report.Check(seen.CheckAs(bringing));
  for (const Kind kind :
       {Kind::kAllgather, Kind::kBroadcast, Kind::kAlltoall, Kind::kReducescatter}) {
    Case of = Single(kind, DType::kF32, {4}, Op::kSum, 2);
    of.name = "joined";
    context.report.Refused(std::string(NameOf(kind)) + " while a rank has joined", [&of] {
      Running running(of);
      running.Call();
    });
  }
  barrier();
  Running again(Step("again", 3));
  again.Call();
  context.report.Check(again.CheckAs(bringing));
  join();
}

}  // namespace

// Rank 0 submits a group, the others come when rank 0 has seen that nothing was done.
void RunLateGroup(Context& context) {
  const std::string until = context.arguments.Text("until");
  CheckUsable(context, "before");
  Case group = Step("group", 101);
  group.grouped = true;
  group.parts.resize(3, group.parts[0]);
  Running running(group);
  if (rank() != 0) {
    AwaitFile(until + ".late");
    running.Submit();
  } else {
    running.Submit();
    context.log.Write("waiting");
    AwaitFile(until);
    context.report.Check(!running.poll(), "a group was executed that nobody else has submitted");
    std::ofstream(until + ".late") << "now\n";
  }
  running.Wait();
  context.report.Check(running);
}

void RunJoinBatches(Context& context) {
  const std::vector<int64_t> batches{10, 12, 12, 15};
  const auto batches_of = [&](int r) { return batches.at(static_cast<size_t>(r)); };
  for (int64_t batch = 0; batch < batches_of(rank()); ++batch) {
    std::vector<int> bringing;
    for (const int other : Everyone()) {
      if (batches_of(other) > batch) {
        bringing.push_back(other);
      }
    }
    // Together, so that they are fused.
    std::vector<std::unique_ptr<Running>> running;
    for (const DType dtype : {DType::kF32,
                              DType::kF32,
                              DType::kF16,
                              DType::kBF16,
                              DType::kI64,
                              DType::kU8,
                              DType::kF64}) {
      for (const Op op : {Op::kSum, Op::kAverage}) {
        Case of = Single(Kind::kAllreduce, dtype, {33}, op, static_cast<uint64_t>(batch));
        of.name = "t" + std::to_string(running.size());
        running.push_back(std::make_unique<Running>(of));
        running.back()->Submit();
      }
    }
    for (const auto& one : running) {
      one->Wait();
      context.report.Check(one->CheckAs(bringing));
    }
  }
  const int last = join();
  context.report.Check(last == 3, "join() returned " + std::to_string(last) + ", not 3");
  CheckUsable(context, "after join");
  CheckRefusedWhileJoined(context);
  CheckUsable(context, "after all");
}

// Listed ranks come to "b" only when a file says so.
void RunLateRanks(Context& context) {
  CheckUsable(context, "a");
  if (IsLate(context)) {
    context.log.Write("late");
    AwaitFile(context.arguments.Text("until"));
  } else {
    context.log.Write("waiting");
  }
  CheckUsable(context, "b");
  CheckUsable(context, "a");
}

// Listed ranks make fewer steps and shut down.
void RunUnevenSteps(Context& context) {
  const int64_t steps = IsLate(context) ? 5 : 8;
  try {
    for (int64_t step = 0; step < steps; ++step) {
      CheckStep(context, "s", static_cast<uint64_t>(step));
      if (step == 4 && !IsLate(context)) {
        context.log.Write("further");
      }
    }
    context.report.Check(IsLate(context), "a collective was completed without a rank");
  } catch (const WorkersFinished& finished) {
    context.log.Write("left_alone", {{"message", finished.what()}});
    context.report.Check(!IsLate(context), "WorkersFinished on a rank that made its steps");
  }
}

void RunUnevenJoin(Context& context) {
  const auto steps_of = [](int r) { return 5 + 3 * (r % 2); };
  for (int64_t step = 0; step < steps_of(rank()); ++step) {
    Running running(Step("s", static_cast<uint64_t>(step)));
    running.Call();
    std::vector<int> bringing;
    for (const int other : Everyone()) {
      if (steps_of(other) > step) {
        bringing.push_back(other);
      }
    }
    context.report.Check(running.CheckAs(bringing));
  }
  context.report.Check(join() % 2 == 1, "a rank that joined early is said to be the last");
  CheckUsable(context, "after join");
}

// One rank has no memory for a result: it alone knows, nobody hangs, and all goes on.
void RunAllocationFails(Context& context) {
  for (const bool throws : {true, false}) {
    for (const char* kind : {"allgather", "alltoall", "reducescatter"}) {
      const int64_t rows = size() * 2;
      std::vector<float> in(static_cast<size_t>(rows), 1.0F);
      std::vector<float> out(in.size() * in.size());
      const Allocate into = [&](const Shape&, DType, const Device&) -> void* {
        if (rank() != 1) {
          return out.data();
        }
        if (throws) {
          throw std::bad_alloc();
        }
        return nullptr;
      };
      const Tensor tensor{in.data(), DType::kF32, {rows}, {}};
      bool failed = false;
      try {
        if (kind == std::string("allgather")) {
          allgather(tensor, into);
        } else if (kind == std::string("alltoall")) {
          alltoall(tensor, {}, into);
        } else {
          reducescatter(tensor, into);
        }
      } catch (const std::exception& error) {
        failed = true;
        context.log.Write("no_memory", {{"kind", kind}, {"what", error.what()}});
      }
      context.report.Check(failed || rank() != 1,
                           std::string(kind) + " went well without memory for the result");
      CheckUsable(context, std::string("after ") + kind);
    }
  }
}

}  // namespace muster::test
