#include "worker/collective/pieces.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

namespace muster::worker {

TEST_CASE("pieces are packed one behind the other, zeros where a rank has joined") {
  const std::string a = "abc";
  const std::string b = "de";
  const std::vector<Piece> pieces = {{a.data(), nullptr, 3},
                                     {nullptr, nullptr, 2},
                                     {b.data(), nullptr, 0},
                                     {b.data(), nullptr, 2}};
  std::string packed(7, '?');
  Pack(pieces, 1, packed.data());
  CHECK(packed == std::string("abc\0\0de", 7));
  CHECK(CountOf(pieces) == 7);
}

TEST_CASE("pieces are unpacked where the result is wanted") {
  std::string a(4, '?');
  std::string b(2, '?');
  const std::vector<Piece> pieces = {
      {nullptr, a.data(), 2}, {nullptr, nullptr, 1}, {nullptr, b.data(), 1}};
  Unpack("aabbccdd", pieces, 2);
  CHECK(a == "aabb");
  CHECK(b == "dd");
}

TEST_CASE("pieces are cut into runs that cover each element once, in order") {
  const size_t bound = GENERATE(1, 2, 3, 5, 8, 100);
  std::vector<int> in(23);
  std::vector<int> out(in.size(), -1);
  std::iota(in.begin(), in.end(), 0);
  const std::vector<Piece> pieces = {{in.data(), out.data(), 0},
                                     {in.data(), out.data(), 7},
                                     {in.data() + 7, out.data() + 7, 1},
                                     {in.data(), out.data(), 0},
                                     {in.data() + 8, out.data() + 8, 15}};
  PieceRuns runs(pieces, sizeof(int), bound);
  std::vector<Piece> run;
  size_t covered = 0;
  for (runs.Next(run); !run.empty(); runs.Next(run)) {
    const size_t count = CountOf(run);
    CHECK(count <= bound);
    CHECK((count == bound || covered + count == in.size()));
    for (const Piece& piece : run) {
      REQUIRE(piece.count > 0);
      CHECK(static_cast<const int*>(piece.in)[0] == static_cast<int>(covered));
      CHECK(static_cast<int*>(piece.out) == out.data() + covered);
      covered += piece.count;
    }
  }
  CHECK(covered == in.size());
  runs.Next(run);
  CHECK(run.empty());
}

}  // namespace muster::worker
