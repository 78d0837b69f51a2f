#include "test/worker/collective/backend_cases.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kernels/reduce.h"
#include "test/worker/collective/mesh_fixture.h"
#include "test/worker/collective/typed_values.h"
#include "worker/collective/reduction_plan.h"

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kPatience{20};

/// Cheap, since it is computed for each element of each member on each rank.
uint64_t Mixed(uint64_t seed, uint64_t a, uint64_t i) {
  const uint64_t start = (seed + a * 0xD1342543DE82EF95ULL) | 1;
  return ((i + start) * 0x9E3779B97F4A7C15ULL * start) >> 32;
}

/// Element i of what `member` brings: small, so that sums and most products are exact.
double Input(const Case& what, int member, size_t i) {
  if (what.joined == member) {
    return 0;
  }
  const auto value = static_cast<double>(Mixed(what.seed, static_cast<uint64_t>(member), i) % 4);
  if (what.what.dtype == DType::kBool) {
    return value > 1 ? 1 : 0;
  }
  const bool is_signed = what.what.dtype != DType::kU8 && what.what.dtype != DType::kU16;
  return is_signed && value == 3 ? -2 : value;
}

/// What member `from` has for `to`.
std::vector<char> Bytes(const Case& what, int from, int to, size_t count) {
  std::vector<char> bytes(count);
  for (size_t i = 0; i < count && what.is_checked; ++i) {
    bytes[i] = static_cast<char>(Mixed(what.seed, static_cast<uint64_t>(from * 64 + to), i));
  }
  return bytes;
}

void Append(std::vector<char>& to, const std::vector<char>& bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

size_t Total(const std::vector<size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

/// Bytes from one member to another of an alltoall.
size_t BytesBetween(const Case& what, int from, int to) {
  const size_t size = what.ranks.size();
  return what.counts[(static_cast<size_t>(from) * 3 + static_cast<size_t>(to)) % size];
}

/// One rank's part in a case.
class Part {
 public:
  Part(Backend& backend, const OpContext& context, const Case& what)
      : backend_(backend), context_(context), case_(what), self_(context.group.self) {}

  Outcome Run() {
    switch (case_.kind) {
      case Kind::kAllreduce:
        return Allreduce();
      case Kind::kReduceToRoot:
        return ReduceToRoot();
      case Kind::kReduceScatter:
        return ReduceScatter();
      case Kind::kAllgatherv:
        return Allgatherv();
      case Kind::kBroadcast:
        return Broadcast();
      case Kind::kAlltoallv:
        return Alltoallv();
      case Kind::kBarrier:
        break;
    }
    return {backend_.Barrier(context_), {}, ""};
  }

 private:
  size_t element() const { return BytesOf(case_.what.dtype); }

  std::vector<char> Inputs(size_t count) const {
    std::vector<char> in(count * element());
    for (size_t i = 0; i < count && case_.is_checked; ++i) {
      Put(case_.what.dtype, in.data(), i, Input(case_, self_, i));
    }
    return in;
  }

  /// `result` holds the elements from `begin` on.
  std::string CheckReduced(const std::vector<char>& result, size_t begin) const {
    if (!case_.is_checked) {
      return "";
    }
    std::vector<double> inputs(case_.ranks.size());
    for (size_t i = 0; i * element() < result.size(); ++i) {
      for (size_t member = 0; member < inputs.size(); ++member) {
        inputs[member] = Input(case_, static_cast<int>(member), begin + i);
      }
      const double expected = Reduced(case_.what, inputs);
      if (!Matches(case_.what, result.data(), i, expected)) {
        return "element " + std::to_string(begin + i) + " is " +
               std::to_string(Get(case_.what.dtype, result.data(), i)) + ", not " +
               std::to_string(expected);
      }
    }
    return "";
  }

  Outcome Allreduce() {
    const size_t count = Total(case_.counts);
    const std::vector<char> in = Inputs(count);
    Outcome outcome;
    outcome.result = case_.in_place ? in : std::vector<char>(in.size(), 'z');
    std::vector<Piece> pieces;
    size_t begin = 0;
    for (const size_t piece : case_.counts) {
      char* to = outcome.result.data() + begin;
      const char* from = case_.in_place ? to : in.data() + begin;
      pieces.push_back(
          {case_.joined == self_ ? nullptr : from, case_.unwilling == self_ ? nullptr : to, piece});
      begin += piece * element();
    }
    outcome.status = backend_.Allreduce(context_, pieces, case_.what);
    if (outcome.status.ok() && case_.unwilling != self_) {
      outcome.wrong = CheckReduced(outcome.result, 0);
    } else {
      outcome.result.clear();
    }
    return outcome;
  }

  Outcome ReduceToRoot() {
    const size_t count = Total(case_.counts);
    const std::vector<char> in = Inputs(count);
    const kernels::ReducePlan plan = PlanOf(case_.what);
    std::vector<char> accumulators(count * kernels::AccumulatorSize(plan));
    std::vector<Piece> pieces;
    size_t begin = 0;
    for (const size_t piece : case_.counts) {
      pieces.push_back({in.data() + begin, nullptr, piece});
      begin += piece * element();
    }
    const bool is_root = self_ == case_.root;
    Outcome outcome;
    outcome.status = backend_.ReduceToRoot(
        context_, pieces, case_.what, is_root ? accumulators.data() : nullptr, case_.root);
    if (outcome.status.ok() && is_root) {
      std::vector<char> narrow(in.size());
      kernels::Narrow(plan, accumulators.data(), narrow.data(), count);
      outcome.wrong = CheckReduced(narrow, 0);
    }
    return outcome;
  }

  Outcome ReduceScatter() {
    const std::vector<char> in = Inputs(Total(case_.counts));
    const auto self = static_cast<size_t>(self_);
    Outcome outcome;
    std::vector<char> out(case_.counts[self] * element());
    outcome.status =
        backend_.ReduceScatter(context_, in.data(), out.data(), case_.counts, case_.what);
    if (outcome.status.ok()) {
      const auto begin = case_.counts.begin();
      outcome.wrong = CheckReduced(out, std::accumulate(begin, begin + self_, size_t{0}));
      if (case_.is_checked && in != Inputs(Total(case_.counts))) {
        outcome.wrong = "the input was changed";
      }
    }
    return outcome;
  }

  Outcome Allgatherv() {
    const auto self = static_cast<size_t>(self_);
    const std::vector<char> in = Bytes(case_, self_, 0, case_.counts[self]);
    std::vector<char> expected;
    for (int member = 0; member < context_.group.size(); ++member) {
      Append(expected, Bytes(case_, member, 0, case_.counts[static_cast<size_t>(member)]));
    }
    Outcome outcome;
    outcome.result.assign(expected.size(), 'z');
    outcome.status = backend_.Allgatherv(context_, in.data(), outcome.result.data(), case_.counts);
    return Compared(std::move(outcome), expected);
  }

  Outcome Broadcast() {
    const std::vector<char> expected = Bytes(case_, case_.root, 0, case_.counts[0]);
    Outcome outcome;
    outcome.result = self_ == case_.root || !case_.is_checked
                         ? expected
                         : std::vector<char>(expected.size(), 'z');
    outcome.status =
        backend_.Broadcast(context_, outcome.result.data(), outcome.result.size(), case_.root);
    return Compared(std::move(outcome), expected);
  }

  Outcome Alltoallv() {
    std::vector<char> in;
    std::vector<char> expected;
    std::vector<size_t> sends;
    std::vector<size_t> receives;
    for (int peer = 0; peer < context_.group.size(); ++peer) {
      sends.push_back(BytesBetween(case_, self_, peer));
      receives.push_back(BytesBetween(case_, peer, self_));
      Append(in, Bytes(case_, self_, peer, sends.back()));
      Append(expected, Bytes(case_, peer, self_, receives.back()));
    }
    Outcome outcome;
    std::vector<char> out(expected.size(), 'z');
    outcome.status = backend_.Alltoallv(context_, in.data(), sends, out.data(), receives);
    outcome.wrong = outcome.status.ok() && out != expected ? "other bytes came" : "";
    return outcome;
  }

  static Outcome Compared(Outcome outcome, const std::vector<char>& expected) {
    if (outcome.status.ok() && outcome.result != expected) {
      outcome.wrong = "other bytes came";
    }
    return outcome;
  }

  Backend& backend_;
  const OpContext& context_;
  const Case& case_;
  const int self_;
};

}  // namespace

const char* Name(Kind kind) {
  constexpr const char* kNames[] = {"allreduce",
                                    "reduce to root",
                                    "reducescatter",
                                    "allgatherv",
                                    "broadcast",
                                    "alltoallv",
                                    "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

Outcome RunCase(Backend& backend,
                int self,
                uint64_t number,
                std::chrono::steady_clock::time_point deadline,
                const Case& what) {
  Group group{what.ranks, 0};
  group.self =
      static_cast<int>(std::find(what.ranks.begin(), what.ranks.end(), self) - what.ranks.begin());
  const OpContext context{group, number, deadline};
  return Part(backend, context, what).Run();
}

void RunEverywhere(Backends& world, uint64_t number, const Case& what) {
  std::vector<Outcome> outcomes(what.ranks.size());
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  OnAllRanks(static_cast<int>(what.ranks.size()), [&](int member) {
    const auto i = static_cast<size_t>(member);
    const int rank = what.ranks[i];
    outcomes[i] = RunCase(*world[static_cast<size_t>(rank)], rank, number, deadline, what);
  });
  const std::vector<char>* first = nullptr;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const std::string at = Describe(what) + ", member " + std::to_string(i) + ": ";
    if (!outcomes[i].status.ok() || !outcomes[i].wrong.empty()) {
      throw std::runtime_error(at + outcomes[i].status.message() + outcomes[i].wrong);
    }
    if (outcomes[i].result.empty()) {
      continue;
    }
    first = first == nullptr ? &outcomes[i].result : first;
    if (outcomes[i].result != *first) {
      throw std::runtime_error(at + "other bits");
    }
  }
}

void AbortAfter(Backends& world, const Case& what, uint64_t runs) {
  constexpr uint64_t kEnded = uint64_t{1} << 32;  // Whoever ends early wakes the one who counts.
  std::atomic<uint64_t> done{0};
  std::vector<std::future<Status>> ranks;
  for (const int rank : what.ranks) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      for (uint64_t number = 1;; ++number) {
        const Status status =
            RunCase(*world[static_cast<size_t>(rank)], rank, number, deadline, what).status;
        done.fetch_add(status.ok() ? 1 : kEnded);
        done.notify_all();
        if (!status.ok()) {
          return status;
        }
      }
    }));
  }
  // Ends by the operations' own deadline, if by nothing else.
  for (uint64_t seen = done; seen < runs; seen = done) {
    done.wait(seen);
  }
  for (const int rank : what.ranks) {
    world[static_cast<size_t>(rank)]->Abort();
  }
  for (auto& rank : ranks) {
    if (rank.wait_for(std::chrono::seconds(15)) != std::future_status::ready) {
      throw std::runtime_error(Describe(what) + ": does not end");
    }
    const Status status = rank.get();
    if (status.code() != StatusCode::kAborted) {
      throw std::runtime_error(Describe(what) + ": ended by: " + status.message());
    }
  }
}

std::vector<int> WholeWorld(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Case DrawCase(Random& random, int world_size, size_t count_max) {
  Case what;
  while (what.ranks.empty()) {
    for (int rank = 0; rank < world_size; ++rank) {
      if (random.Below(3) != 0) {
        what.ranks.push_back(rank);
      }
    }
  }
  const size_t members = what.ranks.size();
  what.kind = kAllKinds[random.Below(std::size(kAllKinds))];
  constexpr Op kOps[] = {Op::kSum, Op::kAverage, Op::kMin, Op::kMax, Op::kProduct};
  what.what.dtype = kAllTypes[random.Below(std::size(kAllTypes))];
  const bool is_bool = what.what.dtype == DType::kBool;
  what.what.op = kOps[random.Below(std::size(kOps))];
  if (is_bool && what.what.op == Op::kAverage) {
    what.what.op = Op::kSum;
  }
  what.what.divisor = what.what.op == Op::kAverage ? static_cast<int>(members) : 1;
  if (!is_bool && what.what.op != Op::kProduct && random.Below(3) == 0) {
    what.what.prescale = 2;
    what.what.postscale = 0.5;
  }
  const bool by_pieces = what.kind == Kind::kAllreduce || what.kind == Kind::kReduceToRoot;
  const size_t count_count = by_pieces ? random.Below(4) : members;
  for (size_t i = 0; i < count_count; ++i) {
    // Small and large are equally likely.
    const size_t bound = size_t{1} << random.Below(24);
    what.counts.push_back(random.Below(4) == 0 ? 0 : random.Below(std::min(bound, count_max)));
  }
  what.root = static_cast<int>(random.Below(members));
  what.in_place = random.Below(2) == 0;
  what.joined = random.Below(4) == 0 ? static_cast<int>(random.Below(members)) : -1;
  what.unwilling = random.Below(4) == 0 ? static_cast<int>(random.Below(members)) : -1;
  if (what.kind != Kind::kAllreduce) {
    what.joined = what.unwilling = -1;
  }
  what.seed = random.Next();
  return what;
}

Case CaseOfBytes(Kind kind, std::vector<int> ranks, size_t bytes) {
  Case what;
  what.kind = kind;
  what.what = {DType::kU8, Op::kMax, 1, 1, 1};
  const bool by_pieces = kind == Kind::kAllreduce || kind == Kind::kReduceToRoot;
  what.counts.assign(by_pieces ? 1 : ranks.size(), bytes);
  what.ranks = std::move(ranks);
  return what;
}

std::string Describe(const Case& what) {
  std::string text = std::string(Name(what.kind)) + " of dtype " +
                     std::to_string(static_cast<int>(what.what.dtype)) + ", op " +
                     std::to_string(static_cast<int>(what.what.op)) + ", ranks";
  for (const int rank : what.ranks) {
    text += " " + std::to_string(rank);
  }
  text += ", counts";
  for (const size_t count : what.counts) {
    text += " " + std::to_string(count);
  }
  return text;
}

}  // namespace muster::worker
