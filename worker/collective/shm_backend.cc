#include "worker/collective/shm_backend.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>

#include "common/check.h"
#include "worker/collective/reduction_plan.h"
#include "worker/collective/shm_allreduce.h"
#include "worker/collective/slot_exchange.h"
#include "worker/shm/copy.h"

namespace muster::worker {
namespace {

constexpr size_t kSlotBytes = SlotExchange::kSlotBytes;

/// Part number `step` of `total`, in parts of `part`.
struct Part {
  Part(size_t total, uint64_t step, size_t part)
      : begin(std::min<uint64_t>(total, step * part)),
        size(std::min<uint64_t>(total - begin, part)) {}
  size_t begin;
  size_t size;
};

uint64_t StepsFor(size_t total, size_t part) {
  return (total + part - 1) / part;
}

/// The whole parts of a slot, one for each other member of the group.
size_t PartBytes(int group_size) {
  return kSlotBytes / static_cast<size_t>(group_size - 1) / 64 * 64;
}
/// Where the part for member `to` lies in a slot of member `from`.
size_t PartIndex(int from, int to) {
  return static_cast<size_t>(to < from ? to : to - 1);
}

std::vector<size_t> StartsOf(std::span<const size_t> counts) {
  std::vector<size_t> starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), size_t{0});
  return starts;
}

class ShmBackend final : public Backend {
 public:
  ShmBackend(std::shared_ptr<Segment> segment, std::vector<int> ranks, int self)
      : exchange_(std::move(segment), std::move(ranks), self),
        scratch_(std::make_unique_for_overwrite<char[]>(kSlotBytes)) {}

  Status Allreduce(const OpContext& context,
                   std::span<const Piece> pieces,
                   const Reduction& what) override {
    return Guarded(context, [&] { return RunAllreduce(pieces, what); });
  }
  Status ReduceToRoot(const OpContext& context,
                      std::span<const Piece> pieces,
                      const Reduction& what,
                      void* accumulators,
                      int root) override {
    return Guarded(context, [&] { return RunReduceToRoot(pieces, what, accumulators, root); });
  }
  Status ReduceScatter(const OpContext& context,
                       const void* in,
                       void* out,
                       std::span<const size_t> counts,
                       const Reduction& what) override {
    return Guarded(context, [&] { return RunReduceScatter(in, out, counts, what); });
  }
  Status Allgatherv(const OpContext& context,
                    const void* in,
                    void* out,
                    std::span<const size_t> byte_counts) override {
    return Guarded(context, [&] { return RunAllgatherv(in, out, byte_counts); });
  }
  Status Broadcast(const OpContext& context, void* inout, size_t bytes, int root) override {
    return Guarded(context, [&] { return RunBroadcast(context, inout, bytes, root); });
  }
  Status Alltoallv(const OpContext& context,
                   const void* in,
                   std::span<const size_t> send_bytes,
                   void* out,
                   std::span<const size_t> receive_bytes) override {
    return Guarded(context,
                   [&] { return RunAlltoallv(context, in, send_bytes, out, receive_bytes); });
  }
  Status Barrier(const OpContext& context) override {
    return Guarded(context, [&] { return RunBarrier(); });
  }
  void Abort() override { exchange_.Abort(); }
  std::vector<int> suspects() const override { return exchange_.suspects(); }

 private:
  /// Begins the operation and runs it, unless an earlier one failed: to begin another tells the
  /// peers that the earlier one was passed, and they would take what never was given.
  template <class Body>
  Status Guarded(const OpContext& context, const Body& body) {
    if (!dead_.ok()) {
      return dead_;
    }
    dead_ = Status::Failed("an earlier operation was left by an exception");
    if (exchange_.aborted()) {
      return dead_ = SlotExchange::Aborted();
    }
    exchange_.Begin(context);
    return dead_ = body();
  }
  Status RunAllreduce(std::span<const Piece> pieces, const Reduction& what);
  Status RunReduceToRoot(std::span<const Piece> pieces,
                         const Reduction& what,
                         void* accumulators,
                         int root);
  Status RunReduceScatter(const void* in,
                          void* out,
                          std::span<const size_t> counts,
                          const Reduction& what);
  Status RunAllgatherv(const void* in, void* out, std::span<const size_t> byte_counts);
  Status RunBroadcast(const OpContext& context, void* inout, size_t bytes, int root);
  Status RunAlltoallv(const OpContext& context,
                      const void* in,
                      std::span<const size_t> send_bytes,
                      void* out,
                      std::span<const size_t> receive_bytes);
  Status RunBarrier();

  /// The steps of an operation in which every member gives a slot and takes from the others':
  /// `give(step)` fills this rank's slot and lends it; `take(step)` reads. A rank gives up to
  /// `give_steps` and takes up to `take_steps`; `can_take(step)`: all that it reads is there.
  template <class Give, class CanTake, class Take, class Missing>
  Status Pump(uint64_t give_steps,
              uint64_t take_steps,
              Wake wake,
              const Give& give,
              const CanTake& can_take,
              const Take& take,
              const Missing& missing);

  /// What an operation returns that has nothing left to do.
  Status Ended() const { return exchange_.aborted() ? SlotExchange::Aborted() : Status::Ok(); }
  /// Copies within this rank, in parts between which an abort is heard.
  Status CopyAlone(void* to, const void* from, size_t bytes);
  /// What comes before Narrow. A null input is zeros.
  void ReduceToAccumulators(const kernels::ReducePlan& plan,
                            std::span<const void*> inputs,
                            char* accumulators,
                            size_t count);
  Status ReduceAlone(const kernels::ReducePlan& plan, const void* in, void* out, size_t count);

  SlotExchange exchange_;
  const std::unique_ptr<char[]> scratch_;
  Status dead_;  // Why no operation is run any more.
};

template <class Give, class CanTake, class Take, class Missing>
Status ShmBackend::Pump(uint64_t give_steps,
                        uint64_t take_steps,
                        Wake wake,
                        const Give& give,
                        const CanTake& can_take,
                        const Take& take,
                        const Missing& missing) {
  uint64_t given = 0;
  uint64_t taken = 0;
  const auto takes = [&] { return taken < take_steps && can_take(taken); };
  const auto gives = [&] { return given < give_steps && exchange_.SlotFree(given); };
  const auto lacking = [&] {
    return taken < take_steps ? missing(taken) : exchange_.Holding(given);
  };
  while (!exchange_.aborted() && (given < give_steps || taken < take_steps)) {
    if (takes()) {
      take(taken);
      exchange_.Publish(Mark::kTaken, ++taken, wake);
    } else if (gives()) {
      give(given);
      exchange_.Publish(Mark::kGiven, ++given, wake);
    } else if (Status status = exchange_.WaitUntil([&] { return takes() || gives(); }, lacking);
               !status.ok()) {
      return status;
    }
  }
  return Ended();
}

// ---------------------------------------------------------------- alone

Status ShmBackend::CopyAlone(void* to, const void* from, size_t bytes) {
  for (size_t at = 0; at < bytes && to != from && !exchange_.aborted(); at += kSlotBytes) {
    CopyBytes(static_cast<char*>(to) + at,
              static_cast<const char*>(from) + at,
              std::min(kSlotBytes, bytes - at));
  }
  return Ended();
}

Status ShmBackend::ReduceAlone(const kernels::ReducePlan& plan,
                               const void* in,
                               void* out,
                               size_t count) {
  // A bool may be any byte but is 0 or 1 in results.
  const bool is_result = in == out && plan.type != kernels::Element::kBool && plan.prescale == 1 &&
                         plan.postscale == 1 && plan.divisor == 1;
  if (is_result) {
    return Ended();
  }
  const size_t element_bytes = kernels::SizeOf(plan.type);
  const size_t most = kSlotBytes / element_bytes;
  for (size_t at = 0; at < count && !exchange_.aborted(); at += most) {
    const void* input = in == nullptr ? nullptr : static_cast<const char*>(in) + at * element_bytes;
    kernels::ReduceMany(
        plan, &input, 1, static_cast<char*>(out) + at * element_bytes, std::min(most, count - at));
  }
  return Ended();
}

// ---------------------------------------------------------------- reductions

Status ShmBackend::RunAllreduce(std::span<const Piece> pieces, const Reduction& what) {
  const kernels::ReducePlan plan = PlanOf(what);
  if (exchange_.size() > 1) {
    return ShmAllreduce(exchange_, pieces, plan, scratch_.get()).Run();
  }
  for (const Piece& piece : pieces) {
    if (piece.out == nullptr) {
      continue;
    }
    if (Status status = ReduceAlone(plan, piece.in, piece.out, piece.count); !status.ok()) {
      return status;
    }
  }
  return Ended();
}

Status ShmBackend::RunReduceToRoot(std::span<const Piece> pieces,
                                   const Reduction& what,
                                   void* accumulators,
                                   int root) {
  // Factors of the result are not for here, where it is not complete.
  kernels::ReducePlan plan = PlanOf(what);
  plan.postscale = 1;
  plan.divisor = 1;
  const size_t element_bytes = kernels::SizeOf(plan.type);
  const size_t accumulator_bytes = kernels::AccumulatorSize(plan);
  const size_t most = kSlotBytes / element_bytes;
  const int self = exchange_.self();
  size_t total = 0;
  for (const Piece& piece : pieces) {
    total += piece.count;
  }
  PieceWalk walk(pieces, element_bytes);
  const auto give = [&](uint64_t step) {
    const Part part(total, step, most);
    walk.CopyFrom(part.begin, part.begin + part.size, exchange_.Slot(self, step));
    exchange_.Lend(step, root);
  };
  std::vector<const void*> inputs(static_cast<size_t>(exchange_.size()));
  const auto take = [&](uint64_t step) {
    const Part part(total, step, most);
    walk.Over(
        part.begin, part.begin + part.size, [&](const char* in, char*, size_t at, size_t count) {
          for (int i = 0; i < exchange_.size(); ++i) {
            inputs[static_cast<size_t>(i)] =
                i == self ? in : exchange_.Slot(i, step) + (at - part.begin) * element_bytes;
          }
          ReduceToAccumulators(
              plan, inputs, static_cast<char*>(accumulators) + at * accumulator_bytes, count);
        });
  };
  const bool is_root = self == root;
  const uint64_t steps = StepsFor(total, most);
  return Pump(
      is_root ? 0 : steps,
      is_root ? steps : 0,
      is_root ? Wake::kAnyone : Wake::kLast,
      give,
      [&](uint64_t step) { return exchange_.AllHave(Mark::kGiven, step + 1); },
      take,
      [&](uint64_t step) { return exchange_.Lacking(Mark::kGiven, step + 1); });
}

void ShmBackend::ReduceToAccumulators(const kernels::ReducePlan& plan,
                                      std::span<const void*> inputs,
                                      char* accumulators,
                                      size_t count) {
  const size_t element_bytes = kernels::SizeOf(plan.type);
  const size_t accumulator_bytes = kernels::AccumulatorSize(plan);
  if (accumulator_bytes == element_bytes) {
    kernels::ReduceMany(plan, inputs.data(), inputs.size(), accumulators, count);
    return;
  }
  // In blocks that stay in the first cache.
  constexpr size_t kBlock = 1024;
  const std::vector<char> zeros(std::find(inputs.begin(), inputs.end(), nullptr) == inputs.end()
                                    ? 0
                                    : kBlock * element_bytes);
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t block = std::min(kBlock, count - at);
    char* out = accumulators + at * accumulator_bytes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const void* in = inputs[i] == nullptr
                           ? zeros.data()
                           : static_cast<const char*>(inputs[i]) + at * element_bytes;
      kernels::Widen(plan, in, i == 0 ? out : scratch_.get(), block);
      if (i != 0) {
        kernels::Combine(plan, out, out, scratch_.get(), block);
      }
    }
  }
}

Status ShmBackend::RunReduceScatter(const void* in,
                                    void* out,
                                    std::span<const size_t> counts,
                                    const Reduction& what) {
  const kernels::ReducePlan plan = PlanOf(what);
  if (exchange_.size() == 1) {
    return ReduceAlone(plan, in, out, counts[0]);
  }
  const int self = exchange_.self();
  const size_t element_bytes = kernels::SizeOf(plan.type);
  const size_t part_bytes = PartBytes(exchange_.size());
  const size_t part = part_bytes / element_bytes;
  const std::vector<size_t> starts = StartsOf(counts);
  const size_t own_count = counts[static_cast<size_t>(self)];
  const auto input_at = [&](int index, size_t element) {
    const size_t at = starts[static_cast<size_t>(index)] + element;
    return in == nullptr ? nullptr : static_cast<const char*>(in) + at * element_bytes;
  };

  const auto give = [&](uint64_t step) {
    for (int i = 0; i < exchange_.size(); ++i) {
      const Part sent(counts[static_cast<size_t>(i)], step, part);
      if (i == self || sent.size == 0) {
        continue;
      }
      char* place = exchange_.Slot(self, step) + PartIndex(self, i) * part_bytes;
      if (in == nullptr) {
        std::memset(place, 0, sent.size * element_bytes);
      } else {
        CopyBytes(place, input_at(i, sent.begin), sent.size * element_bytes);
      }
    }
    // To those without a part as well: with kLast everyone waits for everyone.
    exchange_.LendToAll(step);
  };
  std::vector<const void*> inputs(counts.size());
  const auto take = [&](uint64_t step) {
    const Part own(own_count, step, part);
    if (own.size == 0) {
      return;
    }
    for (int i = 0; i < exchange_.size(); ++i) {
      inputs[static_cast<size_t>(i)] =
          i == self ? input_at(self, own.begin)
                    : exchange_.Slot(i, step) + PartIndex(i, self) * part_bytes;
    }
    kernels::ReduceMany(plan,
                        inputs.data(),
                        inputs.size(),
                        static_cast<char*>(out) + own.begin * element_bytes,
                        own.size);
  };
  const uint64_t steps = StepsFor(*std::max_element(counts.begin(), counts.end()), part);
  return Pump(
      steps,
      steps,
      Wake::kLast,
      give,
      [&](uint64_t step) { return exchange_.AllHave(Mark::kGiven, step + 1); },
      take,
      [&](uint64_t step) { return exchange_.Lacking(Mark::kGiven, step + 1); });
}

// ---------------------------------------------------------------- copies

Status ShmBackend::RunAllgatherv(const void* in, void* out, std::span<const size_t> byte_counts) {
  const int self = exchange_.self();
  const std::vector<size_t> starts = StartsOf(byte_counts);
  const size_t own_bytes = byte_counts[static_cast<size_t>(self)];
  char* const results = static_cast<char*>(out);
  char* const own_result = results + starts[static_cast<size_t>(self)];
  if (exchange_.size() == 1) {
    return CopyAlone(own_result, in, own_bytes);
  }
  const auto give = [&](uint64_t step) {
    const Part own(own_bytes, step, kSlotBytes);
    if (own.size == 0) {
      return;
    }
    const char* from = static_cast<const char*>(in) + own.begin;
    CopyBytes(exchange_.Slot(self, step), from, own.size);
    if (from != own_result + own.begin) {
      CopyBytes(own_result + own.begin, from, own.size);
    }
    exchange_.LendToAll(step);
  };
  const auto take = [&](uint64_t step) {
    for (int i = 0; i < exchange_.size(); ++i) {
      const auto index = static_cast<size_t>(i);
      const Part part(byte_counts[index], step, kSlotBytes);
      if (i != self && part.size != 0) {
        CopyBytes(results + starts[index] + part.begin, exchange_.Slot(i, step), part.size);
      }
    }
  };
  const uint64_t steps =
      StepsFor(*std::max_element(byte_counts.begin(), byte_counts.end()), kSlotBytes);
  return Pump(
      steps,
      steps,
      Wake::kLast,
      give,
      [&](uint64_t step) { return exchange_.AllHave(Mark::kGiven, step + 1); },
      take,
      [&](uint64_t step) { return exchange_.Lacking(Mark::kGiven, step + 1); });
}

Status ShmBackend::RunBroadcast(const OpContext& context, void* inout, size_t bytes, int root) {
  if (exchange_.size() == 1) {
    return Ended();
  }
  const bool is_root = exchange_.self() == root;
  const uint64_t steps = StepsFor(bytes, kSlotBytes);
  char* const data = static_cast<char*>(inout);
  return Pump(
      is_root ? steps : 0,
      is_root ? 0 : steps,
      // A reader waits for the root alone; the root for the last of the readers, none of which
      // would wake another: each wakes it only if no second one has yet to come.
      is_root ? Wake::kAnyone : Wake::kLast,
      [&](uint64_t step) {
        const Part part(bytes, step, kSlotBytes);
        CopyBytes(exchange_.Slot(root, step), data + part.begin, part.size);
        exchange_.LendToAll(step);
      },
      [&](uint64_t step) { return exchange_.Has(Mark::kGiven, root, step + 1); },
      [&](uint64_t step) {
        const Part part(bytes, step, kSlotBytes);
        CopyBytes(data + part.begin, exchange_.Slot(root, step), part.size);
      },
      [&](uint64_t) { return std::vector<int>{context.group.ranks[static_cast<size_t>(root)]}; });
}

Status ShmBackend::RunAlltoallv(const OpContext& context,
                                const void* in,
                                std::span<const size_t> send_bytes,
                                void* out,
                                std::span<const size_t> receive_bytes) {
  const int self = exchange_.self();
  const auto own = static_cast<size_t>(self);
  const std::vector<size_t> sources = StartsOf(send_bytes);
  const std::vector<size_t> targets = StartsOf(receive_bytes);
  const char* const data = static_cast<const char*>(in);
  char* const results = static_cast<char*>(out);
  if (Status status = CopyAlone(results + targets[own], data + sources[own], send_bytes[own]);
      !status.ok() || exchange_.size() == 1) {
    return status;
  }
  const size_t part_bytes = PartBytes(exchange_.size());
  uint64_t give_steps = 0;
  uint64_t take_steps = 0;
  for (size_t i = 0; i < send_bytes.size(); ++i) {
    if (i != own) {
      give_steps = std::max(give_steps, StepsFor(send_bytes[i], part_bytes));
      take_steps = std::max(take_steps, StepsFor(receive_bytes[i], part_bytes));
    }
  }
  const auto awaits = [&](int i, uint64_t step) {
    return i != self && Part(receive_bytes[static_cast<size_t>(i)], step, part_bytes).size != 0 &&
           !exchange_.Has(Mark::kGiven, i, step + 1);
  };
  const auto can_take = [&](uint64_t step) {
    const auto indices = std::views::iota(0, exchange_.size());
    return std::ranges::none_of(indices, [&](int i) { return awaits(i, step); });
  };
  const auto missing = [&](uint64_t step) {
    std::vector<int> ranks;
    for (int i = 0; i < exchange_.size(); ++i) {
      if (awaits(i, step)) {
        ranks.push_back(context.group.ranks[static_cast<size_t>(i)]);
      }
    }
    return ranks;
  };
  const auto give = [&](uint64_t step) {
    for (int i = 0; i < exchange_.size(); ++i) {
      const auto index = static_cast<size_t>(i);
      const Part part(send_bytes[index], step, part_bytes);
      if (i != self && part.size != 0) {
        CopyBytes(exchange_.Slot(self, step) + PartIndex(self, i) * part_bytes,
                  data + sources[index] + part.begin,
                  part.size);
        exchange_.Lend(step, i);
      }
    }
  };
  const auto take = [&](uint64_t step) {
    for (int i = 0; i < exchange_.size(); ++i) {
      const auto index = static_cast<size_t>(i);
      const Part part(receive_bytes[index], step, part_bytes);
      if (i != self && part.size != 0) {
        CopyBytes(results + targets[index] + part.begin,
                  exchange_.Slot(i, step) + PartIndex(i, self) * part_bytes,
                  part.size);
      }
    }
  };
  // Nobody knows how much others send to each other, so nobody knows who is the last.
  return Pump(give_steps, take_steps, Wake::kAnyone, give, can_take, take, missing);
}

Status ShmBackend::RunBarrier() {
  if (exchange_.aborted()) {
    return SlotExchange::Aborted();
  }
  exchange_.Publish(Mark::kGiven, 1, Wake::kLast);
  return exchange_.WaitUntil([&] { return exchange_.AllHave(Mark::kGiven, 1); },
                             [&] { return exchange_.Lacking(Mark::kGiven, 1); });
}

}  // namespace

std::unique_ptr<Backend> MakeShmBackend(std::shared_ptr<Segment> segment,
                                        std::vector<int> ranks,
                                        int self) {
  return std::make_unique<ShmBackend>(std::move(segment), std::move(ranks), self);
}

}  // namespace muster::worker
