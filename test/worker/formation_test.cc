#include "worker/formation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "test/worker/links_fixture.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, several files.

namespace {

/// Some members of one generation, all on one loop.
struct Crowd : Bench {
  struct Member {
    std::string address;
    std::unique_ptr<LinkAcceptor> acceptor;
    std::shared_ptr<Segment> segment;
    std::vector<SetRecord> sets;
    int32_t next_set_id = 1;
    std::unique_ptr<Formation> formation;
    std::optional<FormedWorld> world;
    std::vector<uint32_t> suspects;
    std::string evidence;
  };
  std::vector<Member> members;
  std::vector<uint32_t> hosts;
  std::vector<std::vector<int32_t>> first_sets;
  bool segments_are_late = false;  // The test calls SetSegment.

  explicit Crowd(uint32_t size, std::optional<size_t> guests_max = std::nullopt)
      : members(size), hosts(size, 0) {
    for (Member& member : members) {
      member.acceptor = NewAcceptor(member.address, guests_max);
    }
  }
  void Form(uint32_t rank, uint64_t generation = 1, const std::string& key = "key") {
    Member& member = members[rank];
    FormationPlan plan;
    plan.generation = {generation};
    plan.rank = rank;
    plan.size = static_cast<uint32_t>(members.size());
    plan.link_key = key;
    plan.coordinator = {members[0].address};
    plan.own_addresses = {member.address};
    Formation::Callbacks callbacks;
    plan.incarnation = 100 + rank;
    plan.hosts = hosts;
    plan.sets = member.sets;
    plan.next_set_id = member.next_set_id;
    plan.first_sets = first_sets;
    callbacks.on_formed = [&member](FormedWorld world) { member.world = std::move(world); };
    callbacks.on_broken = [&member](uint32_t suspect, const std::string& evidence) {
      member.suspects.push_back(suspect);
      member.evidence = evidence;
    };
    member.formation =
        std::make_unique<Formation>(loop, *member.acceptor, std::move(plan), std::move(callbacks));
    member.formation->Start();
    if (!segments_are_late) {
      member.formation->SetSegment(member.segment);
    }
  }
  bool AllFormed() const {
    return std::all_of(
        members.begin(), members.end(), [](const Member& m) { return m.world.has_value(); });
  }
};

}  // namespace

TEST_CASE("formation builds a star of control links and a mesh of data links") {
  const uint32_t size = GENERATE(1u, 2u, 5u, 16u);
  Crowd crowd(size);
  for (uint32_t i = 0; i < size; ++i) {
    crowd.Form(size - 1 - i);
  }
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  for (uint32_t rank = 0; rank < size; ++rank) {
    const auto& member = crowd.members[rank];
    CHECK(member.suspects.empty());
    for (uint32_t peer = 0; peer < size; ++peer) {
      CHECK(member.world->data[peer].valid() == (peer != rank));
      CHECK((member.world->control[peer] != nullptr) == (peer != rank && (rank == 0 || peer == 0)));
    }
  }
}

namespace {

std::shared_ptr<Segment> NewSegment(int members) {
  UniqueFd memory(::memfd_create("segment", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(),
                      static_cast<off_t>(SegmentBytes(static_cast<size_t>(members)))) == 0);
  return Segment::Map(memory, members).value();
}

}  // namespace

TEST_CASE("formation of a world that shares memory builds no data links") {
  Crowd crowd(4);
  for (auto& member : crowd.members) {
    member.segment = NewSegment(4);
  }
  const bool all = GENERATE(true, false);
  if (!all) {
    crowd.members[2].segment = nullptr;  // One without is enough.
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    crowd.Form(rank);
  }
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const FormedWorld& world = *crowd.members[rank].world;
    CHECK(world.backend == (all ? BackendKind::kShm : BackendKind::kGloo));
    CHECK((world.segment != nullptr) == all);
    CHECK(world.data[(rank + 1) % 4].valid() == !all);
    CHECK(world.hosts == std::vector<uint32_t>{0, 0, 0, 0});
    CHECK(crowd.members[rank].suspects.empty());
  }
}

TEST_CASE("formation waits for each member to know whether it has memory in common") {
  Crowd crowd(2);
  crowd.segments_are_late = true;
  crowd.Form(0);
  crowd.Form(1);
  const uint32_t last = GENERATE(0u, 1u);
  crowd.members[1 - last].formation->SetSegment(NewSegment(2));
  CHECK_FALSE(crowd.RunUntil([&] { return crowd.AllFormed(); }, std::chrono::milliseconds(100)));
  crowd.members[last].formation->SetSegment(NewSegment(2));
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  CHECK(crowd.members[0].world->backend == BackendKind::kShm);
}

TEST_CASE("formation over several hosts needs no memory where a member is alone") {
  Crowd crowd(3);
  crowd.hosts = {0, 1, 1};
  crowd.members[1].segment = NewSegment(2);
  crowd.members[2].segment = NewSegment(2);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    crowd.Form(rank);
  }
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    CHECK(crowd.members[rank].world->backend == BackendKind::kHierarchical);
    CHECK(crowd.members[rank].world->data[(rank + 1) % 3].valid());
    CHECK((crowd.members[rank].world->segment != nullptr) == (rank > 0));
  }
}

TEST_CASE("formation gives all members the process sets of whoever has seen most of the log") {
  Crowd crowd(3);
  // Incarnations are 100 + rank. Rank 2 has seen one set more than the others; 999 is gone.
  crowd.members[0].sets = crowd.members[1].sets = {{1, {100, 101}}};
  crowd.members[2].sets = {{1, {100, 101}}, {2, {101, 999}}};
  crowd.members[0].next_set_id = crowd.members[1].next_set_id = 2;
  crowd.members[2].next_set_id = 3;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    crowd.Form(rank);
  }
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  for (const auto& member : crowd.members) {
    const ProcessSets& sets = member.world->sets;
    REQUIRE(sets.Find(1) != nullptr);
    CHECK(sets.Find(1)->ranks == std::vector<int32_t>{0, 1});
    REQUIRE(sets.Find(2) != nullptr);
    CHECK(sets.Find(2)->broken());
    CHECK(sets.next_id() == 3);
  }
}

TEST_CASE("formation makes the first world's process sets as rank 0 names them") {
  Crowd crowd(3);
  crowd.first_sets = {{0, 2}, {1, 7}};  // The second is none: no rank 7.
  for (uint32_t rank = 0; rank < 3; ++rank) {
    crowd.Form(rank);
  }
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  for (const auto& member : crowd.members) {
    CHECK(member.world->sets.all().size() == 2);
    CHECK(member.world->sets.Find(1)->ranks == std::vector<int32_t>{0, 2});
  }
}

TEST_CASE("formation succeeds though more members come at once than the acceptor keeps as guests") {
  Crowd crowd(24, 4);
  for (uint32_t rank = 1; rank < 24; ++rank) {
    crowd.Form(rank);
  }
  // Those who have come first are parked, and have to go for the others, and come again.
  CHECK_FALSE(crowd.RunUntil([] { return false; }, std::chrono::milliseconds(50)));
  crowd.Form(0);
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
  for (const auto& member : crowd.members) {
    CHECK(member.suspects.empty());
  }
}

TEST_CASE("formation waits for the last member and suspects nobody who is only late") {
  Crowd crowd(3);
  crowd.Form(1);
  crowd.Form(2);
  CHECK_FALSE(crowd.RunUntil([&] { return crowd.AllFormed(); }, std::chrono::milliseconds(1300)));
  CHECK(crowd.members[1].suspects.empty());
  crowd.Form(0);
  CHECK(crowd.RunUntil([&] { return crowd.AllFormed(); }));
}

TEST_CASE("formation suspects a member that has died, and gives no verdict") {
  Crowd crowd(3);
  crowd.members[1].acceptor.reset();  // Its port is closed.
  crowd.Form(0);
  crowd.Form(2);
  // Without rank 1 there is no table, so rank 2 cannot even try; rank 0 waits for orders.
  CHECK_FALSE(crowd.RunUntil([&] { return crowd.AllFormed(); }, std::chrono::milliseconds(100)));
  crowd.members[0].formation.reset();
  crowd.members[0].acceptor.reset();
  crowd.members[2].suspects.clear();
  crowd.Form(2, 2);
  REQUIRE(crowd.RunUntil([&] { return !crowd.members[2].suspects.empty(); }));
  CHECK(crowd.members[2].suspects.front() == 0);
}

TEST_CASE("formation is dropped where it stands by a newer one") {
  Crowd crowd(4);
  for (uint64_t generation = 1; generation <= 10; ++generation) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (generation == 10 || rank != generation % 4) {
        crowd.members[rank].world.reset();
        crowd.Form(rank, generation, "key" + std::to_string(generation));
      }
    }
  }
  REQUIRE(crowd.RunUntil([&] { return crowd.AllFormed(); }));
}

TEST_CASE("formation does not look at its own loopback for a peer that has other addresses") {
  Bench bench;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) { FAIL("a stranger was asked"); });
  std::string own_address;
  const auto acceptor = bench.NewAcceptor(own_address);
  FormationPlan plan;
  plan.generation = {1};
  plan.rank = 1;
  plan.size = 2;
  plan.link_key = "key";
  plan.coordinator = {bench.address, "198.51.100.1:9"};  // Nobody's: RFC 5737.
  plan.own_addresses = {own_address};
  plan.hosts = {0, 0};
  Formation formation(bench.loop,
                      *acceptor,
                      std::move(plan),
                      {[](FormedWorld) {}, [](uint32_t, const std::string&) {}});
  formation.Start();
  CHECK_FALSE(bench.RunUntil([] { return false; }, std::chrono::milliseconds(100)));
}

TEST_CASE("formation names both ranks, the address and the reason of a peer that is gone") {
  Crowd crowd(2);
  crowd.members[0].acceptor.reset();
  crowd.Form(1);
  REQUIRE(crowd.RunUntil([&] { return !crowd.members[1].evidence.empty(); }));
  CHECK_THAT(crowd.members[1].evidence,
             Catch::StartsWith("rank 1 has no control link to rank 0 after 0.") &&
                 Catch::EndsWith(crowd.members[0].address + ": Connection refused"));
}

}  // namespace muster::worker
