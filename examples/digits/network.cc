#include "network.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace {

/// Uniform in [-limit, limit), the same everywhere: std::uniform_real_distribution is not.
float Uniform(std::mt19937_64& random, float limit) {
  const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
  return limit * static_cast<float>(2 * unit - 1);
}

}  // namespace

Network::Network(int64_t hidden)
    : hidden_(hidden),
      activation_(static_cast<size_t>(hidden)),
      probability_(kClasses),
      hidden_error_(static_cast<size_t>(hidden)) {
  const auto count = static_cast<size_t>(OutBias() + kClasses);
  parameters_.resize(count);
  momentum_.resize(count);
  // Glorot and Bengio (2010): the limit keeps the variance of a layer's input and output alike.
  std::mt19937_64 random(1797);
  const auto fill = [&](int64_t from, int64_t to, int64_t fan_in, int64_t fan_out) {
    const float limit = std::sqrt(6.0F / static_cast<float>(fan_in + fan_out));
    for (int64_t i = from; i < to; ++i) {
      parameters_[static_cast<size_t>(i)] = Uniform(random, limit);
    }
  };
  fill(0, HiddenBias(), kPixels, hidden_);
  fill(OutWeights(), OutBias(), hidden_, kClasses);
}

void Network::Forward(const Sample& sample) {
  for (int64_t h = 0; h < hidden_; ++h) {
    const float* weights = parameters_.data() + h * kPixels;
    float sum = parameters_[static_cast<size_t>(HiddenBias() + h)];
    for (int64_t p = 0; p < kPixels; ++p) {
      sum += weights[p] * sample.pixels[static_cast<size_t>(p)];
    }
    activation_[static_cast<size_t>(h)] = std::max(sum, 0.0F);
  }
  for (int64_t c = 0; c < kClasses; ++c) {
    const float* weights = parameters_.data() + OutWeights() + c * hidden_;
    float sum = parameters_[static_cast<size_t>(OutBias() + c)];
    for (int64_t h = 0; h < hidden_; ++h) {
      sum += weights[h] * activation_[static_cast<size_t>(h)];
    }
    probability_[static_cast<size_t>(c)] = sum;
  }
  // Less the maximum, or large sums would overflow.
  const float largest = *std::max_element(probability_.begin(), probability_.end());
  float total = 0;
  for (float& value : probability_) {
    value = std::exp(value - largest);
    total += value;
  }
  for (float& value : probability_) {
    value /= total;
  }
}

float Network::AddGradient(const Sample& sample, std::span<float> gradient) {
  Forward(sample);
  std::fill(hidden_error_.begin(), hidden_error_.end(), 0.0F);
  for (int64_t c = 0; c < kClasses; ++c) {
    // The derivative of softmax and cross-entropy together.
    const float error = probability_[static_cast<size_t>(c)] - (c == sample.label ? 1.0F : 0.0F);
    const float* weights = parameters_.data() + OutWeights() + c * hidden_;
    float* slope = gradient.data() + OutWeights() + c * hidden_;
    for (int64_t h = 0; h < hidden_; ++h) {
      slope[h] += error * activation_[static_cast<size_t>(h)];
      hidden_error_[static_cast<size_t>(h)] += error * weights[h];
    }
    gradient[static_cast<size_t>(OutBias() + c)] += error;
  }
  for (int64_t h = 0; h < hidden_; ++h) {
    if (activation_[static_cast<size_t>(h)] <= 0) {
      continue;  // ReLU passes nothing back.
    }
    const float error = hidden_error_[static_cast<size_t>(h)];
    float* slope = gradient.data() + h * kPixels;
    for (int64_t p = 0; p < kPixels; ++p) {
      slope[p] += error * sample.pixels[static_cast<size_t>(p)];
    }
    gradient[static_cast<size_t>(HiddenBias() + h)] += error;
  }
  return -std::log(std::max(probability_[static_cast<size_t>(sample.label)], 1e-30F));
}

void Network::Descend(std::span<const float> gradient, float rate, float momentum) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    momentum_[i] = momentum * momentum_[i] + gradient[i];
    parameters_[i] -= rate * momentum_[i];
  }
}

int Network::Classify(const Sample& sample) {
  Forward(sample);
  const auto likeliest = std::max_element(probability_.begin(), probability_.end());
  return static_cast<int>(likeliest - probability_.begin());
}
