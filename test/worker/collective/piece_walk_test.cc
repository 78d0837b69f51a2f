#include "worker/collective/piece_walk.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "common/random.h"

namespace muster::worker {
namespace {

TEST_CASE("piece walk copies any range as if the pieces were one buffer") {
  const std::string text = "abcdefghijklmnop";
  std::string result(16, '.');
  // Of 4, 0, 1, 0, 3 elements of two bytes.
  const std::vector<Piece> pieces{{text.data(), result.data(), 4},
                                  {text.data(), result.data(), 0},
                                  {text.data() + 8, result.data() + 8, 1},
                                  {nullptr, nullptr, 0},
                                  {text.data() + 10, result.data() + 10, 3}};
  for (size_t begin = 0; begin <= 8; ++begin) {
    for (size_t end = begin; end <= 8; ++end) {
      std::string copy(16, '.');
      PieceWalk(pieces, 2).CopyFrom(begin, end, copy.data());
      CHECK(copy.substr(0, 2 * (end - begin)) == text.substr(2 * begin, 2 * (end - begin)));
      CHECK(copy.substr(2 * (end - begin)) == std::string(16 - 2 * (end - begin), '.'));
      result.assign(16, '.');
      PieceWalk(pieces, 2).CopyTo(begin, end, text.data() + 2 * begin);
      std::string expected(16, '.');
      expected.replace(2 * begin, 2 * (end - begin), text, 2 * begin, 2 * (end - begin));
      CHECK(result == expected);
    }
  }
}

TEST_CASE("piece walk writes zeros for no input and leaves out what nobody wants") {
  std::string wanted(3, '.');
  const std::vector<Piece> pieces{{nullptr, nullptr, 2}, {"xyz", wanted.data(), 3}};
  std::string copy(6, '.');
  PieceWalk(pieces, 1).CopyFrom(0, 5, copy.data());
  CHECK(copy == std::string("\0\0xyz.", 6));
  PieceWalk(pieces, 1).CopyTo(0, 5, "12345");
  CHECK(wanted == "345");
}

TEST_CASE("piece walk goes on from where the last call began") {
  Random random(3);
  std::string text(500, '\0');
  std::iota(text.begin(), text.end(), '\0');
  std::vector<Piece> pieces;
  for (size_t at = 0; at < text.size();) {
    const size_t count = std::min<size_t>(text.size() - at, random.Below(9));
    pieces.push_back({text.data() + at, nullptr, count});
    at += count;
  }
  PieceWalk walk(pieces, 1);
  for (size_t begin = 0; begin < text.size(); begin += random.Below(20)) {
    const size_t end = std::min(text.size(), begin + random.Below(60));
    std::string copy(end - begin, '.');
    walk.CopyFrom(begin, end, copy.data());
    CHECK(copy == text.substr(begin, end - begin));
  }
}

TEST_CASE("piece walk over nothing visits nothing") {
  PieceWalk none({}, 4);
  none.Over(0, 0, [](const char*, char*, size_t, size_t) { FAIL("there is nothing"); });
  const Piece empty{};
  PieceWalk walk({&empty, 1}, 4);
  walk.Over(0, 0, [](const char*, char*, size_t, size_t) { FAIL("there is nothing"); });
}

}  // namespace
}  // namespace muster::worker
