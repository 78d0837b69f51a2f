// test_soak_worker: trains a State whose value after each step is known beforehand, whatever the
// size of the world was meanwhile, and writes a digest of it after each commit. What a rank adds is
// made of shards that are dealt out among the ranks, and sums of whole numbers do not depend on
// their order; so a run without Muster (--replay) has the same bits.

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "../integration/worker_support.h"
#include "common/secret.h"
#include "muster/elastic.h"
#include "muster/muster.h"

namespace {

using muster::test::Arguments;
using muster::test::EventLog;

constexpr const char* kUsage = R"(test_soak_worker [option value]...
  --step-ms MS      pause per step (20)
  --stop-file PATH  trains until it exists
  --replay N        prints the digests of steps 0 to N, without a job)";

constexpr int kShards = 16;
constexpr size_t kValues = 256;
constexpr size_t kDigestBytes = 8;

// SplitMix64's last part: all bits depend on all bits.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The integers wrap; the floats hold whole numbers far below 2^24, so that each sum is exact.
struct Sums {
  std::array<int64_t, kValues> whole{};
  std::array<float, kValues> real{};

  void AddShard(int64_t step, int shard) {
    for (size_t i = 0; i < kValues; ++i) {
      const uint64_t value = Mix(static_cast<uint64_t>(step) * 0x9E3779B97F4A7C15ULL +
                                 static_cast<uint64_t>(shard) * kValues + i);
      whole[i] = static_cast<int64_t>(static_cast<uint64_t>(whole[i]) + value);
      real[i] += static_cast<float>(value & 0xFF);
    }
  }
};

struct Model {
  int64_t step = 0;
  std::array<int64_t, kValues> whole{};
  std::array<float, kValues> real{};

  void Update(const Sums& sums) {
    for (size_t i = 0; i < kValues; ++i) {
      const auto sum = static_cast<uint64_t>(sums.whole[i]);
      whole[i] = static_cast<int64_t>(std::rotl(static_cast<uint64_t>(whole[i]), 7) ^
                                      (sum * 0x9E3779B97F4A7C15ULL));
      real[i] = real[i] * 0.5F + sums.real[i];
    }
    ++step;
  }

  std::string Digest() const {
    std::string bytes(sizeof step + sizeof whole + sizeof real, '\0');
    std::memcpy(bytes.data(), &step, sizeof step);
    std::memcpy(bytes.data() + sizeof step, whole.data(), sizeof whole);
    std::memcpy(bytes.data() + sizeof step + sizeof whole, real.data(), sizeof real);
    const muster::Digest digest = muster::HmacSha256("soak", bytes);
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (size_t i = 0; i < kDigestBytes; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }
};

int Replay(int64_t steps) {
  Model model;
  std::cout << model.Digest() << "\n";
  while (model.step < steps) {
    Sums sums;
    for (int shard = 0; shard < kShards; ++shard) {
      sums.AddShard(model.step, shard);
    }
    model.Update(sums);
    std::cout << model.Digest() << "\n";
  }
  return 0;
}

class Training {
 public:
  Training(const Arguments& arguments, const EventLog& log)
      : log_(log),
        step_ms_(arguments.Number("step-ms", 20)),
        stop_file_(arguments.Text("stop-file")) {
    constexpr auto kLength = static_cast<int64_t>(kValues);
    state_.value("step", model_.step)
        .tensor("whole", {model_.whole.data(), muster::DType::kI64, {kLength}, {}})
        .tensor("real", {model_.real.data(), muster::DType::kF32, {kLength}, {}});
  }

  void Run() {
    muster::elastic::run(state_, [this](muster::elastic::State&) {
      Tell("entry");
      while (TrainOneStep()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(step_ms_));
      }
      Tell("done");
    });
  }

 private:
  // False once a rank has seen the file: all ranks stop after the same step.
  bool TrainOneStep() {
    Sums sums;
    for (int shard = muster::rank(); shard < kShards; shard += muster::size()) {
      sums.AddShard(model_.step, shard);
    }
    int64_t stops = ::access(stop_file_.c_str(), F_OK) == 0 ? 1 : 0;
    constexpr auto kLength = static_cast<int64_t>(kValues);
    const std::vector<muster::Tensor> tensors{
        {sums.whole.data(), muster::DType::kI64, {kLength}, {}},
        {sums.real.data(), muster::DType::kF32, {kLength}, {}},
        {&stops, muster::DType::kI64, {1}, {}}};
    muster::Options options;
    options.name = "sums";
    options.op = muster::Op::kSum;
    muster::grouped_allreduce(tensors, tensors, options);
    model_.Update(sums);
    state_.commit();
    Tell("step");
    return stops == 0;
  }

  void Tell(const char* event) {
    log_.Write(event, {{"step", model_.step}, {"digest", model_.Digest()}});
  }

  const EventLog& log_;
  const int64_t step_ms_;
  const std::string stop_file_;
  muster::elastic::State state_;
  Model model_;
};

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments(argc, argv, kUsage);
  if (!arguments.Text("replay").empty()) {
    return Replay(arguments.Number("replay", 0));
  }
  try {
    muster::init();
    const EventLog log;
    Training(arguments, log).Run();
    muster::shutdown();
    return 0;
  } catch (const muster::Error& error) {
    std::cerr << "test_soak_worker: " << error.what() << std::endl;
    return 1;
  }
}
