// Runs a fuzz target without a fuzzer: the inputs of its corpus, then mutations of them that are
// the same in every run. So every build, with any compiler, tries each parser for some seconds; the
// search for new inputs is scripts/fuzz's, with clang.
//
//   fuzz_NAME CORPUS_FOLDER [MUTATIONS [SEED]]      or      fuzz_NAME FILE...

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kMutationsDefault = 4000;
constexpr uint64_t kSeedDefault = 20250701;
constexpr size_t kInputBytesMax = 8192;
constexpr uint64_t kChangesMax = 4;
// Where numbers go wrong, and what separates words in the texts that we read.
constexpr std::array<uint8_t, 18> kTelling = {
    0, 1, 2, 0x7f, 0x80, 0xff, '\n', '\r', ' ', ':', ',', '[', ']', '#', '-', '0', '9', '%'};

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void ChangeOnce(Bytes& input, const std::vector<Bytes>& corpus, muster::Random& random) {
  const size_t at = input.empty() ? 0 : random.Below(input.size());
  const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
  const auto to_end = static_cast<uint64_t>(input.end() - here);
  switch (random.Below(input.empty() ? 1 : 6)) {
    case 0: {  // A piece of some input, put in.
      const Bytes& other = corpus[random.Below(corpus.size())];
      const size_t from = other.empty() ? 0 : random.Below(other.size());
      const size_t size = other.empty() ? 0 : 1 + random.Below(other.size() - from);
      const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
      const Bytes piece(begin, begin + static_cast<std::ptrdiff_t>(size));
      input.insert(here, piece.begin(), piece.end());
      break;
    }
    case 1:
      *here = kTelling[random.Below(kTelling.size())];
      break;
    case 2:
      *here ^= static_cast<uint8_t>(1U << random.Below(8));
      break;
    case 3:
      input.erase(here, here + static_cast<std::ptrdiff_t>(1 + random.Below(to_end)));
      break;
    case 4:
      input.insert(here, static_cast<uint8_t>(random.Next()));
      break;
    default:
      std::fill(here,
                here + static_cast<std::ptrdiff_t>(1 + random.Below(std::min<uint64_t>(to_end, 8))),
                kTelling[random.Below(kTelling.size())]);
  }
}

std::vector<Bytes> ReadCorpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // The order decides what a mutation is made of.
  std::vector<Bytes> corpus(1);           // Nothing at all is an input too.
  for (const auto& path : paths) {
    corpus.push_back(ReadFile(path));
  }
  return corpus;
}

void Run(const Bytes& input) {
  // A copy of exactly this size: an address sanitizer sees the first byte that is read beyond it.
  const Bytes exact(input);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER [MUTATIONS [SEED]] | FILE...\n", argv[0]);
    return 2;
  }
  if (!std::filesystem::is_directory(argv[1])) {
    for (int i = 1; i < argc; ++i) {
      Run(ReadFile(argv[i]));
    }
    return 0;
  }
  const uint64_t mutations = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : kMutationsDefault;
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : kSeedDefault;
  const std::vector<Bytes> corpus = ReadCorpus(argv[1]);
  std::printf("%zu inputs, %llu mutations, seed %llu\n",
              corpus.size(),
              static_cast<unsigned long long>(mutations),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (const Bytes& input : corpus) {
    Run(input);
  }
  muster::Random random(seed);
  for (uint64_t i = 0; i < mutations; ++i) {
    Bytes input = corpus[random.Below(corpus.size())];
    for (uint64_t changes = 1 + random.Below(kChangesMax); changes > 0; --changes) {
      ChangeOnce(input, corpus, random);
    }
    input.resize(std::min(input.size(), kInputBytesMax));
    Run(input);
  }
  return 0;
}
