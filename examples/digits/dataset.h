#pragma once

// The handwritten digits: 1,797 pictures of 8x8 pixels. Every fifth tests, the others train.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

inline constexpr int64_t kPixels = 64;
inline constexpr int64_t kClasses = 10;

struct Sample {
  std::span<const float> pixels;  // kPixels values, 0 to 1.
  int label = 0;                  // 0 to kClasses - 1.
};

class Dataset {
 public:
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  Sample operator[](int64_t i) const;
  void Add(const std::vector<float>& pixels, int label);

 private:
  std::vector<float> pixels_;
  std::vector<int> labels_;
};

struct Digits {
  Dataset train;
  Dataset test;
};

/// Reads a gzipped file of lines "pixel,...,pixel,label"; an empty path: the file of the source
/// tree. Throws std::runtime_error.
Digits LoadDigits(const std::string& path);
