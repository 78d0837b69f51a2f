// What a user writes first: a world of one where no launcher started it, any size otherwise.

#include <muster/elastic.h>
#include <muster/muster.h>

#include <cstdio>
#include <vector>

int main() {
  muster::init();
  std::vector<float> weights(4, 1.0F);
  int step = 0;
  muster::elastic::State state;
  state.tensor("weights", {weights.data(), muster::DType::kF32, {4}, {}}).value("step", step);
  muster::elastic::run(state, [&](muster::elastic::State& s) {
    while (step < 3) {
      const muster::Tensor tensor{weights.data(), muster::DType::kF32, {4}, {}};
      muster::Options options;
      options.op = muster::Op::kSum;
      muster::allreduce(tensor, tensor, options);
      ++step;
      s.commit();
    }
  });
  std::printf("size %d, step %d, weight %g\n", muster::size(), step, double{weights[0]});
  const bool right = muster::size() > 1 || weights[0] == 1.0F;
  muster::shutdown();
  return right && step == 3 ? 0 : 1;
}
