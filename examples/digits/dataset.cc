#include "dataset.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

namespace {

constexpr float kPixelMax = 16;
constexpr size_t kTestEvery = 5;

// The place at which the program was built, or, if the tree has moved, the place beside it.
std::string DefaultPath() {
  std::string path = DIGITS_DATA;
  if (!std::filesystem::exists(path)) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe");
    path = program.parent_path() / "../../../../examples/data/digits.csv.gz";
  }
  return path;
}

std::string Gunzip(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) {
    throw std::runtime_error("cannot open " + path);
  }
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const int size = gzread(file.get(), buffer, sizeof buffer);
    if (size < 0) {
      throw std::runtime_error("cannot unpack " + path);
    }
    if (size == 0) {
      return text;
    }
    text.append(buffer, static_cast<size_t>(size));
  }
}

std::vector<int> ParseLine(std::string_view line) {
  std::vector<int> numbers;
  const char* at = line.data();
  const char* const end = at + line.size();
  while (at < end) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (next < end && *next != ',')) {
      throw std::runtime_error("no row of numbers: " + std::string(line));
    }
    numbers.push_back(number);
    at = next + 1;
  }
  return numbers;
}

}  // namespace

Sample Dataset::operator[](int64_t i) const {
  return {std::span(pixels_).subspan(static_cast<size_t>(i * kPixels), kPixels),
          labels_[static_cast<size_t>(i)]};
}

void Dataset::Add(const std::vector<float>& pixels, int label) {
  pixels_.insert(pixels_.end(), pixels.begin(), pixels.end());
  labels_.push_back(label);
}

Digits LoadDigits(const std::string& path) {
  const std::string text = Gunzip(path.empty() ? DefaultPath() : path);
  std::vector<std::vector<int>> rows;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    rows.push_back(ParseLine(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  Digits digits;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int>& row = rows[i];
    if (row.size() != kPixels + 1 || row.back() < 0 || row.back() >= kClasses) {
      throw std::runtime_error("line " + std::to_string(i + 1) + " is no picture with a label");
    }
    std::vector<float> pixels;
    for (int64_t p = 0; p < kPixels; ++p) {
      pixels.push_back(static_cast<float>(row[static_cast<size_t>(p)]) / kPixelMax);
    }
    // The file is sorted by writer: a part from its end would test on other hands than it trains
    // on.
    Dataset& part = i % kTestEvery == kTestEvery - 1 ? digits.test : digits.train;
    part.Add(pixels, row.back());
  }
  return digits;
}
