// Muster's rank: the public API as a training program uses it, one name per tensor and size, the
// same in each iteration.

#include <muster/muster.h>

#include <stdexcept>

#include "bench/rank_engines.h"

namespace muster::bench {
namespace {

Tensor View(float* data, size_t rows) {
  return {.data = data, .dtype = DType::kF32, .shape = {static_cast<int64_t>(rows)}};
}

class MusterRank : public RankEngine {
 public:
  MusterRank() { init(); }
  ~MusterRank() override { shutdown(); }
  MusterRank(const MusterRank&) = delete;
  MusterRank& operator=(const MusterRank&) = delete;

  int rank() const override { return muster::rank(); }
  int size() const override { return muster::size(); }

  void Barrier() override { barrier({.name = "bench.barrier"}); }

  std::function<void()> Prepare(const Order& order, Buffers& buffers) override {
    if (order.tensors == 1) {
      return Blocking(order.operation, buffers, OptionsOf(order, 0));
    }
    if (order.operation != Operation::kAllreduce) {
      throw std::invalid_argument("several tensors at once are measured with allreduce only");
    }
    std::vector<Options> options;
    for (int i = 0; i < order.tensors; ++i) {
      options.push_back(OptionsOf(order, i));
    }
    return [&buffers, options, handles = std::vector<Handle>(options.size())]() mutable {
      const size_t floats = buffers.layout().in;
      for (size_t i = 0; i < handles.size(); ++i) {
        handles[i] =
            allreduce_async(View(buffers.in(i), floats), View(buffers.out(i), floats), options[i]);
      }
      for (Handle& handle : handles) {
        handle.wait();
      }
    };
  }

 private:
  static Options OptionsOf(const Order& order, int tensor) {
    return {.name = "bench." + Name(order.operation) + "." + std::to_string(order.bytes) + "." +
                    std::to_string(tensor),
            .op = Op::kSum};
  }

  static std::function<void()> Blocking(Operation operation, Buffers& buffers, Options options) {
    const Layout& layout = buffers.layout();
    const Tensor in = View(buffers.in(0), layout.in);
    const Tensor out = View(buffers.out(0), layout.out);
    const Allocate give = [out](const Shape&, DType, const Device&) { return out.data; };
    switch (operation) {
      case Operation::kAllreduce:
        return [in, out, options] { allreduce(in, out, options); };
      case Operation::kAllgather:
        return [in, give, options] { allgather(in, give, options); };
      case Operation::kBroadcast:
        return [in, options] { broadcast(in, 0, options); };
      case Operation::kAlltoall:
        return [in, give, options] { alltoall(in, {}, give, nullptr, options); };
      case Operation::kReducescatter:
        return [in, give, options] { reducescatter(in, give, options); };
    }
    throw std::invalid_argument("the operation is not known");
  }
};

}  // namespace

std::unique_ptr<RankEngine> MakeMusterRank() {
  return std::make_unique<MusterRank>();
}

}  // namespace muster::bench
