// Raw Gloo's rank. It gets what makes it fast: a vectorised sum, each of its algorithms, and
// nothing of an order's set-up in the measured time.

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <stdexcept>

#include "bench/loops.h"
#include "bench/rank_engines.h"

namespace muster::bench {
namespace {

// A peer that is lost shows earlier: the bench watches all ranks. This is the last resort.
constexpr std::chrono::seconds kTimeout{300};

// Gloo reduces into one of the two inputs, or into memory apart from both.
void Sum(void* out, const void* a, const void* b, size_t count) {
  static const Loops loops = BestLoops();
  auto* sums = static_cast<float*>(out);
  const auto* left = static_cast<const float*>(a);
  const auto* right = static_cast<const float*>(b);
  if (sums == right) {
    loops.add(sums, left, count);
    return;
  }
  if (sums != left) {
    loops.copy(sums, left, count);
  }
  loops.add(sums, right, count);
}

class GlooRank : public RankEngine {
 public:
  GlooRank(int rank, int size, const std::string& store) : rank_(rank), size_(size) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = "lo";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore files(store);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->setTimeout(kTimeout);
    context->connectFullMesh(files, device);
    context_ = std::move(context);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void Barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  std::function<void()> Prepare(const Order& order, Buffers& buffers) override {
    switch (order.operation) {
      case Operation::kAllreduce:
        return Allreduce(order, buffers);
      case Operation::kReducescatter:
        return Reducescatter(order, buffers);
      case Operation::kAllgather:
        return [this, &buffers] {
          gloo::AllgatherOptions options(context_);
          options.setInput(buffers.in(0), buffers.layout().in);
          options.setOutput(buffers.out(0), buffers.layout().out);
          gloo::allgather(options);
        };
      case Operation::kBroadcast:
        return [this, &buffers] {
          gloo::BroadcastOptions options(context_);
          options.setOutput(buffers.out(0), buffers.layout().out);
          options.setRoot(0);
          gloo::broadcast(options);
        };
      case Operation::kAlltoall:
        return [this, &buffers] {
          gloo::AlltoallOptions options(context_);
          options.setInput(buffers.in(0), buffers.layout().in);
          options.setOutput(buffers.out(0), buffers.layout().out);
          gloo::alltoall(options);
        };
    }
    throw std::invalid_argument("the operation is not known");
  }

 private:
  std::function<void()> Allreduce(const Order& order, Buffers& buffers) {
    if (order.algorithm == "halving_doubling") {
      return HalvingDoubling(order, buffers);
    }
    const auto algorithm = order.algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                                      : gloo::AllreduceOptions::Algorithm::RING;
    return [this, &buffers, algorithm] {
      const size_t floats = buffers.layout().in;
      for (size_t i = 0; i < buffers.count(); ++i) {
        gloo::AllreduceOptions options(context_);
        options.setAlgorithm(algorithm);
        options.setReduceFunction(&Sum);
        if (buffers.in(i) != buffers.out(i)) {
          options.setInput(buffers.in(i), floats);
        }
        options.setOutput(buffers.out(i), floats);
        gloo::allreduce(options);
      }
    };
  }

  // The older interface: made for a buffer once, and in place always.
  std::function<void()> HalvingDoubling(const Order& order, Buffers& buffers) {
    RefuseBackToBack(order);
    using Algorithm = gloo::AllreduceHalvingDoubling<float>;
    std::vector<std::shared_ptr<Algorithm>> algorithms;  // std::function copies what it holds.
    for (size_t i = 0; i < buffers.count(); ++i) {
      algorithms.push_back(std::make_shared<Algorithm>(context_,
                                                       std::vector<float*>{buffers.in(i)},
                                                       static_cast<int>(buffers.layout().in),
                                                       &sum_));
    }
    return [algorithms] {
      for (const std::shared_ptr<Algorithm>& algorithm : algorithms) {
        algorithm->run();
      }
    };
  }

  std::function<void()> Reducescatter(const Order& order, Buffers& buffers) {
    RefuseBackToBack(order);
    buffers.LeaveResultsInInput();
    const std::vector<int> parts(static_cast<size_t>(size_),
                                 static_cast<int>(buffers.layout().part));
    auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
        context_,
        std::vector<float*>{buffers.in(0)},
        static_cast<int>(buffers.layout().in),
        parts,
        &sum_);
    return [algorithm] { algorithm->run(); };
  }

  static void RefuseBackToBack(const Order& order) {
    if (order.pace == Pace::kBackToBack) {
      throw std::invalid_argument("works in place, so not back to back");
    }
  }

  static void SumInto(float* sums, const float* more, size_t count) {
    Sum(sums, sums, more, count);
  }

  const int rank_;
  const int size_;
  // Gloo's own is not vectorised in Debian's build.
  gloo::ReductionFunction<float> sum_{gloo::SUM, &SumInto};
  std::shared_ptr<gloo::Context> context_;  // Gloo's options take it shared.
};

}  // namespace

std::unique_ptr<RankEngine> MakeGlooRank(int rank, int size, const std::string& store) {
  return std::make_unique<GlooRank>(rank, size, store);
}

}  // namespace muster::bench
