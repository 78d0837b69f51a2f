// The whole log at random: 1..8 ranks run one program of every kind of operation, each in an order
// of its own and with mistakes of its own, over links that delay; sets come and go, ranks join
// early, some shut down in the middle. Each entry is judged when it is taken (log_judge.h), and
// what the ranks have seen at the end. MUSTER_SIM_SEED replays one run.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <set>

#include "common/random.h"
#include "test/worker/core/log_fixture.h"
#include "test/worker/core/log_judge.h"

namespace muster::worker {
namespace {

/// Calls that a rank makes at once; several are a group.
struct Step {
  std::vector<FullRequest> calls;
  size_t alias = 0;  // Of the set: its place in the program. 0: all ranks.
};

struct Waiting {
  FullRequest call;
  size_t step = 0;
};

/// The calls that a rank has handed over, as it made them. Empty call: the Bye behind them.
struct Message {
  Request request;
  std::optional<FullRequest> call;
};

struct Rank {
  std::unique_ptr<LogFollower> follower;
  std::deque<Step> program;
  size_t bye_at = 0;  // So many steps before the end of the program it stops.
  bool has_left = false;
  bool has_finished = false;      // It has read its own MemberFinished.
  std::deque<Message> in_flight;  // To the coordinator.
  std::deque<LogEntry> arriving;  // From the coordinator.
  std::map<Ticket, Waiting> waiting;
  Ticket next_ticket = 1;
  size_t next_step = 0;
  std::map<size_t, int32_t> sets;               // Ids by alias; -1: there is none.
  std::map<size_t, std::set<size_t>> endings;   // By step: the kinds of entries that ended it.
  std::vector<std::pair<size_t, size_t>> seen;  // What was executed: entry, item.
  size_t entries = 0;                           // Read so far.
};

// ---------------------------------------------------------------- the program

/// Writes what all ranks do, and each rank's version of it.
class Program {
 public:
  Program(Random& random, uint32_t size, bool some_stop)
      : random_(random), size_(size), some_stop_(some_stop), makes_mistakes_(random.Below(2) == 0) {
    sets_[0] = {};
    for (uint32_t rank = 0; rank < size; ++rank) {
      sets_[0].push_back(static_cast<int32_t>(rank));
    }
  }

  void AddRound(std::vector<Rank>& ranks) {
    switch (random_.Below(6)) {
      case 0:
      case 3:
        AddSetStep(ranks);
        break;
      case 1:
      case 2:
        RemoveSetStep(ranks);
        break;
      default:
        break;
    }
    const bool joins = random_.Below(4) == 0;
    std::vector<Step> steps;
    for (uint64_t i = 0, count = 1 + random_.Below(8); i < count; ++i) {
      steps.push_back(NewStep("t" + std::to_string(i), joins));
    }
    for (uint32_t rank = 0; rank < size_; ++rank) {
      AppendShuffled(ranks[rank], rank, steps, joins);
    }
  }

 private:
  std::vector<int32_t> RandomRanks() {
    std::vector<int32_t> ranks;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      if (random_.Below(2) == 0) {
        ranks.push_back(static_cast<int32_t>(rank));
      }
    }
    return ranks;
  }

  void AddSetStep(std::vector<Rank>& ranks) {
    const std::vector<int32_t> members = RandomRanks();  // Of none, or of a set that is, at times.
    const size_t alias = ++last_alias_;
    if (!members.empty()) {
      sets_[alias] = members;
    }
    for (Rank& rank : ranks) {
      rank.program.push_back({{AddSet(members, "add." + std::to_string(alias))}, alias});
    }
  }

  /// Members may use the set until they know that it is gone: `late` is under way with the
  /// removal.
  void RemoveSetStep(std::vector<Rank>& ranks) {
    if (sets_.size() == 1) {
      return;
    }
    const auto it = std::next(sets_.begin(), 1 + static_cast<int>(random_.Below(sets_.size() - 1)));
    const Step late = {{Named("late", Sum({3}))}, it->first};
    const bool is_late = random_.Below(3) == 0;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      const bool is_member =
          std::count(it->second.begin(), it->second.end(), static_cast<int32_t>(rank)) != 0;
      ranks[rank].program.push_back(
          {{RemoveSet(0, "remove." + std::to_string(it->first))}, it->first});
      if (is_member && is_late) {
        ranks[rank].program.push_back(late);
      }
    }
    sets_.erase(it);
  }

  Signature NewSignature(bool joins, size_t alias) {
    static constexpr OpKind kOthers[] = {OpKind::kAllgather,
                                         OpKind::kBroadcast,
                                         OpKind::kAlltoall,
                                         OpKind::kReducescatter,
                                         OpKind::kBarrier,
                                         OpKind::kAgreement};
    Signature signature;
    const uint64_t choice = random_.Below(12);
    // Where ranks join, what needs all of them is rare.
    signature.kind = choice < 6 || (joins && choice < 9) ? OpKind::kAllreduce
                     : joins && choice < 11              ? kOthers[4 + random_.Below(2)]
                                                         : kOthers[random_.Below(6)];
    if (signature.kind > OpKind::kReducescatter) {
      return signature;
    }
    signature.dtype = random_.Below(2) == 0 ? DType::kU8 : DType::kF32;
    signature.shape = {1 + static_cast<int64_t>(random_.Below(3)), 5};
    if (signature.kind == OpKind::kBroadcast) {
      const std::vector<int32_t>& members = sets_.at(alias);
      signature.root = members[random_.Below(members.size())];
    }
    if (signature.kind == OpKind::kAllreduce) {
      signature.op = random_.Below(4) == 0 ? Op::kMax : Op::kSum;
      signature.prescale = random_.Below(4) == 0 ? 0.5 : 1;
      if (alias == 0 && signature.dtype == DType::kF32 && signature.prescale == 1 &&
          random_.Below(8) == 0) {
        signature.op = Op::kAdasum;
      }
    }
    return signature;
  }

  Step NewStep(const std::string& name, bool joins) {
    Step step;
    const bool in_world = random_.Below(2) == 0 || (joins && some_stop_);
    if (!in_world) {
      step.alias = std::next(sets_.begin(), static_cast<int>(random_.Below(sets_.size())))->first;
    }
    const auto known = steps_.find({step.alias, name});
    if (known != steps_.end() && !joins && random_.Below(4) != 0) {
      return known->second;  // As in the round before.
    }
    const bool is_group = random_.Below(4) == 0;
    const auto size = static_cast<uint32_t>(is_group ? 1 + random_.Below(4) : 1);
    for (uint32_t i = 0; i < size; ++i) {
      Signature signature = NewSignature(joins, step.alias);
      if (is_group &&
          (signature.kind > OpKind::kReducescatter || signature.kind == OpKind::kBroadcast ||
           signature.kind == OpKind::kAlltoall)) {
        signature = Sum({2});
      }
      if (is_group) {
        signature.group = {name, size, i};
      }
      FullRequest call = Named(name + (is_group ? "." + std::to_string(i) : ""), signature);
      call.reusable = random_.Below(4) != 0;
      step.calls.push_back(std::move(call));
    }
    steps_[{step.alias, name}] = step;
    return step;
  }

  void AppendShuffled(Rank& rank, uint32_t r, const std::vector<Step>& steps, bool joins) {
    std::vector<Step> own;
    for (const Step& step : steps) {
      const std::vector<int32_t>& members = sets_.at(step.alias);
      if (std::count(members.begin(), members.end(), static_cast<int32_t>(r)) != 0) {
        own.push_back(step);
        for (FullRequest& call : own.back().calls) {
          call = RankCall(std::move(call), members.size());
        }
      }
    }
    for (size_t i = own.size(); i > 1; --i) {
      std::swap(own[i - 1], own[random_.Below(i)]);
    }
    if (joins) {
      own.resize(random_.Below(own.size() + 1));
      own.push_back({{Join()}, 0});
    }
    rank.program.insert(rank.program.end(), own.begin(), own.end());
  }

  /// One rank's version of a call: votes and first dimensions are its own, and rarely it is wrong.
  FullRequest RankCall(FullRequest call, size_t members) {
    Signature& signature = call.signature;
    if (signature.kind == OpKind::kAllgather) {
      signature.shape.front() = static_cast<int64_t>(random_.Below(3));
    }
    if (signature.kind == OpKind::kAlltoall) {
      signature.shape.front() = 0;
      for (size_t i = 0; i < members; ++i) {
        call.splits.push_back(static_cast<int64_t>(random_.Below(3)));
        signature.shape.front() += call.splits.back();
      }
    }
    if (signature.kind == OpKind::kAllreduce && signature.dtype == DType::kU8 &&
        signature.op == Op::kSum && random_.Below(8) != 0) {
      call.small.resize(static_cast<size_t>(signature.shape[0] * signature.shape[1]));
      for (char& byte : call.small) {
        byte = static_cast<char>(random_.Below(256));
      }
    }
    call.vote = signature.kind == OpKind::kAgreement && random_.Below(6) == 0;
    if (makes_mistakes_ && random_.Below(30) == 0) {
      Spoil(call);
    }
    return call;
  }

  void Spoil(FullRequest& call) {
    call.small.clear();
    switch (random_.Below(4)) {
      case 0:
        call.signature.shape.push_back(7);
        break;
      case 1:
        call.signature.dtype = DType::kI64;
        break;
      case 2:
        call.signature.prescale = 3;
        break;
      default:
        call.objection = "its own fault";
    }
  }

  Random& random_;
  const uint32_t size_;
  const bool some_stop_;
  const bool makes_mistakes_;
  std::map<size_t, std::vector<int32_t>> sets_;  // Ranks by alias.
  size_t last_alias_ = 0;
  std::map<std::pair<size_t, std::string>, Step> steps_;
};

// ---------------------------------------------------------------- the world

class World {
 public:
  explicit World(uint64_t seed)
      : random_(seed),
        ranks_(1 + random_.Below(8)),
        options_(Options()),
        sequencer_(static_cast<uint32_t>(ranks_.size()), options_),
        judge_(static_cast<uint32_t>(ranks_.size()), options_) {
    const bool some_stop = random_.Below(3) == 0;
    Program program(random_, static_cast<uint32_t>(ranks_.size()), some_stop);
    for (uint64_t round = 0, rounds = 1 + random_.Below(8); round < rounds; ++round) {
      program.AddRound(ranks_);
    }
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].follower =
          std::make_unique<LogFollower>(r, ProcessSets::OfSize(sequencer_.sets().world_size()));
      if (some_stop && random_.Below(3) == 0) {
        ranks_[r].bye_at = random_.Below(ranks_[r].program.size() + 1);
      }
    }
  }

  void Run() {
    for (int step = 0; step < 2'000'000 && !IsIdle(); ++step) {
      Move();
    }
    REQUIRE(IsIdle());
    CHECK(sequencer_.pending_count() == 0);
    CHECK(sequencer_.AllOthersFinished(0));
    for (const Rank& rank : ranks_) {
      CHECK(rank.follower->pending_count() == rank.waiting.size());
      CheckGroups(rank);
    }
    CheckSameOrder();
  }

  const LogJudge::Counts& counts() const { return judge_.counts(); }
  size_t by_id() const { return by_id_; }
  size_t orphans() const { return orphans_; }
  size_t heard_while_joined() const { return heard_while_joined_; }

 private:
  SequencerOptions Options() {
    static constexpr size_t kFusion[] = {0, 16, 64, 1 << 20};
    static constexpr uint32_t kIds[] = {0, 3, 65536, 65536};
    return {kFusion[random_.Below(4)],
            kIds[random_.Below(4)],
            random_.Below(4) == 0 ? size_t{200} : size_t{1 << 16}};
  }

  bool IsIdle() const {
    return sequencer_.backlog().empty &&
           std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
             return rank.has_left && rank.in_flight.empty() && rank.arriving.empty();
           });
  }

  void Move() {
    const auto r = static_cast<uint32_t>(random_.Below(ranks_.size()));
    switch (random_.Below(4)) {
      case 0:
        Act(ranks_[r]);
        break;
      case 1:
        Deliver(r);
        break;
      case 2:
        Read(r);
        break;
      default:
        if (random_.Below(3) == 0) {
          Publish();
        }
    }
  }

  // ------------------------------------------------------------ the rank's side

  static bool IsWaiting(const Rank& rank, const FullRequest& call) {
    return std::any_of(rank.waiting.begin(), rank.waiting.end(), [&](const auto& item) {
      return item.second.call.name == call.name &&
             item.second.call.signature.set == call.signature.set;
    });
  }

  void Act(Rank& rank) {
    if (rank.has_left || rank.follower->joined()) {
      return;
    }
    if (rank.program.size() <= rank.bye_at) {
      // At the end of its program a rank waits for what it has called.
      if (rank.bye_at != 0 || rank.waiting.empty() || rank.has_finished) {
        rank.has_left = true;
        rank.in_flight.push_back({});
      }
      return;
    }
    Step& step = rank.program.front();
    const OpKind kind = step.calls.front().signature.kind;
    if (step.alias != 0 && kind != OpKind::kAddSet) {
      const auto set = rank.sets.find(step.alias);
      if (set == rank.sets.end()) {
        return;  // It is not known yet whether the set was made.
      }
      if (set->second < 0 ||
          (kind != OpKind::kRemoveSet && rank.follower->sets().Find(set->second) == nullptr)) {
        rank.program.pop_front();
        return;
      }
      for (FullRequest& call : step.calls) {
        (kind == OpKind::kRemoveSet ? call.signature.root : call.signature.set) = set->second;
      }
    }
    const bool is_free = std::none_of(step.calls.begin(), step.calls.end(), [&](const auto& call) {
      return IsWaiting(rank, call);
    });
    if (!is_free) {
      return;  // The round before is not over for this name.
    }
    for (const FullRequest& call : step.calls) {
      Submit(rank, call, kind == OpKind::kAddSet ? step.alias : 0);
    }
    ++rank.next_step;
    rank.program.pop_front();
  }

  void Submit(Rank& rank, const FullRequest& call, size_t alias) {
    const Ticket ticket = rank.next_ticket++;
    const std::optional<uint32_t> known =
        rank.follower->FindKnown(call.name, call.signature, call.splits);
    const Result<uint32_t> id = rank.follower->Submit(
        ticket, call.name, call.signature, call.splits, !call.objection.empty());
    INFO(id.status().message());
    REQUIRE(id.ok());
    REQUIRE(id.value() == (call.objection.empty() ? known.value_or(0) : 0));
    by_id_ += id.value() != 0 ? 1 : 0;
    rank.waiting[ticket] = {call, rank.next_step};
    if (alias != 0) {
      added_[{&rank, ticket}] = alias;
    }
    rank.in_flight.push_back(
        {id.value() == 0 ? Request(call) : Request(KnownRequest{id.value(), call.small}), call});
  }

  void Read(uint32_t r) {
    Rank& rank = ranks_[r];
    if (rank.arriving.empty()) {
      return;
    }
    const LogEntry entry = std::move(rank.arriving.front());
    rank.arriving.pop_front();
    const size_t number = rank.entries++;
    if (rank.has_finished) {
      return;
    }
    const bool had_joined = rank.follower->joined();
    Result<FollowStep> result = rank.follower->Apply(entry);
    INFO("rank " << r << ": " << result.status().message());
    REQUIRE(result.ok());
    const FollowStep& step = result.value();
    if (const auto* finished = std::get_if<MemberFinished>(&entry)) {
      rank.has_finished = finished->rank == r;
    }
    REQUIRE((!step.while_joined || had_joined));
    heard_while_joined_ += step.while_joined ? 1 : 0;
    for (size_t i = 0; i < step.tickets.size(); ++i) {
      if (const auto* execute = std::get_if<Execute>(&entry)) {
        REQUIRE(step.tickets.size() == execute->items.size());
        rank.seen.emplace_back(number, i);
      }
      if (step.tickets[i] == kNoTicket) {
        REQUIRE(had_joined);
      } else {
        End(rank, step.tickets[i], entry, i);
      }
    }
    for (const Ticket orphan : step.orphans) {
      REQUIRE(rank.waiting.erase(orphan) == 1);
      ++orphans_;
    }
  }

  /// Each call ends once, and with an entry about it.
  void End(Rank& rank, Ticket ticket, const LogEntry& entry, size_t item) {
    const auto it = rank.waiting.find(ticket);
    REQUIRE(it != rank.waiting.end());
    const FullRequest& call = it->second.call;
    OperationKey key;
    if (const auto* execute = std::get_if<Execute>(&entry)) {
      key = execute->items[item].key;
    } else {
      std::visit(
          [&](const auto& e) {
            if constexpr (requires { e.key; }) {
              key = e.key;
            }
          },
          entry);
    }
    REQUIRE(judge_.NameOf(key) == call.name);
    REQUIRE(key.set == call.signature.set);
    const auto added = added_.find({&rank, ticket});
    if (added != added_.end()) {
      const auto* set = std::get_if<SetAdded>(&entry);
      rank.sets[added->second] = set == nullptr ? -1 : set->set;
    }
    rank.endings[it->second.step].insert(entry.index());
    rank.waiting.erase(it);
  }

  // ------------------------------------------------------------ the coordinator's side

  void Deliver(uint32_t r) {
    Rank& rank = ranks_[r];
    if (rank.in_flight.empty()) {
      return;
    }
    const Message message = std::move(rank.in_flight.front());
    rank.in_flight.pop_front();
    if (message.call) {
      judge_.Arrive(r, *message.call);
      const Status status = sequencer_.Submit(r, message.request, Instant());
      INFO(status.message());
      REQUIRE(status.ok());
    } else {
      judge_.Leave(r);
      sequencer_.Finish(r);
    }
  }

  void Publish() {
    for (const LogEntry& entry : sequencer_.TakeEntries()) {
      judge_.Judge(entry);
      for (Rank& rank : ranks_) {
        rank.arriving.push_back(entry);
      }
    }
    REQUIRE(sequencer_.backlog().empty);
  }

  // ------------------------------------------------------------ at the end

  /// All of a group, or nothing: every call of it ended in the same way.
  static void CheckGroups(const Rank& rank) {
    for (const auto& [step, kinds] : rank.endings) {
      CHECK(kinds.size() == 1);
    }
  }

  /// Of what two ranks have both executed, both have seen the same; a rank that went has seen the
  /// beginning.
  void CheckSameOrder() {
    for (const Rank& rank : ranks_) {
      CHECK(std::is_sorted(rank.seen.begin(), rank.seen.end()));
    }
    judge_.CheckNothingIsOpen();
  }

  Random random_;
  std::vector<Rank> ranks_;
  const SequencerOptions options_;
  TestSequencer sequencer_;
  LogJudge judge_;
  std::map<std::pair<const Rank*, Ticket>, size_t> added_;  // Aliases of sets under way.
  size_t by_id_ = 0;
  size_t orphans_ = 0;
  size_t heard_while_joined_ = 0;
};

}  // namespace

TEST_CASE("log brings every rank the same decisions on every kind of operation") {
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    World(std::strtoull(seed, nullptr, 10)).Run();
    return;
  }
  std::map<std::string, size_t> totals;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed);
    World world(seed);
    world.Run();
    const LogJudge::Counts& counts = world.counts();
    totals["items"] += counts.items;
    totals["fused"] += counts.fused;
    totals["grouped"] += counts.grouped;
    totals["with joined"] += counts.with_joined;
    totals["small"] += counts.small;
    totals["agreed"] += counts.agreed;
    totals["barriers"] += counts.barriers;
    totals["all joined"] += counts.all_joined;
    totals["sets added"] += counts.sets_added;
    totals["sets removed"] += counts.sets_removed;
    totals["rejected"] += counts.rejected;
    totals["unserved"] += counts.unserved;
    totals["by id"] += world.by_id();
    totals["orphans"] += world.orphans();
    totals["heard while joined"] += world.heard_while_joined();
  }
  // A simulation in which nothing happens would find no fault either.
  for (const auto& [what, count] : totals) {
    INFO(what);
    CHECK(count > (what == "orphans" ? 10 : 100));
  }
}

}  // namespace muster::worker
