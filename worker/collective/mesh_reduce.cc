#include "worker/collective/mesh_reduce.h"

#include <algorithm>

#include "worker/collective/pieces.h"

namespace muster::worker {
namespace {

// What two members exchange at a time: large chunks save calls of the kernel and wakeups, but what
// all members send at a time bounds the memory.
constexpr size_t kChunkBytesMax = 1u << 20;
constexpr size_t kChunkBytesMin = 128u << 10;
constexpr size_t kSegmentBytes = 4u << 20;
// Up to here every member sends everything to every other: more bytes, but one step instead of two.
constexpr size_t kExchangeBytesMax = 4u << 10;
// Of a conversion in between.
constexpr size_t kBlockBytes = 16u << 10;

size_t ChunkBytes(int members) {
  return std::clamp(kSegmentBytes / static_cast<size_t>(members), kChunkBytesMin, kChunkBytesMax);
}

char* Offset(void* begin, size_t bytes) {
  return static_cast<char*>(begin) + bytes;
}

/// Where a run of pieces is read and written: in place if it is one piece, else in `packed`.
struct Span {
  std::vector<Piece> run;
  size_t count = 0;
  char* in = nullptr;
  char* out = nullptr;
  bool is_packed = false;

  void Place(size_t element, ScratchBuffer& packed) {
    count = CountOf(run);
    is_packed = run.size() != 1 || run[0].in == nullptr || run[0].out == nullptr;
    if (is_packed) {
      in = out = packed.Get(count * element);
      Pack(run, element, in);
    } else {
      in = static_cast<char*>(const_cast<void*>(run[0].in));
      out = static_cast<char*>(run[0].out);
    }
  }
  void Finish(size_t element) const {
    if (is_packed) {
      Unpack(out, run, element);
    }
  }
};

/// One segment of an allreduce on its way.
struct Lane {
  explicit Lane(const GroupLinks& links) : gather(links), spread(links) {}
  Span span;
  Batch gather;  // To the members that reduce.
  Batch spread;  // From them.
};

class Allreducer {
 public:
  Allreducer(const GroupLinks& links, const Combiner& combiner, ReduceScratch& scratch)
      : links_(links),
        combiner_(combiner),
        scratch_(scratch),
        element_(combiner.in_size()),
        inputs_(static_cast<size_t>(links.size())) {}

  void Run(std::span<const Piece> pieces) {
    std::array<Lane, 3> lanes{Lane(links_), Lane(links_), Lane(links_)};
    const size_t members = inputs_.size();
    PieceRuns runs(pieces, element_, members * (ChunkBytes(links_.size()) / element_));
    // Three segments are under way: one is sent, one reduced, and of one the results come in.
    for (size_t step = 0;; ++step) {
      Lane& first = lanes[step % 3];
      Lane& second = lanes[(step + 2) % 3];
      Lane& third = lanes[(step + 1) % 3];
      runs.Next(first.span.run);
      Begin(first, step % 3);
      Reduce(second, (step + 2) % 3);
      Finish(third);
      if (first.span.count == 0 && second.span.count == 0) {
        return;
      }
    }
  }

  void Exchange(std::span<const Piece> pieces) {
    Span span;
    span.run.assign(pieces.begin(), pieces.end());
    span.Place(element_, scratch_.packed[0]);
    const size_t bytes = span.count * element_;
    char* received = scratch_.received[0].Get(bytes * inputs_.size());
    Batch batch(links_);
    for (int d = 1; d < links_.size(); ++d) {
      batch.Send(links_.After(d), span.in, bytes);
    }
    inputs_[Index(links_.self())] = span.in;
    for (int d = 1; d < links_.size(); ++d) {
      const int member = links_.Before(d);
      inputs_[Index(member)] = received + Index(d) * bytes;
      batch.Receive(member, inputs_[Index(member)], bytes);
    }
    batch.WaitAll();
    combiner_.Run(inputs_, links_.self(), span.out, span.count);
    span.Finish(element_);
  }

 private:
  static size_t Index(int member) { return static_cast<size_t>(member); }

  /// Elements before those that `member` reduces.
  size_t Begins(const Span& span, int member) const {
    const size_t each = span.count / inputs_.size();
    return Index(member) * each + std::min(Index(member), span.count % inputs_.size());
  }
  size_t CountFor(const Span& span, int member) const {
    return Begins(span, member + 1) - Begins(span, member);
  }

  void Begin(Lane& lane, size_t slot) {
    Span& span = lane.span;
    span.Place(element_, scratch_.packed[slot]);
    const size_t own = CountFor(span, links_.self()) * element_;
    char* received = scratch_.received[slot].Get(own * inputs_.size());
    for (int d = 1; d < links_.size(); ++d) {
      const int member = links_.After(d);
      lane.gather.Send(
          member, span.in + Begins(span, member) * element_, CountFor(span, member) * element_);
    }
    for (int d = 1; d < links_.size(); ++d) {
      lane.gather.Receive(links_.Before(d), received + Index(d) * own, own);
    }
  }

  void Reduce(Lane& lane, size_t slot) {
    const Span& span = lane.span;
    if (span.count == 0) {
      return;
    }
    const size_t begin = Begins(span, links_.self()) * element_;
    const size_t count = CountFor(span, links_.self());
    char* received = scratch_.received[slot].Get(0);
    inputs_[Index(links_.self())] = span.in + begin;
    for (int d = 1; d < links_.size(); ++d) {
      inputs_[Index(links_.Before(d))] = received + Index(d) * count * element_;
    }
    lane.gather.WaitReceived();
    if (count > 0) {
      combiner_.Run(inputs_, links_.self(), span.out + begin, count);
    }
    for (int d = 1; d < links_.size(); ++d) {
      lane.spread.Send(links_.After(d), span.out + begin, count * element_);
    }
    // A member sends its results only after it has all of our elements for them, so `out` may be
    // where those were read from.
    for (int d = 1; d < links_.size(); ++d) {
      const int member = links_.Before(d);
      lane.spread.Receive(
          member, span.out + Begins(span, member) * element_, CountFor(span, member) * element_);
    }
  }

  void Finish(Lane& lane) {
    if (lane.span.count == 0) {
      return;
    }
    lane.gather.WaitAll();
    lane.spread.WaitAll();
    lane.span.Finish(element_);
    lane.span.count = 0;
  }

  const GroupLinks& links_;
  const Combiner& combiner_;
  ReduceScratch& scratch_;
  const size_t element_;
  std::vector<void*> inputs_;
};

}  // namespace

// ---------------------------------------------------------------- arithmetic

size_t Combiner::in_size() const {
  return form_ == Form::kAccumulators ? kernels::AccumulatorSize(plan_)
                                      : kernels::SizeOf(plan_.type);
}

size_t Combiner::out_size() const {
  return form_ == Form::kStored ? kernels::SizeOf(plan_.type) : kernels::AccumulatorSize(plan_);
}

void Combiner::Run(std::span<void* const> inputs, int self, void* out, size_t count) const {
  switch (form_) {
    case Form::kStored:
      return kernels::ReduceMany(plan_, inputs.data(), inputs.size(), out, count);
    case Form::kAccumulators:
      return CombineAccumulators(inputs, self, out, count);
    case Form::kToAccumulators:
      return WidenAll(inputs, out, count);
  }
}

void Combiner::CombineAccumulators(std::span<void* const> inputs,
                                   int self,
                                   void* out,
                                   size_t count) const {
  if (inputs.size() == 1) {
    if (out != inputs[0]) {
      std::copy_n(static_cast<const char*>(inputs[0]), count * in_size(), static_cast<char*>(out));
    }
    return;
  }
  // Partial results go where the first input was: `out` may still be needed as an input.
  const bool owns_first = self == 0;
  void* partial = owns_first ? out : inputs[0];
  const void* left = inputs[0];
  for (size_t k = 1; k < inputs.size(); ++k) {
    void* to = k + 1 == inputs.size() ? out : partial;
    kernels::Combine(plan_, to, left, inputs[k], count);
    left = to;
  }
}

void Combiner::WidenAll(std::span<void* const> inputs, void* out, size_t count) const {
  std::array<std::max_align_t, kBlockBytes / sizeof(std::max_align_t)> block;
  const size_t block_count = sizeof block / out_size();
  for (size_t done = 0; done < count; done += block_count) {
    const size_t now = std::min(block_count, count - done);
    char* to = Offset(out, done * out_size());
    kernels::Widen(plan_, Offset(inputs[0], done * in_size()), to, now);
    for (size_t k = 1; k < inputs.size(); ++k) {
      kernels::Widen(plan_, Offset(inputs[k], done * in_size()), block.data(), now);
      kernels::Combine(plan_, to, to, block.data(), now);
    }
  }
}

// ---------------------------------------------------------------- operations

void MeshAllreduce(const GroupLinks& links,
                   std::span<const Piece> pieces,
                   const Combiner& combiner,
                   ReduceScratch& scratch) {
  const size_t count = CountOf(pieces);
  if (count == 0) {
    return;
  }
  Allreducer allreducer(links, combiner, scratch);
  if (count * combiner.in_size() <= kExchangeBytesMax) {
    allreducer.Exchange(pieces);
  } else {
    allreducer.Run(pieces);
  }
}

void MeshReduceScatter(const GroupLinks& links,
                       const void* in,
                       void* out,
                       std::span<const size_t> counts,
                       const Combiner& combiner,
                       ReduceScratch& scratch) {
  const size_t element = combiner.in_size();
  const size_t slice = ChunkBytes(links.size()) / element;
  const size_t members = counts.size();
  const auto self = static_cast<size_t>(links.self());
  std::vector<size_t> begins(members, 0);
  for (size_t i = 1; i < members; ++i) {
    begins[i] = begins[i - 1] + counts[i - 1];
  }
  const auto part = [&](size_t member, size_t round) {
    const size_t done = std::min(round * slice, counts[member]);
    return std::min(slice, counts[member] - done);
  };
  const auto place = [&](size_t member, size_t round) {
    return Offset(const_cast<void*>(in), (begins[member] + round * slice) * element);
  };
  const size_t longest = *std::max_element(counts.begin(), counts.end());
  const size_t rounds = (longest + slice - 1) / slice;
  std::array<Batch, 2> batches{Batch(links), Batch(links)};
  std::vector<void*> inputs(members);
  // One round is on its way while the one before it is reduced.
  for (size_t round = 0; round <= rounds; ++round) {
    if (round < rounds) {
      Batch& batch = batches[round % 2];
      const size_t bytes = part(self, round) * element;
      char* received = scratch.received[round % 2].Get(bytes * members);
      for (int d = 1; d < links.size(); ++d) {
        const auto member = static_cast<size_t>(links.After(d));
        batch.Send(links.After(d), place(member, round), part(member, round) * element);
      }
      for (int d = 1; d < links.size(); ++d) {
        batch.Receive(links.Before(d), received + static_cast<size_t>(d) * bytes, bytes);
      }
    }
    if (round == 0) {
      continue;
    }
    const size_t count = part(self, round - 1);
    char* received = scratch.received[(round - 1) % 2].Get(0);
    inputs[self] = place(self, round - 1);
    for (int d = 1; d < links.size(); ++d) {
      inputs[static_cast<size_t>(links.Before(d))] =
          received + static_cast<size_t>(d) * count * element;
    }
    batches[(round - 1) % 2].WaitAll();
    if (count > 0) {
      combiner.Run(
          inputs, links.self(), Offset(out, (round - 1) * slice * combiner.out_size()), count);
    }
  }
}

void MeshReduceToRoot(const GroupLinks& links,
                      std::span<const Piece> pieces,
                      const Combiner& combiner,
                      void* out,
                      int root,
                      ReduceScratch& scratch) {
  const size_t element = combiner.in_size();
  const bool is_root = links.self() == root;
  PieceRuns runs(pieces, element, ChunkBytes(links.size()) / element);
  std::array<Batch, 2> batches{Batch(links), Batch(links)};
  std::array<Span, 2> spans;
  std::vector<void*> inputs(static_cast<size_t>(links.size()));
  size_t reduced = 0;
  for (size_t round = 0; round == 0 || spans[(round - 1) % 2].count > 0; ++round) {
    Span& next = spans[round % 2];
    Span& last = spans[(round + 1) % 2];
    batches[round % 2].WaitAll();  // Sends of two rounds ago, whose memory is used again.
    runs.Next(next.run);
    for (Piece& piece : next.run) {
      piece.out = const_cast<void*>(piece.in);  // Nothing is written there.
    }
    next.Place(element, scratch.packed[round % 2]);
    const size_t bytes = next.count * element;
    if (!is_root) {
      batches[round % 2].Send(root, next.in, bytes);
      continue;
    }
    char* received = scratch.received[round % 2].Get(bytes * inputs.size());
    for (int d = 1; d < links.size(); ++d) {
      batches[round % 2].Receive(links.Before(d), received + static_cast<size_t>(d) * bytes, bytes);
    }
    if (round > 0 && last.count > 0) {
      batches[(round + 1) % 2].WaitAll();
      char* arrived = scratch.received[(round + 1) % 2].Get(0);
      inputs[static_cast<size_t>(root)] = last.in;
      for (int d = 1; d < links.size(); ++d) {
        inputs[static_cast<size_t>(links.Before(d))] =
            arrived + static_cast<size_t>(d) * last.count * element;
      }
      combiner.Run(inputs, root, Offset(out, reduced * combiner.out_size()), last.count);
      reduced += last.count;
    }
  }
  batches[0].WaitAll();
  batches[1].WaitAll();
}

}  // namespace muster::worker
