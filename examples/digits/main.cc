// Trains a small network on handwritten digits, on as many workers as there happen to be.
//
// Every rank holds the whole network. In each step it computes the gradient of its share of the
// batch; an allreduce sums the shares, so all ranks take the same step. What must survive a lost
// worker is registered in a State and committed; elastic::run does the rest.

#include <muster/elastic.h>
#include <muster/muster.h>
#include <muster/sampler.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "dataset.h"
#include "network.h"
#include "options.h"

namespace {

constexpr float kRate = 0.05F;
constexpr float kMomentum = 0.9F;

muster::Tensor View(std::vector<float>& values) {
  return {.data = values.data(),
          .dtype = muster::DType::kF32,
          .shape = {static_cast<int64_t>(values.size())}};
}

/// How far the training is. A plain struct is one value of the State.
struct Progress {
  int64_t step = 0;     // Of the whole training.
  double loss_sum = 0;  // Of the epoch's samples so far.
};

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options),
        digits_(LoadDigits(options.data)),
        network_(options.hidden),
        sampler_(digits_.train.size()),
        ballast_(static_cast<size_t>(options.state_mb) << 18) {}

  void Register(muster::elastic::State& state) {
    state.tensor("weights", View(network_.parameters()))
        .tensor("momentum", View(network_.momentum()))
        .tensor("ballast", View(ballast_))
        .member("sampler", sampler_)
        .value("progress", progress_);
    state.register_reset_callbacks({[] {
      if (muster::rank() == 0) {
        std::printf("now %d workers\n", muster::size());
        std::fflush(stdout);
      }
    }});
  }

  /// Called anew in each world; goes on where the State stands.
  void Run(muster::elastic::State& state) {
    while (!Finished()) {
      Step();
      muster::trace_step(progress_.step);
      if (progress_.step % options_.commit_every == 0) {
        state.commit();
      }
    }
    // The check waits until every rank has made this last commit. So a worker that is lost while
    // others are done already costs nobody a step, and all end with the same parameters.
    state.commit();
    state.check_host_updates();
  }

  /// The part of the test samples that are classified right. The ranks share the work, unless some
  /// have gone already.
  double TestAccuracy() {
    try {
      double right = static_cast<double>(CountRight(muster::rank(), muster::size()));
      const muster::Tensor sum = {.data = &right, .dtype = muster::DType::kF64};
      muster::allreduce(sum, sum, {.name = "right", .op = muster::Op::kSum});
      return right / static_cast<double>(digits_.test.size());
    } catch (const muster::WorkersFinished&) {
    } catch (const muster::WorkersLost&) {
    }
    return static_cast<double>(CountRight(0, 1)) / static_cast<double>(digits_.test.size());
  }

  /// Equal on all ranks exactly if their parameters are (FNV-1a over the bytes).
  uint64_t Checksum() {
    uint64_t hash = 0xCBF29CE484222325ULL;
    for (const std::vector<float>* part :
         {&network_.parameters(), &network_.momentum(), &ballast_}) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(part->data());
      for (size_t i = 0; i < part->size() * sizeof(float); ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
      }
    }
    return hash;
  }

  /// Under another name first: whoever reads the file sees all of it or none.
  void WriteModel(const std::string& path) {
    const std::string unfinished = path + ".unfinished";
    std::ofstream file(unfinished, std::ios::binary);
    const std::vector<float>& parameters = network_.parameters();
    file.write(reinterpret_cast<const char*>(parameters.data()),
               static_cast<std::streamsize>(parameters.size() * sizeof(float)));
    file.close();
    if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
      throw std::runtime_error("cannot write " + path);
    }
  }

 private:
  bool Finished() const {
    const bool stopped = options_.stop_after && progress_.step >= *options_.stop_after;
    return stopped || sampler_.epoch() >= options_.epochs;
  }

  void Step() {
    const int64_t first = sampler_.position();
    const int64_t end = std::min(first + options_.batch, digits_.train.size());

    // The share of this rank: every size()-th sample of the batch. Whatever the size of the world,
    // the batch has the same samples and their sum is the same step. (Where each rank should have
    // equally many, more of them in a larger world, sampler_.batch() shares out by itself.)
    gradient_.assign(network_.parameters().size() + 1, 0.0F);
    float& loss = gradient_.back();  // Rides along in the same allreduce.
    for (int64_t i = first + muster::rank(); i < end; i += muster::size()) {
      const Sample sample = digits_.train[sampler_.sample_at(i)];
      loss += network_.AddGradient(sample, gradient_);
    }
    muster::allreduce(
        View(gradient_), View(gradient_), {.name = "gradient", .op = muster::Op::kSum});
    progress_.loss_sum += loss;

    for (float& slope : gradient_) {
      slope /= static_cast<float>(end - first);
    }
    network_.Descend(std::span(gradient_).first(gradient_.size() - 1), kRate, kMomentum);
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.step_ms));

    ++progress_.step;
    sampler_.record_samples(end - first);
    if (!ballast_.empty()) {
      ballast_[static_cast<size_t>(progress_.step) % ballast_.size()] = loss;
    }
    if (end == digits_.train.size()) {
      FinishEpoch();
    }
  }

  void FinishEpoch() {
    if (muster::rank() == 0) {
      std::printf("epoch %" PRId64 ": loss %.4f on %d workers\n",
                  sampler_.epoch() + 1,
                  progress_.loss_sum / static_cast<double>(digits_.train.size()),
                  muster::size());
      std::fflush(stdout);
    }
    sampler_.set_epoch(sampler_.epoch() + 1);
    progress_.loss_sum = 0;
  }

  int64_t CountRight(int64_t first, int64_t stride) {
    int64_t right = 0;
    for (int64_t i = first; i < digits_.test.size(); i += stride) {
      const Sample sample = digits_.test[i];
      right += network_.Classify(sample) == sample.label ? 1 : 0;
    }
    return right;
  }

  const Options options_;
  const Digits digits_;
  Network network_;
  muster::elastic::ElasticSampler sampler_;
  Progress progress_;
  std::vector<float> gradient_;
  std::vector<float> ballast_;
};

void Main(const Options& options) {
  muster::init();
  Training training(options);
  muster::elastic::State state;
  training.Register(state);
  muster::elastic::run(state, [&](muster::elastic::State& s) { training.Run(s); });

  const double accuracy = training.TestAccuracy();
  std::printf("rank %d: parameters checksum %016" PRIx64 "\n", muster::rank(), training.Checksum());
  if (muster::rank() == 0) {
    std::printf("test accuracy %.4f\n", accuracy);
    if (!options.model_out.empty()) {
      training.WriteModel(options.model_out);
    }
  }
  std::fflush(stdout);
  muster::shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  try {
    Main(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "digits: %s\n", error.what());
    return 1;
  }
  return 0;
}
