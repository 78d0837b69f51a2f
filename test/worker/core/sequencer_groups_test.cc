// Groups in the sequencer: done together or not at all.

#include <catch2/catch.hpp>

#include "common/random.h"
#include "test/worker/core/log_fixture.h"

namespace muster::worker {
namespace {

/// The members of a group of allreduces, named like it: "g0", "g1", ...
std::vector<FullRequest> GroupOf(const std::string& name, uint32_t size, int32_t set = 0) {
  std::vector<FullRequest> members;
  for (uint32_t i = 0; i < size; ++i) {
    members.push_back(Member(name + std::to_string(i), Sum({i + 1}, set), name, size, i));
  }
  return members;
}

void SubmitGroup(Sequencer& sequencer, uint32_t rank, const std::vector<FullRequest>& members) {
  for (const FullRequest& member : members) {
    MustSubmit(sequencer, rank, member);
  }
}

}  // namespace

TEST_CASE("sequencer holds a group back until all ranks have submitted all of it") {
  TestSequencer sequencer(2);
  const auto group = GroupOf("g", 3);
  SubmitGroup(sequencer, 0, group);
  MustSubmit(sequencer, 1, group[2]);
  MustSubmit(sequencer, 1, group[0]);
  CHECK(sequencer.backlog().empty);
  CHECK(sequencer.pending_count() == 3);
  MustSubmit(sequencer, 1, group[1]);
  CHECK(Story(sequencer.TakeEntries()) == "run(g0 g1 g2)");
  CHECK(sequencer.pending_count() == 0);
}

TEST_CASE("sequencer does a group again and again, by name and by id") {
  TestSequencer sequencer(2);
  const auto group = GroupOf("g", 2);
  SubmitGroup(sequencer, 0, group);
  SubmitGroup(sequencer, 1, group);
  CHECK(Story(sequencer.TakeEntries()) == "run(g0 g1)");
  for (int round = 0; round < 3; ++round) {
    AllSubmit(sequencer, {0, 1}, KnownRequest{2});
    CHECK(sequencer.TakeEntries().empty());
    MustSubmit(sequencer, 0, KnownRequest{1});
    MustSubmit(sequencer, 1, group[0]);
    CHECK(Story(sequencer.TakeEntries()) == "run(#1 #2)");
  }
}

TEST_CASE("sequencer fuses a group with nothing else") {
  TestSequencer sequencer(1);
  MustSubmit(sequencer, 0, Named("a", Sum({1})));
  SubmitGroup(sequencer, 0, GroupOf("g", 2));
  MustSubmit(sequencer, 0, Named("b", Sum({1})));
  SubmitGroup(sequencer, 0, GroupOf("h", 2));
  CHECK(Story(sequencer.TakeEntries()) == "run(a b) run(g0 g1) run(h0 h1)");
}

TEST_CASE("sequencer does the types of a mixed group next to each other") {
  TestSequencer sequencer(1);
  Signature gather = Tensor(OpKind::kAllgather, {2});
  MustSubmit(sequencer, 0, Named("a", Tensor(OpKind::kAllreduce, {1}, DType::kI64)));
  MustSubmit(sequencer, 0, Member("g0", Sum({1}), "g", 4, 0));
  MustSubmit(sequencer, 0, Member("g1", Tensor(OpKind::kAllreduce, {1}, DType::kI64), "g", 4, 1));
  MustSubmit(sequencer, 0, Member("g2", Sum({1}), "g", 4, 2));
  MustSubmit(sequencer, 0, Member("g3", gather, "g", 4, 3));
  CHECK(Story(sequencer.TakeEntries()) == "run(a) run(g0 g2) run(g1) run(g3)");
}

TEST_CASE("sequencer keeps two groups in flight apart, and one name on two sets") {
  ProcessSets sets = ProcessSets::OfSize(3);
  sets.Add({0, 1});
  TestSequencer sequencer(sets);
  const auto g = GroupOf("g", 2);
  const auto h = GroupOf("h", 3);
  const auto on_set = GroupOf("g", 2, 1);
  for (const uint32_t rank : {0U, 1U}) {
    for (const auto* group : {&g, &h, &on_set}) {
      MustSubmit(sequencer, rank, group->at(1));
    }
  }
  for (const uint32_t rank : {0U, 1U}) {
    MustSubmit(sequencer, rank, on_set[0]);
  }
  CHECK(Story(sequencer.TakeEntries()) == "run(g0@1 g1@1)");
  SubmitGroup(sequencer, 2, h);
  SubmitGroup(sequencer, 2, g);
  AllSubmit(sequencer, {0, 1}, g[0]);
  CHECK(Story(sequencer.TakeEntries()) == "run(g0 g1)");
  AllSubmit(sequencer, {1, 0}, h[0]);
  AllSubmit(sequencer, {0, 1}, h[2]);
  CHECK(Story(sequencer.TakeEntries()) == "run(h0 h1 h2)");
}

TEST_CASE("sequencer rejects all of a group if one member is wrong") {
  TestSequencer sequencer(2);
  const auto group = GroupOf("g", 3);
  SubmitGroup(sequencer, 0, group);
  MustSubmit(sequencer, 1, group[0]);  // Complete, and held.
  CHECK(sequencer.TakeEntries().empty());
  FullRequest wrong = group[1];
  wrong.signature.dtype = DType::kF64;
  MustSubmit(sequencer, 1, wrong);
  const auto entries = sequencer.TakeEntries();
  CHECK(Story(entries) == "no(g0) no(g1)");
  Contains(std::get<Rejected>(entries[0]).message,
           "'g0' is in group 'g' with 'g1', which is wrong: the calls of 'g1' differ: dtype f32 on "
           "rank 0; dtype f64 on rank 1");
  Contains(std::get<Rejected>(entries[1]).message, "the calls of 'g1' differ");
  MustSubmit(sequencer, 1, group[2]);  // What comes later shares the fate.
  const auto late = TakeOnly<Rejected>(sequencer);
  CHECK(late.key.name == "g2");
  Contains(late.message, "'g2' is in group 'g' with 'g1', which is wrong");
  CHECK(sequencer.pending_count() == 0);
  // The next group of that name begins with a clean sheet.
  SubmitGroup(sequencer, 1, group);
  SubmitGroup(sequencer, 0, group);
  CHECK(Story(sequencer.TakeEntries()) == "run(g0 g1 g2)");
}

TEST_CASE("sequencer rejects a group for a member's own objection") {
  TestSequencer sequencer(2);
  auto group = GroupOf("g", 2);
  SubmitGroup(sequencer, 1, group);
  group[0].objection = "no data";
  SubmitGroup(sequencer, 0, group);
  const auto entries = sequencer.TakeEntries();
  CHECK(Story(entries) == "no(g0) no(g1)");
  Contains(std::get<Rejected>(entries[1]).message, "no data (on rank 0)");
}

TEST_CASE("sequencer rejects a group of different sizes on every rank that waits for it") {
  for (const bool larger_first : {false, true}) {
    TestSequencer sequencer(2);
    const auto two = GroupOf("g", 2);
    const auto three = GroupOf("g", 3);
    SubmitGroup(sequencer, larger_first ? 0 : 1, larger_first ? three : two);
    SubmitGroup(sequencer, larger_first ? 1 : 0, larger_first ? two : three);
    const auto entries = sequencer.TakeEntries();
    // The third member, which one rank never submits, does not wait for it.
    CHECK(entries.size() == 3);
    for (const LogEntry& entry : entries) {
      CHECK(std::holds_alternative<Rejected>(entry));
    }
    CHECK(sequencer.pending_count() == 0);
    SubmitGroup(sequencer, 0, two);
    SubmitGroup(sequencer, 1, two);
    CHECK(Story(sequencer.TakeEntries()) == "run(g0 g1)");
  }
}

TEST_CASE("sequencer rejects what only some ranks have in their group on those alone") {
  // All know the three members by id; then rank 0 calls a group of one under the same name, and,
  // with the answers to the others under way, the call that it knows as number 2.
  TestSequencer sequencer(2);
  LogFollower followers[] = {LogFollower(0, ProcessSets::OfSize(2)),
                             LogFollower(1, ProcessSets::OfSize(2))};
  Ticket ticket = 0;
  const auto call = [&](uint32_t rank, const FullRequest& request) {
    const Result<uint32_t> id = followers[rank].Submit(++ticket, request.name, request.signature);
    REQUIRE(id.ok());
    MustSubmit(sequencer,
               rank,
               id.value() == 0 ? Request(request) : Request(KnownRequest{id.value(), ""}));
  };
  const auto follow = [&] {
    const auto entries = sequencer.TakeEntries();
    for (LogFollower& follower : followers) {
      for (const LogEntry& entry : entries) {
        const auto step = follower.Apply(entry);
        INFO(step.status().message());
        REQUIRE(step.ok());
      }
    }
    return Story(entries);
  };
  const auto two = GroupOf("g", 2);
  for (const uint32_t rank : {0U, 1U}) {
    call(rank, two[0]);
    call(rank, two[1]);
  }
  CHECK(follow() == "run(g0 g1)");
  call(1, two[0]);
  call(1, two[1]);
  call(0, GroupOf("g", 1)[0]);
  call(0, two[1]);  // Before it has heard.
  CHECK(follow() == "no(g0) no(g1)");
  CHECK(followers[0].pending_count() == 1);
  CHECK(followers[1].pending_count() == 0);
  CHECK(sequencer.pending_count() == 1);
  call(1, two[1]);
  call(0, two[0]);
  call(1, two[0]);
  follow();
  CHECK(sequencer.pending_count() == 0);
  CHECK(followers[0].pending_count() == 0);
  CHECK(followers[1].pending_count() == 0);
}

TEST_CASE("sequencer names the difference in the group like any other") {
  TestSequencer sequencer(2);
  MustSubmit(sequencer, 0, Member("w", Sum({4}), "g", 1, 0));
  MustSubmit(sequencer, 1, Named("w", Sum({4})));
  Contains(TakeOnly<Rejected>(sequencer).message,
           "member 0 of 1 of group 'g' on rank 0; no group on rank 1");
  MustSubmit(sequencer, 0, Member("v", Sum({4}), "g", 1, 0));
  MustSubmit(sequencer, 1, Member("v", Sum({4}), "h", 1, 0));
  Contains(TakeOnly<Rejected>(sequencer).message, "of group 'g' on rank 0; member 0 of 1 of group");
  SubmitGroup(sequencer, 0, GroupOf("g", 1));
  SubmitGroup(sequencer, 1, GroupOf("g", 1));
  CHECK(Story(sequencer.TakeEntries()) == "run(g0)");
}

TEST_CASE("sequencer rejects a group that contradicts itself") {
  TestSequencer twice(1);
  MustSubmit(twice, 0, Member("a", Sum({4}), "g", 3, 1));
  MustSubmit(twice, 0, Member("b", Sum({4}), "g", 3, 1));
  MustSubmit(twice, 0, Member("c", Sum({4}), "g", 3, 2));
  const auto entries = twice.TakeEntries();
  CHECK(Story(entries) == "no(a) no(b) no(c)");
  Contains(std::get<Rejected>(entries[1]).message, "two members with the number 1");
  TestSequencer sizes(1);
  MustSubmit(sizes, 0, Member("a", Sum({4}), "g", 3, 0));
  MustSubmit(sizes, 0, Member("b", Sum({4}), "g", 2, 1));
  CHECK(Story(sizes.TakeEntries()) == "no(a) no(b)");
  TestSequencer outside(1);
  MustSubmit(outside, 0, Member("a", Sum({4}), "g", 2, 2));
  Contains(TakeOnly<Rejected>(outside).message, "member 2 of a group of 2");
  TestSequencer empty(1);
  MustSubmit(empty, 0, Member("a", Sum({4}), "g", 0, 0));
  Contains(TakeOnly<Rejected>(empty).message, "member 0 of a group of 0");
}

TEST_CASE("sequencer takes no member of a held group a second time") {
  TestSequencer sequencer(1);
  MustSubmit(sequencer, 0, Member("a", Sum({4}), "g", 2, 0));
  CHECK_FALSE(sequencer.Submit(0, Member("a", Sum({4}), "g", 2, 0), At(0)).ok());
}

TEST_CASE("sequencer drops a held group when one of its ranks shuts down") {
  TestSequencer sequencer(2);
  const auto group = GroupOf("g", 2);
  AllSubmit(sequencer, {0, 1}, group[0]);
  MustSubmit(sequencer, 0, group[1]);
  sequencer.Finish(1);
  CHECK(Story(sequencer.TakeEntries()) == "finished(1) unserved(g0) unserved(g1)");
  CHECK(sequencer.pending_count() == 0);
}

TEST_CASE("sequencer reports the members for which a group waits") {
  TestSequencer sequencer(3);
  const auto group = GroupOf("g", 3);
  AllSubmit(sequencer, {0, 1, 2}, group[0]);
  MustSubmit(sequencer, 1, group[1]);
  StallReport report = sequencer.CheckStalls(At(60), seconds(60), seconds(90));
  REQUIRE(report.warnings.size() == 2);
  CHECK(report.warnings[0].name == "g1");
  CHECK(report.warnings[0].group == "g");
  CHECK(report.warnings[0].missing == std::vector<uint32_t>{0, 2});
  CHECK(report.warnings[1].name == "member 2");
  CHECK(report.warnings[1].group == "g");
  CHECK(report.warnings[1].missing == std::vector<uint32_t>{0, 1, 2});
  CHECK(
      ToString(report.warnings[1]) ==
      "'member 2', a member of group 'g', has been waiting for 60 s: ranks 0-2 did not submit it");
  CHECK(sequencer.CheckStalls(At(80), seconds(60), seconds(90)).warnings.empty());
  CHECK(sequencer.CheckStalls(At(90), seconds(60), seconds(90)).lost.size() == 2);
}

TEST_CASE("sequencer reports a missing member by the name that it had before") {
  TestSequencer sequencer(2);
  const auto group = GroupOf("g", 2);
  SubmitGroup(sequencer, 0, group);
  SubmitGroup(sequencer, 1, group);
  CHECK(Story(sequencer.TakeEntries()) == "run(g0 g1)");
  AllSubmit(sequencer, {0, 1}, KnownRequest{2});
  const StallReport report = sequencer.CheckStalls(At(60), seconds(60), seconds(0));
  REQUIRE(report.warnings.size() == 1);
  CHECK(report.warnings[0].name == "g0");
  AllSubmit(sequencer, {0, 1}, KnownRequest{1});
  CHECK(Story(sequencer.TakeEntries()) == "run(#1 #2)");
  // The next round may stall again, and is reported again.
  AllSubmit(sequencer, {0, 1}, KnownRequest{2});
  CHECK(sequencer.CheckStalls(At(200), seconds(60), seconds(0)).warnings.size() == 1);
}

TEST_CASE("sequencer reports no more than some members of a huge group") {
  TestSequencer sequencer(1);
  MustSubmit(sequencer, 0, Member("a", Sum({4}), "g", UINT32_MAX, 7));
  const StallReport report = sequencer.CheckStalls(At(60), seconds(60), seconds(0));
  CHECK(report.warnings.size() == 8);
  CHECK(report.warnings[7].name == "member 8");
}

TEST_CASE("sequencer keeps nothing of groups that are done and have no ids") {
  TestSequencer sequencer(2, {1 << 20, 0});
  for (int round = 0; round < 200; ++round) {
    const auto group = GroupOf("g" + std::to_string(round) + ".", 2);
    SubmitGroup(sequencer, 1, group);
    SubmitGroup(sequencer, 0, group);
    CHECK(sequencer.TakeEntries().size() == 1);
    CHECK(sequencer.kept_groups() == 0);
  }
}

TEST_CASE("sequencer completes groups in any order of requests") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto size = static_cast<uint32_t>(1 + random.Below(4));
    TestSequencer sequencer(size);
    std::vector<std::pair<uint32_t, FullRequest>> requests;
    size_t count = 0;
    for (uint64_t g = 0; g < 3; ++g) {
      const auto group =
          GroupOf("g" + std::to_string(g) + ".", static_cast<uint32_t>(1 + random.Below(4)));
      count += group.size();
      for (uint32_t rank = 0; rank < size; ++rank) {
        for (const FullRequest& member : group) {
          requests.emplace_back(rank, member);
        }
      }
    }
    for (size_t i = requests.size(); i > 1; --i) {
      std::swap(requests[i - 1], requests[random.Below(i)]);
    }
    size_t executed = 0;
    for (const auto& [rank, request] : requests) {
      MustSubmit(sequencer, rank, request);
      for (const LogEntry& entry : sequencer.TakeEntries()) {
        const auto& items = std::get<Execute>(entry).items;
        executed += items.size();
        // Each group whole, in one, and in order.
        for (size_t i = 0; i < items.size(); ++i) {
          REQUIRE(items[i].key.name.substr(0, 3) == items[0].key.name.substr(0, 3));
          REQUIRE(items[i].key.name.substr(3) == std::to_string(i));
        }
      }
    }
    REQUIRE(executed == count);
    REQUIRE(sequencer.pending_count() == 0);
  }
}

}  // namespace muster::worker
