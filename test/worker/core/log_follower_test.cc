#include "worker/core/log_follower.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>

#include "common/random.h"
#include "worker/core/sequencer.h"

namespace muster::worker {
namespace {

FullRequest Named(std::string name, int64_t size = 4) {
  FullRequest request;
  request.name = std::move(name);
  request.signature.kind = OpKind::kAllreduce;
  request.signature.shape = {size};
  request.reusable = true;
  return request;
}

Request MustSubmit(LogFollower& follower, Ticket ticket, FullRequest request) {
  Result<Request> result = follower.Submit(ticket, std::move(request));
  REQUIRE(result.ok());
  return result.value();
}

std::optional<Ticket> MustApply(LogFollower& follower, const LogEntry& entry) {
  const auto result = follower.Apply(entry);
  INFO(result.status().message());
  REQUIRE(result.ok());
  return result.value();
}

}  // namespace

TEST_CASE("log follower spells a call out once and uses the id after") {
  LogFollower follower;
  CHECK(MustSubmit(follower, 1, Named("w")) == Request(Named("w")));
  CHECK(MustApply(follower, Execute{{5, "w"}, {}}) == Ticket{1});
  CHECK(MustSubmit(follower, 2, Named("w")) == Request(KnownRequest{5}));
  CHECK(MustApply(follower, Execute{{5, ""}, {}}) == Ticket{2});
  CHECK(follower.pending_count() == 0);
}

TEST_CASE("log follower spells a call out again when its signature has changed") {
  LogFollower follower;
  MustSubmit(follower, 1, Named("w", 4));
  MustApply(follower, Execute{{5, "w"}, {}});
  CHECK(MustSubmit(follower, 2, Named("w", 6)) == Request(Named("w", 6)));
  CHECK(MustApply(follower, Execute{{5, ""}, {}}) == Ticket{2});
  CHECK(MustSubmit(follower, 3, Named("w", 6)) == Request(KnownRequest{5}));
}

TEST_CASE("log follower uses no id for a name that got none") {
  LogFollower follower;
  MustSubmit(follower, 1, Named("w"));
  MustApply(follower, Execute{{0, "w"}, {}});
  CHECK(MustSubmit(follower, 2, Named("w")) == Request(Named("w")));
}

TEST_CASE("log follower never hides an objection behind an id") {
  LogFollower follower;
  MustSubmit(follower, 1, Named("w"));
  MustApply(follower, Execute{{5, "w"}, {}});
  FullRequest wrong = Named("w");
  wrong.objection = "no data";
  CHECK(MustSubmit(follower, 2, wrong) == Request(wrong));
}

TEST_CASE("log follower refuses a second call under a pending name") {
  LogFollower follower;
  MustSubmit(follower, 1, Named("w"));
  CHECK_FALSE(follower.Submit(2, Named("w")).ok());
  CHECK(follower.pending_count() == 1);
}

TEST_CASE("log follower drops the id of a rejected call") {
  LogFollower follower;
  MustSubmit(follower, 1, Named("w"));
  MustApply(follower, Execute{{5, "w"}, {}});
  MustSubmit(follower, 2, Named("w"));
  CHECK(MustApply(follower, Rejected{{0, "w"}, "no"}) == Ticket{2});
  CHECK(MustSubmit(follower, 3, Named("w")) == Request(Named("w")));
}

TEST_CASE("log follower ignores failures and finishes that are not about its calls") {
  LogFollower follower;
  MustSubmit(follower, 1, Named("w"));
  CHECK_FALSE(MustApply(follower, Unserved{{0, "other"}, "gone"}).has_value());
  CHECK_FALSE(MustApply(follower, Unserved{{9, ""}, "gone"}).has_value());
  CHECK_FALSE(MustApply(follower, MemberFinished{3}).has_value());
  CHECK(MustApply(follower, Unserved{{0, "w"}, "gone"}) == Ticket{1});
}

TEST_CASE("log follower refuses an entry for a call that this rank never made") {
  LogFollower follower;
  CHECK_FALSE(follower.Apply(Execute{{0, "w"}, {}}).ok());
  CHECK_FALSE(follower.Apply(Execute{{4, ""}, {}}).ok());
  CHECK_FALSE(follower.Apply(Agreed{{0, "v"}, true}).ok());
  CHECK_FALSE(follower.Apply(BarrierPassed{{0, "b"}}).ok());
}

// ---------------------------------------------------------------- the whole log, at random

namespace {

/// One rank: submits its calls in an order of its own, a few ahead of what has completed, and
/// writes down in which order the log completes them.
struct Rank {
  LogFollower follower;
  std::deque<FullRequest> to_submit;
  std::map<Ticket, std::string> names;
  Ticket next_ticket = 1;
  std::deque<Request> in_flight;  // To the coordinator, in order.
  std::deque<LogEntry> arriving;  // From the coordinator, in order.
  std::vector<std::string> completed;
};

FullRequest RandomCall(Random& random, uint64_t round, uint64_t index) {
  FullRequest call = Named("t" + std::to_string(index), 1 + static_cast<int64_t>(random.Below(2)));
  switch (random.Below(4)) {
    case 0:
      call.signature = {};
      call.signature.kind = OpKind::kBarrier;
      break;
    case 1:
      call.signature = {};
      call.signature.kind = OpKind::kAgreement;
      call.name += "." + std::to_string(round);
      call.reusable = false;
      break;
    case 2:
      call.signature.kind = OpKind::kAllgather;
      break;
    default:
      break;
  }
  return call;
}

std::string Completion(const LogEntry& entry, const std::string& name) {
  return std::to_string(entry.index()) + ":" + name;
}

void Step(Random& random, Sequencer& sequencer, std::vector<Rank>& ranks) {
  const auto r = static_cast<uint32_t>(random.Below(ranks.size()));
  Rank& rank = ranks[r];
  switch (random.Below(3)) {
    case 0:
      if (!rank.to_submit.empty()) {
        const FullRequest call = rank.to_submit.front();
        Result<Request> request = rank.follower.Submit(rank.next_ticket, call);
        if (!request.ok()) {
          return;  // The name is pending from the round before: this rank waits.
        }
        rank.to_submit.pop_front();
        rank.names[rank.next_ticket++] = call.name;
        rank.in_flight.push_back(std::move(request).value());
      }
      return;
    case 1:
      if (!rank.in_flight.empty()) {
        REQUIRE(sequencer.Submit(r, rank.in_flight.front(), Instant()).ok());
        rank.in_flight.pop_front();
        for (const LogEntry& entry : sequencer.TakeEntries()) {
          for (Rank& other : ranks) {
            other.arriving.push_back(entry);
          }
        }
      }
      return;
    default:
      if (!rank.arriving.empty()) {
        const LogEntry entry = rank.arriving.front();
        rank.arriving.pop_front();
        const std::optional<Ticket> ticket = MustApply(rank.follower, entry);
        REQUIRE(ticket.has_value());
        rank.completed.push_back(Completion(entry, rank.names.at(*ticket)));
      }
  }
}

bool Idle(const std::vector<Rank>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [](const Rank& rank) {
    return rank.to_submit.empty() && rank.in_flight.empty() && rank.arriving.empty();
  });
}

/// Submits rounds of the same calls on all ranks, each rank in an order of its own.
void RunLog(uint64_t seed) {
  Random random(seed);
  std::vector<Rank> ranks(1 + random.Below(6));
  const uint64_t rounds = 1 + random.Below(6);
  const uint64_t calls = 1 + random.Below(8);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<FullRequest> all;
    for (uint64_t i = 0; i < calls; ++i) {
      all.push_back(RandomCall(random, round, i));
    }
    for (Rank& rank : ranks) {
      for (size_t i = all.size(); i > 1; --i) {
        std::swap(all[i - 1], all[random.Below(i)]);
      }
      rank.to_submit.insert(rank.to_submit.end(), all.begin(), all.end());
    }
  }
  Sequencer sequencer(static_cast<uint32_t>(ranks.size()));
  for (int step = 0; step < 1'000'000 && !Idle(ranks); ++step) {
    Step(random, sequencer, ranks);
  }
  REQUIRE(Idle(ranks));
  CHECK(sequencer.pending_count() == 0);
  for (const Rank& rank : ranks) {
    CHECK(rank.follower.pending_count() == 0);
    CHECK(rank.completed.size() == rounds * calls);
    CHECK(rank.completed == ranks.front().completed);
  }
}

}  // namespace

TEST_CASE("log is the same on every rank, whatever the order of submission") {
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    RunLog(std::strtoull(seed, nullptr, 10));
    return;
  }
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed);
    RunLog(seed);
  }
}

}  // namespace muster::worker
