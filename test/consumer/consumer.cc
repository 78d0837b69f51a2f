// What a user writes first: a world of one where no launcher started it, any size otherwise.

#include <muster/elastic.h>
#include <muster/muster.h>
#include <muster/sampler.h>

#include <cstdio>
#include <vector>

int main() {
  muster::init();
  std::vector<float> weights(4, 1.0F);
  int step = 0;
  muster::elastic::ElasticSampler sampler(100);
  muster::elastic::State state;
  state.tensor("weights", {weights.data(), muster::DType::kF32, {4}, {}})
      .value("step", step)
      .member("sampler", sampler);
  muster::elastic::run(state, [&](muster::elastic::State& s) {
    while (step < 3) {
      const muster::Tensor tensor{weights.data(), muster::DType::kF32, {4}, {}};
      muster::Options options;
      options.op = muster::Op::kSum;
      muster::allreduce(tensor, tensor, options);
      sampler.record_batch(static_cast<int64_t>(sampler.batch(2).size()));
      ++step;
      s.commit();
    }
  });
  std::printf("size %d, step %d, weight %g\n", muster::size(), step, double{weights[0]});
  const bool right = (muster::size() > 1 || weights[0] == 1.0F) &&
                     sampler.position() == int64_t{6} * muster::size();
  muster::shutdown();
  return right && step == 3 ? 0 : 1;
}
