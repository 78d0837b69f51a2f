// test_sampler: trains nothing on the samples that ElasticSampler gives it, and writes each batch
// to $TEST_LOG before the collective of its step, so that a worker that is killed has told what it
// took. The judge is test_sampler.py.

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

#include "muster/elastic.h"
#include "muster/muster.h"
#include "muster/sampler.h"
#include "worker_support.h"

namespace {

constexpr const char* kUsage = R"(test_sampler [option value]...
  --samples N          of the data set (1000)
  --epochs N           (3)
  --batch N            of each rank (4)
  --commit-every K     steps (5)
  --sleep-ms MS        pause per step (5)
  --go-file PATH       begins further epochs until the file exists)";

float Sum(float value, const char* name) {
  const muster::Tensor tensor{&value, muster::DType::kF32, {}, {}};
  muster::allreduce(tensor, tensor, {.name = name, .op = muster::Op::kSum});
  return value;
}

void Train(const muster::test::Arguments& arguments, const muster::test::EventLog& log) {
  const int64_t epochs = arguments.Number("epochs", 3);
  const int64_t batch_size = arguments.Number("batch", 4);
  const int64_t commit_every = arguments.Number("commit-every", 5);
  const std::chrono::milliseconds pause(arguments.Number("sleep-ms", 5));
  const std::string go_file = arguments.Text("go-file");
  muster::elastic::ElasticSampler sampler(arguments.Number("samples", 1000), {.seed = 1});
  int64_t step = 0;
  muster::elastic::State state;
  state.member("sampler", sampler).value("step", step);

  muster::elastic::run(state, [&](muster::elastic::State& s) {
    // All ranks begin another epoch, or none.
    const auto goes_on = [&] {
      return sampler.epoch() < epochs ||
             (!go_file.empty() && Sum(::access(go_file.c_str(), F_OK) == 0 ? 0 : 1, "stay") > 0);
    };
    for (; goes_on(); sampler.set_epoch(sampler.epoch() + 1)) {
      while (sampler.length() > 0) {
        log.Write("batch",
                  {{"step", step + 1},
                   {"epoch", sampler.epoch()},
                   {"samples", sampler.batch(batch_size)}});
        Sum(1, "step");
        sampler.record_batch(batch_size);
        muster::trace_step(++step);
        if (step % commit_every == 0) {
          s.commit();
        }
        std::this_thread::sleep_for(pause);
      }
    }
    log.Write("done", {{"step", step}, {"epoch", sampler.epoch()}});
  });
}

}  // namespace

int main(int argc, char** argv) {
  const muster::test::EventLog log;
  const muster::test::Arguments arguments(argc, argv, kUsage);
  try {
    muster::init();
    Train(arguments, log);
    muster::shutdown();
    return 0;
  } catch (const muster::Error& error) {
    std::cerr << "test_sampler: " << error.what() << std::endl;
    return 1;
  }
}
