#include "muster/sampler.h"

#include <algorithm>

#include "worker/core/sample_deal.h"
#include "worker/core/sample_order.h"
#include "worker/runtime.h"

namespace muster {
namespace {

using worker::GetRuntime;
using worker::SampleDeal;
using worker::SampleOrder;

constexpr const char* kDistributed = "DistributedSampler";
constexpr const char* kElastic = "ElasticSampler";

void Require(bool condition, const char* class_name, const std::string& what) {
  if (!condition) {
    throw Error(std::string(class_name) + ": " + what);
  }
}

void RequireAtLeast(int64_t least, int64_t value, const char* class_name, const char* what) {
  Require(value >= least,
          class_name,
          std::string(what) + " is " + std::to_string(value) + ", but has to be at least " +
              std::to_string(least));
}

SampleOrder MakeOrder(int64_t dataset_size, bool shuffle, uint64_t seed, int64_t epoch) {
  const auto count = static_cast<uint64_t>(dataset_size);
  return shuffle ? SampleOrder(count, seed, static_cast<uint64_t>(epoch)) : SampleOrder(count);
}

SampleDeal MakeDeal(int64_t dataset_size, int64_t position) {
  return {static_cast<uint64_t>(dataset_size),
          static_cast<uint64_t>(position),
          static_cast<uint32_t>(GetRuntime().place().size)};
}

// This rank's samples in batch `index`, counted from where the deal begins.
std::vector<int64_t> TakeBatch(const SampleOrder& order,
                               const SampleDeal& deal,
                               int64_t batch_size,
                               int64_t index) {
  const auto rank = static_cast<uint32_t>(GetRuntime().place().rank);
  const auto length = static_cast<uint64_t>(batch_size);
  const uint64_t rounds = deal.rounds();
  std::vector<int64_t> samples;
  // Divided, not multiplied: a far index with a large batch would overflow.
  if (static_cast<uint64_t>(index) > rounds / length) {
    return samples;
  }
  const uint64_t first = static_cast<uint64_t>(index) * length;
  const uint64_t end = first + std::min(length, rounds - first);
  samples.reserve(end - first);
  for (uint64_t round = first; round < end; ++round) {
    samples.push_back(static_cast<int64_t>(order.At(deal.PlaceOf(rank, round))));
  }
  return samples;
}

}  // namespace

// ---------------------------------------------------------------- DistributedSampler

DistributedSampler::DistributedSampler(int64_t dataset_size, SamplerOptions options)
    : dataset_size_(dataset_size), options_(options) {
  RequireAtLeast(0, dataset_size, kDistributed, "the size of the data set");
}

void DistributedSampler::set_epoch(int64_t epoch) {
  RequireAtLeast(0, epoch, kDistributed, "the epoch");
  epoch_ = epoch;
}

int64_t DistributedSampler::length() const {
  return static_cast<int64_t>(MakeDeal(dataset_size_, 0).rounds());
}

std::vector<int64_t> DistributedSampler::batch(int64_t batch_size, int64_t index) const {
  RequireAtLeast(1, batch_size, kDistributed, "the batch size");
  RequireAtLeast(0, index, kDistributed, "the index of a batch");
  return TakeBatch(MakeOrder(dataset_size_, options_.shuffle, options_.seed, epoch_),
                   MakeDeal(dataset_size_, 0),
                   batch_size,
                   index);
}

}  // namespace muster

// ---------------------------------------------------------------- ElasticSampler

namespace muster::elastic {

ElasticSampler::ElasticSampler(int64_t dataset_size, SamplerOptions options)
    : progress_{
          .dataset_size = dataset_size, .shuffle = options.shuffle ? 1 : 0, .seed = options.seed} {
  RequireAtLeast(0, dataset_size, kElastic, "the size of the data set");
}

void ElasticSampler::set_epoch(int64_t epoch) {
  RequireAtLeast(0, epoch, kElastic, "the epoch");
  if (epoch != progress_.epoch) {
    progress_.epoch = epoch;
    progress_.position = 0;
  }
}

int64_t ElasticSampler::length() const {
  return static_cast<int64_t>(MakeDeal(progress_.dataset_size, progress_.position).rounds());
}

std::vector<int64_t> ElasticSampler::batch(int64_t batch_size, int64_t ahead) const {
  RequireAtLeast(1, batch_size, kElastic, "the batch size");
  RequireAtLeast(0, ahead, kElastic, "the number of batches to look ahead");
  return TakeBatch(
      MakeOrder(progress_.dataset_size, progress_.shuffle != 0, progress_.seed, progress_.epoch),
      MakeDeal(progress_.dataset_size, progress_.position),
      batch_size,
      ahead);
}

void ElasticSampler::record_batch(int64_t batch_size) {
  RequireAtLeast(1, batch_size, kElastic, "the batch size");
  const SampleDeal deal = MakeDeal(progress_.dataset_size, progress_.position);
  progress_.position = static_cast<int64_t>(deal.PositionAfter(static_cast<uint64_t>(batch_size)));
}

int64_t ElasticSampler::sample_at(int64_t place) const {
  Require(place >= 0 && place < progress_.dataset_size,
          kElastic,
          "the epoch of " + std::to_string(progress_.dataset_size) + " samples has no place " +
              std::to_string(place));
  const SampleOrder order =
      MakeOrder(progress_.dataset_size, progress_.shuffle != 0, progress_.seed, progress_.epoch);
  return static_cast<int64_t>(order.At(static_cast<uint64_t>(place)));
}

void ElasticSampler::record_samples(int64_t count) {
  const int64_t left = progress_.dataset_size - progress_.position;
  Require(count >= 0 && count <= left,
          kElastic,
          std::to_string(count) + " samples cannot be recorded where the epoch has " +
              std::to_string(left) + " left");
  progress_.position += count;
}

std::string ElasticSampler::save() {
  return encode(progress_);
}

void ElasticSampler::load(std::string_view bytes) {
  Progress loaded;
  decode(bytes, loaded);
  Require(loaded.dataset_size == progress_.dataset_size,
          kElastic,
          "the state is of a data set of " + std::to_string(loaded.dataset_size) +
              " samples, but this worker's has " + std::to_string(progress_.dataset_size));
  Require(loaded.epoch >= 0 && loaded.position >= 0 && loaded.position <= loaded.dataset_size,
          kElastic,
          "the state is at sample " + std::to_string(loaded.position) + " of epoch " +
              std::to_string(loaded.epoch));
  progress_ = loaded;
}

}  // namespace muster::elastic
