// Groups at random, with ranks that disagree: about the size of a group, about a member, about
// whether there is a group at all. Every call ends, a group ends as one, and what all ranks called
// in the same way is done. MUSTER_SIM_SEED replays one run.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>

#include "common/random.h"
#include "test/worker/core/log_fixture.h"

namespace muster::worker {
namespace {

struct Rank {
  std::unique_ptr<LogFollower> follower;
  std::deque<std::vector<FullRequest>> program;  // Groups.
  std::deque<Request> in_flight;
  std::deque<LogEntry> arriving;
  std::map<Ticket, size_t> waiting;        // Their groups.
  std::vector<std::vector<bool>> endings;  // By group: whether each member was done.
  Ticket next_ticket = 1;
  size_t submitted = 0;  // Groups.
};

class Groups {
 public:
  explicit Groups(uint64_t seed)
      : random_(seed),
        ranks_(1 + random_.Below(4)),
        sequencer_(static_cast<uint32_t>(ranks_.size()),
                   {1 << 20, random_.Below(2) == 0 ? 0U : 99U}) {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].follower =
          std::make_unique<LogFollower>(r, ProcessSets::OfSize(sequencer_.sets().world_size()));
    }
    for (uint64_t round = 0, rounds = 1 + random_.Below(5); round < rounds; ++round) {
      AddRound();
    }
  }

  void Run() {
    for (int step = 0; step < 500'000 && !IsIdle(); ++step) {
      Move(ranks_[random_.Below(ranks_.size())]);
    }
    REQUIRE(IsIdle());
    CHECK(sequencer_.pending_count() == 0);
    for (const Rank& rank : ranks_) {
      CHECK(rank.follower->pending_count() == 0);
      REQUIRE(rank.endings.size() == agreed_.size());
      for (size_t group = 0; group < agreed_.size(); ++group) {
        for (const bool done : rank.endings[group]) {
          CHECK(done == agreed_[group]);
        }
      }
    }
  }

  size_t done() const { return std::count(agreed_.begin(), agreed_.end(), true); }
  size_t wrong() const { return std::count(agreed_.begin(), agreed_.end(), false); }

 private:
  static std::vector<FullRequest> GroupOf(const std::string& name, uint32_t size) {
    std::vector<FullRequest> members;
    for (uint32_t i = 0; i < size; ++i) {
      members.push_back(Member(name + std::to_string(i), Sum({i + 1}), name, size, i));
    }
    return members;
  }

  /// The same group on all ranks; in a third of the cases one of them has it differently.
  void AddRound() {
    const std::string name = random_.Below(2) == 0 ? "g" : "h";
    const auto size = static_cast<uint32_t>(1 + random_.Below(4));
    const bool differs = ranks_.size() > 1 && random_.Below(3) == 0;
    const size_t odd = random_.Below(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) {
      std::vector<FullRequest> group = GroupOf(name, size);
      if (differs && r == odd) {
        FullRequest& member = group[random_.Below(size)];
        switch (random_.Below(4)) {
          case 0:
            group = GroupOf(name, size + 1 + static_cast<uint32_t>(random_.Below(2)));
            break;
          case 1:
            group = GroupOf(name, size == 1 ? 2 : size - 1);
            break;
          case 2:
            member.signature.dtype = DType::kF64;
            break;
          default:
            member.objection = "no data";
        }
      }
      for (size_t i = group.size(); i > 1; --i) {
        std::swap(group[i - 1], group[random_.Below(i)]);
      }
      ranks_[r].program.push_back(std::move(group));
    }
    agreed_.push_back(!differs);
  }

  bool IsIdle() const {
    return sequencer_.backlog().empty &&
           std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) {
             return r.program.empty() && r.in_flight.empty() && r.arriving.empty();
           });
  }

  void Move(Rank& rank) {
    switch (random_.Below(4)) {
      case 0:
        // The next group when the one before has ended: then all ranks are in the same.
        if (!rank.program.empty() && rank.waiting.empty() && IsNextFree(rank)) {
          Submit(rank);
        }
        break;
      case 1:
        if (!rank.in_flight.empty()) {
          const auto r = static_cast<uint32_t>(&rank - ranks_.data());
          MustSubmit(sequencer_, r, rank.in_flight.front());
          rank.in_flight.pop_front();
        }
        break;
      case 2:
        if (!rank.arriving.empty()) {
          const LogEntry entry = rank.arriving.front();
          rank.arriving.pop_front();
          Read(rank, entry);
        }
        break;
      default:
        for (const LogEntry& entry : sequencer_.TakeEntries()) {
          for (Rank& other : ranks_) {
            other.arriving.push_back(entry);
          }
        }
    }
  }

  /// Ranks that differ need not hear of the end at the same time, and a faster one would begin the
  /// next group under the name while members of the last are under way: as a program that catches
  /// the error and tries again does after a barrier.
  bool IsNextFree(const Rank& rank) const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& other) {
      return other.submitted > rank.submitted ||
             (other.submitted == rank.submitted && other.waiting.empty());
    });
  }

  void Submit(Rank& rank) {
    for (const FullRequest& call : rank.program.front()) {
      const Ticket ticket = rank.next_ticket++;
      const Result<uint32_t> id = rank.follower->Submit(
          ticket, call.name, call.signature, call.splits, !call.objection.empty());
      REQUIRE(id.ok());
      rank.waiting[ticket] = rank.submitted;
      rank.in_flight.push_back(id.value() == 0 ? Request(call)
                                               : Request(KnownRequest{id.value(), ""}));
    }
    ++rank.submitted;
    rank.endings.emplace_back();
    rank.program.pop_front();
  }

  static void Read(Rank& rank, const LogEntry& entry) {
    const Result<FollowStep> step = rank.follower->Apply(entry);
    INFO(step.status().message());
    REQUIRE(step.ok());
    for (const Ticket ticket : step.value().tickets) {
      rank.endings.at(rank.waiting.at(ticket)).push_back(std::holds_alternative<Execute>(entry));
      rank.waiting.erase(ticket);
    }
  }

  Random random_;
  std::vector<Rank> ranks_;
  TestSequencer sequencer_;
  std::vector<bool> agreed_;  // By group: whether all ranks made the same of it.
};

}  // namespace

TEST_CASE("group is done on all ranks or on none, and every call of it ends") {
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    Groups(std::strtoull(seed, nullptr, 10)).Run();
    return;
  }
  size_t done = 0;
  size_t wrong = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed);
    Groups groups(seed);
    groups.Run();
    done += groups.done();
    wrong += groups.wrong();
  }
  CHECK(done > 500);
  CHECK(wrong > 500);
}

}  // namespace muster::worker
