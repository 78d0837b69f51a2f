#include "worker/shm/ring_star.h"

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace muster::worker {
namespace {

struct Star {
  explicit Star(int members) {
    UniqueFd memory(::memfd_create("segment", MFD_CLOEXEC));
    REQUIRE(::ftruncate(memory.get(),
                        static_cast<off_t>(SegmentBytes(static_cast<size_t>(members)))) == 0);
    for (int member = 0; member < members; ++member) {
      segments.push_back(Segment::Map(memory, members).value());  // Each at its own address.
      ends.push_back(std::make_unique<RingStar>(*segments.back(), member));
    }
  }
  /// What has come in at a member, with whom it came from.
  std::vector<std::pair<int, std::string>> Move(int member) {
    std::vector<std::pair<int, std::string>> got;
    int broken = -1;
    const Status status = ends[static_cast<size_t>(member)]->Move(
        [&](int from, std::string_view frame) { got.emplace_back(from, frame); }, broken);
    REQUIRE(status.ok());
    return got;
  }
  RingStar& operator[](int member) { return *ends[static_cast<size_t>(member)]; }

  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<std::unique_ptr<RingStar>> ends;
};

using Got = std::vector<std::pair<int, std::string>>;

}  // namespace

TEST_CASE("ring star connects the first member with each other, and nobody else") {
  Star star(3);
  CHECK_FALSE(star[0].Reaches(0));
  CHECK(star[0].Reaches(1));
  CHECK(star[0].Reaches(2));
  CHECK(star[2].Reaches(0));
  CHECK_FALSE(star[2].Reaches(1));
  CHECK_FALSE(star[1].Reaches(3));
  CHECK_FALSE(star[1].Reaches(-1));
  CHECK_FALSE(star[1].Send(0, "from one", false));
  CHECK_FALSE(star[2].Send(0, "from two", false));
  CHECK_FALSE(star[0].Send(2, "to two", false));
  CHECK(star[0].HasInput());
  CHECK_FALSE(star[1].HasInput());
  CHECK(star.Move(0) == Got{{1, "from one"}, {2, "from two"}});
  CHECK(star.Move(2) == Got{{0, "to two"}});
  CHECK(star.Move(1).empty());
  CHECK_FALSE(star[0].HasInput());
}

TEST_CASE("ring star has somebody called once while nobody looks") {
  Star star(2);
  CHECK(star[1].Send(0, "urgent", true));
  CHECK_FALSE(star[1].Send(0, "again", true));  // Called already.
  Bell bell(star.segments[0]->bell(0));
  bell.Leave();  // The one who was called is done.
  CHECK(star[1].Send(0, "later", true));
  bell.Enter();
  CHECK_FALSE(star[1].Send(0, "awake", true));
  CHECK(star.Move(0).size() == 4);
}

TEST_CASE("ring star moves what does not fit once there is room, and has it called for") {
  Star star(2);
  const std::string large(300'000, 'x');  // Of rings of 128 KiB.
  CHECK(star[1].Send(0, large, false));
  CHECK_FALSE(star[1].flushed());
  CHECK(star[1].queued_bytes(0) > 100'000);
  Got got;
  for (int round = 0; round < 10 && got.empty(); ++round) {
    got = star.Move(0);
    star.Move(1);
  }
  REQUIRE(got.size() == 1);
  CHECK(got[0].second == large);
  CHECK(star[1].flushed());
}

TEST_CASE("ring star hears nothing more of a member that broke the rules") {
  Star star(3);
  star.segments[1]->to_first(1).words->written.store(uint64_t{1} << 40);
  int broken = -1;
  CHECK_FALSE(star[0].Move([](int, std::string_view) {}, broken).ok());
  REQUIRE(broken == 1);
  star[0].Close(broken);
  CHECK_FALSE(star[0].HasInput());
  CHECK_FALSE(star[2].Send(0, "still here", false));
  CHECK(star.Move(0) == Got{{2, "still here"}});
}

}  // namespace muster::worker
