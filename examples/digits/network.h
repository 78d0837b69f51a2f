#pragma once

// A network with one hidden layer: pixels -> ReLU(hidden) -> softmax over the classes, trained by
// gradient descent with momentum. Parameters and momentum are two flat arrays, so that one tensor
// each goes into the State and one allreduce sums the gradient.

#include <cstdint>
#include <span>
#include <vector>

#include "dataset.h"

class Network {
 public:
  /// The same weights on every rank: they come from a fixed seed.
  explicit Network(int64_t hidden);

  /// Adds the gradient of the sample's loss to `gradient` (as long as parameters()) and returns the
  /// loss, the cross-entropy in nats.
  float AddGradient(const Sample& sample, std::span<float> gradient);

  /// One step along the mean gradient.
  void Descend(std::span<const float> gradient, float rate, float momentum);

  int Classify(const Sample& sample);

  std::vector<float>& parameters() { return parameters_; }
  std::vector<float>& momentum() { return momentum_; }

 private:
  void Forward(const Sample& sample);

  // Where each layer's weights and biases start in the flat arrays.
  int64_t HiddenBias() const { return hidden_ * kPixels; }
  int64_t OutWeights() const { return HiddenBias() + hidden_; }
  int64_t OutBias() const { return OutWeights() + kClasses * hidden_; }

  const int64_t hidden_;
  std::vector<float> parameters_;
  std::vector<float> momentum_;

  // Of the last Forward.
  std::vector<float> activation_;    // Hidden units.
  std::vector<float> probability_;   // Classes.
  std::vector<float> hidden_error_;  // Scratch of AddGradient.
};
