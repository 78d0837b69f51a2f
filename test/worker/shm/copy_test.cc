#include "worker/shm/copy.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

namespace muster::worker {
namespace {

TEST_CASE("copy moves exactly the bytes it is told, at any size and alignment") {
  std::vector<unsigned char> source(70'000);
  std::iota(source.begin(), source.end(), static_cast<unsigned char>(0));
  const size_t from = GENERATE(0, 1, 16, 63);
  const size_t to = GENERATE(0, 7, 16);
  const auto check = [&](size_t bytes) {
    std::vector<unsigned char> target(bytes + to + 64, 0xEE);
    CopyBytes(target.data() + to, source.data() + from, bytes);
    const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
    const auto same = [](unsigned char byte) { return byte == 0xEE; };
    return std::all_of(target.begin(), begin, same) && std::all_of(end, target.end(), same) &&
           std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from));
  };
  for (size_t bytes = 0; bytes < 1400; ++bytes) {
    REQUIRE(check(bytes));
  }
  for (const size_t bytes : {2047, 2048, 2049, 4096, 65'535, 65'536, 65'600}) {
    REQUIRE(check(bytes));
  }
}

}  // namespace
}  // namespace muster::worker
