#pragma once

// Which samples of a data set a rank trains on. ElasticSampler is for elastic jobs: its place in
// the data set is a part of the State, so each sample of an epoch is used exactly once however the
// world changes. DistributedSampler is for jobs whose world stays as it is.
//
//   muster::elastic::ElasticSampler sampler(count);
//   state.member("sampler", sampler);
//   muster::elastic::run(state, [&](muster::elastic::State& s) {
//     for (; sampler.epoch() < epochs; sampler.set_epoch(sampler.epoch() + 1)) {
//       while (sampler.length() > 0) {
//         train(sampler.batch(32));
//         sampler.record_batch(32);
//         s.commit();
//       }
//     }
//   });
//
// Samples are numbers from 0 to dataset_size - 1. A shuffled epoch has the same order on all ranks
// and at all sizes of the world, given by seed and epoch; it is computed, never kept as a list.
// Where samples are short at the end of an epoch, some ranks get samples from its head once more,
// as padding: fewer than size() in all, so that every rank has equally many.
//
// Threads: as rank() and size(), which these classes ask for.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/elastic.h"

namespace muster {

struct SamplerOptions {
  bool shuffle = true;  // False: in each epoch 0, 1, 2, ...
  uint64_t seed = 0;    // The same on all ranks.
};

/// For worlds that do not change. An epoch is taken batch by batch.
class DistributedSampler {
 public:
  /// Throws Error if dataset_size is negative.
  explicit DistributedSampler(int64_t dataset_size, SamplerOptions options = {});

  /// The order of this epoch, from 0 on, is the one that counts now. Throws Error if it is
  /// negative.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return epoch_; }
  int64_t dataset_size() const { return dataset_size_; }

  /// Samples of each rank in an epoch, padding included.
  int64_t length() const;
  /// This rank's samples in batch number `index`, from 0 on: batch_size of them, fewer in the last
  /// batch, none after it. Throws Error if batch_size is not positive or index is negative.
  std::vector<int64_t> batch(int64_t batch_size, int64_t index) const;

 private:
  int64_t dataset_size_;
  SamplerOptions options_;
  int64_t epoch_ = 0;
};

}  // namespace muster

namespace muster::elastic {

/// For elastic jobs: a member of the State. In all that changes it, all ranks make the same calls.
class ElasticSampler final : public Member {
 public:
  /// Throws Error if dataset_size is negative.
  explicit ElasticSampler(int64_t dataset_size, SamplerOptions options = {});

  /// Begins another epoch, from 0 on, at its first sample. Does nothing if this is the epoch
  /// already, so a loop that calls it at the start of each epoch keeps its place after a reset.
  /// Throws Error if it is negative.
  void set_epoch(int64_t epoch);
  int64_t epoch() const { return progress_.epoch; }
  int64_t dataset_size() const { return progress_.dataset_size; }
  /// Samples of the epoch that are recorded, by all ranks together, padding not counted.
  int64_t position() const { return progress_.position; }

  /// Samples that are left in the epoch for each rank of the present world, padding included.
  int64_t length() const;
  /// This rank's samples in the next batch, or, so that a loader can work ahead, in one so many
  /// batches later: batch_size of them, fewer in the last batch of the epoch, none after it.
  /// Records nothing. Throws Error if batch_size is not positive or ahead is negative.
  std::vector<int64_t> batch(int64_t batch_size, int64_t ahead = 0) const;
  /// Every rank has trained on its next batch. More than what is left, as with a last batch that is
  /// short, counts as what is left. Throws Error if batch_size is not positive.
  void record_batch(int64_t batch_size);

  /// For programs that share out their batches by themselves, for example to take as many samples
  /// per step at every size of the world. The sample at this place of the epoch's order, from 0 to
  /// dataset_size - 1. Throws Error if there is no such place.
  int64_t sample_at(int64_t place) const;
  /// The next `count` places of the epoch have been trained on, by all ranks together. Throws Error
  /// if there are not so many.
  void record_samples(int64_t count);

  /// For the State. Seed and shuffling are among it, so that of ranks with different ones none
  /// goes by its own. load() throws Error if the bytes are of another data set.
  std::vector<Tensor> tensors() override { return {}; }
  std::string save() override;
  void load(std::string_view bytes) override;

 private:
  // As it is saved: without gaps, whose bytes would differ between ranks.
  struct Progress {
    int64_t dataset_size = 0;
    int64_t shuffle = 0;
    uint64_t seed = 0;
    int64_t epoch = 0;
    int64_t position = 0;
  };
  Progress progress_;
};

}  // namespace muster::elastic
