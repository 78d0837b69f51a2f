// The whole log at random: 1..8 ranks run one program, each in an order of its own and with
// mistakes of its own, over links that delay; some shut down after Done, some leave without a word.
// What the ranks have seen is judged at the end, and each entry at its birth. MUSTER_SIM_SEED
// replays one run.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <deque>
#include <set>

#include "common/random.h"
#include "worker/core/log_follower.h"
#include "worker/core/sequencer.h"

namespace muster::worker {
namespace {

bool MovesData(const FullRequest& call) {
  return call.signature.kind != OpKind::kBarrier && call.signature.kind != OpKind::kAgreement;
}

/// How a call ended, with all that its rank was told.
struct Ending {
  std::string name;
  LogEntry entry;
};

/// The calls that a rank has handed over, as it made them. Empty call: the Bye behind them.
struct Message {
  Request request;
  std::optional<FullRequest> call;
};

struct Rank {
  LogFollower follower;
  std::deque<FullRequest> program;
  size_t bye_at = 0;  // So many calls before the end of the program it stops.
  bool done = true;   // It says so when it stops.
  bool has_left = false;
  bool has_finished = false;      // It has read its own MemberFinished.
  std::deque<Message> in_flight;  // To the coordinator.
  std::deque<LogEntry> arriving;  // From the coordinator.
  std::map<Ticket, std::string> waiting;
  Ticket next_ticket = 1;
  std::vector<Ending> endings;
};

/// The same call under its name, of whatever kind the program says.
FullRequest ProgramCall(Random& random, const std::string& name) {
  FullRequest call;
  call.name = name;
  call.reusable = random.Below(4) != 0;
  Signature& signature = call.signature;
  signature.kind = static_cast<OpKind>(random.Below(5));
  if (MovesData(call)) {
    signature.dtype = DType::kF32;
    signature.shape = {2 + static_cast<int64_t>(random.Below(2)), 5};
  }
  return call;
}

/// One rank's version of it: votes and first dimensions are its own, and rarely it is wrong.
FullRequest RankCall(Random& random, FullRequest call, bool makes_mistakes) {
  Signature& signature = call.signature;
  if (signature.kind == OpKind::kAllgather) {
    signature.shape.front() = static_cast<int64_t>(random.Below(3));
  }
  call.vote = signature.kind == OpKind::kAgreement && random.Below(6) == 0;
  if (!makes_mistakes || random.Below(30) != 0) {
    return call;
  }
  switch (random.Below(4)) {
    case 0:
      signature.shape.push_back(7);
      break;
    case 1:
      signature.dtype = DType::kI64;
      break;
    case 2:
      signature = {};
      signature.set = 3;
      break;
    default:
      call.objection = "its own fault";
  }
  return call;
}

/// Whether the calls of all ranks fit together.
bool Fit(const std::map<uint32_t, FullRequest>& calls) {
  return std::all_of(calls.begin(), calls.end(), [&](const auto& item) {
    Signature signature = item.second.signature;
    const Signature& first = calls.begin()->second.signature;
    if (signature.kind == OpKind::kAllgather && first.kind == OpKind::kAllgather) {
      signature.shape.front() = first.shape.front();
    }
    return signature == first && signature.set == 0 && item.second.objection.empty();
  });
}

class World {
 public:
  explicit World(uint64_t seed) : random_(seed), ranks_(1 + random_.Below(8)), sequencer_(Count()) {
    const bool makes_mistakes = random_.Below(2) == 0;
    const bool some_stop = random_.Below(2) == 0;
    const uint64_t rounds = 1 + random_.Below(6);
    const uint64_t names = 1 + random_.Below(7);
    for (uint64_t i = 0; i < names; ++i) {
      names_.push_back(ProgramCall(random_, "t" + std::to_string(i)));
    }
    for (uint64_t round = 0; round < rounds; ++round) {
      AddRound(makes_mistakes);
    }
    for (Rank& rank : ranks_) {
      if (some_stop && random_.Below(3) == 0) {
        rank.bye_at = random_.Below(rank.program.size() + 1);
        rank.done = random_.Below(4) != 0;
      }
    }
  }

  void Run() {
    for (int step = 0; step < 2'000'000 && !IsIdle(); ++step) {
      Step();
    }
    REQUIRE(IsIdle());
    CheckNothingIsLost();
    CheckSameOrder();
  }

  size_t served() const { return served_; }
  size_t rejected() const { return rejected_; }
  size_t unserved() const { return unserved_; }
  size_t by_id() const { return by_id_; }
  bool somebody_vanished() const { return !vanished_.empty(); }

 private:
  uint32_t Count() const { return static_cast<uint32_t>(ranks_.size()); }

  /// A call of the program may change from round to round, for all ranks at once.
  void AddRound(bool makes_mistakes) {
    for (FullRequest& call : names_) {
      if (random_.Below(6) == 0) {
        call = ProgramCall(random_, call.name);
      }
    }
    for (Rank& rank : ranks_) {
      std::vector<FullRequest> calls;
      for (const FullRequest& call : names_) {
        calls.push_back(RankCall(random_, call, makes_mistakes));
      }
      for (size_t i = calls.size(); i > 1; --i) {
        std::swap(calls[i - 1], calls[random_.Below(i)]);
      }
      rank.program.insert(rank.program.end(), calls.begin(), calls.end());
    }
  }

  bool IsIdle() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [this](const Rank& rank) {
      return (rank.has_left || IsStuck(rank)) && rank.in_flight.empty() && rank.arriving.empty();
    });
  }

  /// Its next call has the name of one that waits for a rank that vanished.
  bool IsStuck(const Rank& rank) const {
    return !vanished_.empty() && !rank.has_left && rank.program.size() > rank.bye_at &&
           IsWaiting(rank, rank.program.front().name);
  }

  static bool IsWaiting(const Rank& rank, const std::string& name) {
    return std::any_of(rank.waiting.begin(), rank.waiting.end(), [&](const auto& item) {
      return item.second == name;
    });
  }

  void Step() {
    const auto r = static_cast<uint32_t>(random_.Below(ranks_.size()));
    switch (random_.Below(3)) {
      case 0:
        Act(r);
        break;
      case 1:
        Deliver(r);
        break;
      default:
        Read(r);
    }
  }

  // ------------------------------------------------------------ the rank's side

  void Act(uint32_t r) {
    Rank& rank = ranks_[r];
    if (rank.has_left) {
      return;
    }
    if (rank.program.size() <= rank.bye_at) {
      Leave(r);
      return;
    }
    const FullRequest call = rank.program.front();
    const bool is_free = !IsWaiting(rank, call.name);
    Result<Request> request = rank.follower.Submit(rank.next_ticket, call);
    REQUIRE(request.ok() == is_free);
    if (!is_free) {
      return;  // The round before is not over for this name.
    }
    rank.program.pop_front();
    rank.waiting[rank.next_ticket++] = call.name;
    by_id_ += std::holds_alternative<KnownRequest>(request.value()) ? 1 : 0;
    rank.in_flight.push_back({std::move(request).value(), call});
  }

  void Leave(uint32_t r) {
    Rank& rank = ranks_[r];
    if (rank.done && rank.bye_at == 0 && !rank.waiting.empty() && vanished_.empty()) {
      return;  // At the end of its program a rank waits for what it has called.
    }
    rank.has_left = true;
    if (rank.done) {
      rank.in_flight.push_back({});
      return;
    }
    vanished_.insert(r);
    rank.in_flight.resize(random_.Below(rank.in_flight.size() + 1));
    rank.arriving.clear();
  }

  void Read(uint32_t r) {
    Rank& rank = ranks_[r];
    if (rank.arriving.empty()) {
      return;
    }
    const LogEntry entry = std::move(rank.arriving.front());
    rank.arriving.pop_front();
    if (rank.has_finished || vanished_.contains(r)) {
      return;
    }
    if (const auto* finished = std::get_if<MemberFinished>(&entry)) {
      rank.has_finished = finished->rank == r;
    }
    const Result<std::optional<Ticket>> ticket = rank.follower.Apply(entry);
    INFO("rank " << r << ": " << ticket.status().message());
    REQUIRE(ticket.ok());
    if (ticket.value()) {
      End(rank, *ticket.value(), entry);
    }
  }

  /// Each call ends once, and with an entry about it.
  void End(Rank& rank, Ticket ticket, const LogEntry& entry) {
    const auto it = rank.waiting.find(ticket);
    REQUIRE(it != rank.waiting.end());
    const std::string said = std::visit(
        [this](const auto& e) {
          if constexpr (requires { e.key; }) {
            return e.key.name.empty() ? name_of_.at(e.key.id) : e.key.name;
          }
          return std::string();
        },
        entry);
    REQUIRE(said == it->second);
    rank.endings.push_back({it->second, entry});
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
      REQUIRE(sequencer_.Submit(r, message.request, Instant()).ok());
      arrived_[message.call->name][r] = *message.call;
    } else {
      sequencer_.Finish(r);
      finished_.insert(r);
    }
    for (const LogEntry& entry : sequencer_.TakeEntries()) {
      std::visit([this](const auto& e) { Judge(e); }, entry);
      for (Rank& other : ranks_) {
        other.arriving.push_back(entry);
      }
    }
  }

  /// What has arrived under the entry's name, which is thereby answered.
  std::map<uint32_t, FullRequest> TakeArrived(const OperationKey& key) {
    if (key.id != 0 && !key.name.empty()) {
      name_of_[key.id] = key.name;
    }
    const std::string name = key.name.empty() ? name_of_.at(key.id) : key.name;
    auto node = arrived_.extract(name);
    REQUIRE_FALSE(node.empty());
    return node.mapped();
  }

  /// Nobody does what some rank has not called, nor what the ranks have called differently.
  std::map<uint32_t, FullRequest> TakeServed(const OperationKey& key) {
    auto calls = TakeArrived(key);
    REQUIRE(calls.size() == ranks_.size());
    REQUIRE(Fit(calls));
    ++served_;
    return calls;
  }

  void Judge(const Execute& entry) {
    const auto calls = TakeServed(entry.key);
    REQUIRE(finished_.empty());
    REQUIRE(MovesData(calls.begin()->second));
    const bool gathers = calls.begin()->second.signature.kind == OpKind::kAllgather;
    REQUIRE(entry.first_dims.size() == (gathers ? ranks_.size() : 0));
    for (size_t rank = 0; rank < entry.first_dims.size(); ++rank) {
      const FullRequest& call = calls.at(static_cast<uint32_t>(rank));
      REQUIRE(entry.first_dims[rank] == call.signature.shape.front());
    }
  }

  void Judge(const Agreed& entry) {
    const auto calls = TakeServed(entry.key);
    REQUIRE(calls.begin()->second.signature.kind == OpKind::kAgreement);
    const bool any =
        std::any_of(calls.begin(), calls.end(), [](const auto& item) { return item.second.vote; });
    REQUIRE(entry.vote == any);
  }

  void Judge(const BarrierPassed& entry) {
    REQUIRE(TakeServed(entry.key).begin()->second.signature.kind == OpKind::kBarrier);
  }

  void Judge(const Rejected& entry) {
    const auto calls = TakeArrived(entry.key);
    REQUIRE(calls.size() == ranks_.size());
    REQUIRE_FALSE(Fit(calls));
    INFO(entry.message);
    REQUIRE(entry.message.find("'" + entry.key.name + "'") != std::string::npos);
    for (const auto& [rank, call] : calls) {
      if (!call.objection.empty()) {
        REQUIRE(entry.message.find("its own fault (on rank") != std::string::npos);
      }
    }
    ++rejected_;
  }

  void Judge(const Unserved& entry) {
    const auto calls = TakeArrived(entry.key);
    const bool moves_data = std::any_of(
        calls.begin(), calls.end(), [](const auto& item) { return MovesData(item.second); });
    const bool lacks_finished = std::any_of(
        finished_.begin(), finished_.end(), [&](uint32_t rank) { return !calls.contains(rank); });
    REQUIRE_FALSE(finished_.empty());
    REQUIRE((moves_data || lacks_finished));
    INFO(entry.message);
    for (const uint32_t rank : finished_) {
      REQUIRE(entry.message.find(std::to_string(rank)) != std::string::npos);
    }
    ++unserved_;
  }

  void Judge(const MemberFinished& entry) { REQUIRE(finished_.contains(entry.rank)); }

  // ------------------------------------------------------------ at the end

  /// Only a rank that has vanished may keep others waiting.
  void CheckNothingIsLost() {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const Rank& rank = ranks_[r];
      if (rank.has_finished || vanished_.contains(r)) {
        continue;  // Its Session fails what is left.
      }
      CHECK(rank.follower.pending_count() == rank.waiting.size());
      for (const auto& [ticket, name] : rank.waiting) {
        INFO("rank " << r << " waits for " << name);
        REQUIRE(arrived_.contains(name));
        CHECK(std::any_of(vanished_.begin(), vanished_.end(), [&](uint32_t gone) {
          return !arrived_.at(name).contains(gone);
        }));
      }
    }
    if (vanished_.empty()) {
      CHECK(sequencer_.pending_count() == 0);
      CHECK(sequencer_.AllOthersFinished(0));
    }
  }

  /// What was served or rejected has come to every rank in one order; a rank that went has seen the
  /// beginning of it.
  void CheckSameOrder() {
    std::vector<LogEntry> longest;
    for (const Rank& rank : ranks_) {
      const std::vector<LogEntry> entries = Decided(rank);
      const size_t common = std::min(entries.size(), longest.size());
      CHECK(std::equal(entries.begin(), entries.begin() + common, longest.begin()));
      longest = entries.size() > longest.size() ? entries : longest;
    }
    CHECK(longest.size() <= served_ + rejected_);
    if (vanished_.empty() && unserved_ == 0) {
      CHECK(longest.size() == served_ + rejected_);
    }
  }

  static std::vector<LogEntry> Decided(const Rank& rank) {
    std::vector<LogEntry> entries;
    for (const Ending& ending : rank.endings) {
      if (!std::holds_alternative<Unserved>(ending.entry)) {
        entries.push_back(ending.entry);
      }
    }
    return entries;
  }

  Random random_;
  std::vector<Rank> ranks_;
  Sequencer sequencer_;
  std::vector<FullRequest> names_;
  std::map<std::string, std::map<uint32_t, FullRequest>> arrived_;
  std::map<uint32_t, std::string> name_of_;
  std::set<uint32_t> finished_;
  std::set<uint32_t> vanished_;
  size_t served_ = 0;
  size_t rejected_ = 0;
  size_t unserved_ = 0;
  size_t by_id_ = 0;
};

}  // namespace

TEST_CASE("log brings every rank the same decisions through mistakes, Byes and delays") {
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    World(std::strtoull(seed, nullptr, 10)).Run();
    return;
  }
  size_t served = 0;
  size_t rejected = 0;
  size_t unserved = 0;
  size_t by_id = 0;
  size_t vanished = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed);
    World world(seed);
    world.Run();
    served += world.served();
    rejected += world.rejected();
    unserved += world.unserved();
    by_id += world.by_id();
    vanished += world.somebody_vanished() ? 1 : 0;
  }
  // A simulation in which nothing happens would find no fault either.
  CHECK(served > 1000);
  CHECK(rejected > 100);
  CHECK(unserved > 100);
  CHECK(by_id > 1000);
  CHECK(vanished > 20);
}

TEST_CASE("log follower answers a second failure of a name that has failed before") {
  // Two ranks ask for "w" at the same time as a third shuts down: the coordinator fails each of the
  // requests on its own, and the second answer finds nothing to fail, or the next call.
  LogFollower follower;
  FullRequest call;
  call.name = "w";
  REQUIRE(follower.Submit(1, call).ok());
  CHECK(follower.Apply(Unserved{{0, "w"}, "gone"}).value() == Ticket{1});
  CHECK_FALSE(follower.Apply(Unserved{{0, "w"}, "gone"}).value().has_value());
  REQUIRE(follower.Submit(2, call).ok());
  CHECK(follower.Apply(Unserved{{0, "w"}, "gone"}).value() == Ticket{2});
  CHECK(follower.pending_count() == 0);
}

TEST_CASE("sequencer counts the votes under a name that has an id from other calls") {
  Sequencer sequencer(2);
  FullRequest call;
  call.name = "w";
  call.reusable = true;
  for (const uint32_t rank : {0u, 1u}) {
    REQUIRE(sequencer.Submit(rank, call, Instant()).ok());
  }
  CHECK(std::get<BarrierPassed>(sequencer.TakeEntries().at(0)).key == OperationKey{1, "w"});
  call.signature.kind = OpKind::kAgreement;
  call.vote = true;
  for (const uint32_t rank : {0u, 1u}) {
    REQUIRE(sequencer.Submit(rank, call, Instant()).ok());
  }
  CHECK(std::get<Agreed>(sequencer.TakeEntries().at(0)) == Agreed{{0, "w"}, true});
  for (const uint32_t rank : {0u, 1u}) {
    REQUIRE(sequencer.Submit(rank, KnownRequest{1}, Instant()).ok());
  }
  CHECK(std::get<BarrierPassed>(sequencer.TakeEntries().at(0)).key == OperationKey{1, ""});
}

TEST_CASE("sequencer says an objection once, with all the ranks that raise it") {
  Sequencer sequencer(4);
  FullRequest call;
  call.name = "w";
  for (const uint32_t rank : {3u, 1u, 0u, 2u}) {
    call.objection = rank == 2 ? "no memory" : "no data";
    REQUIRE(sequencer.Submit(rank, call, Instant()).ok());
  }
  CHECK(std::get<Rejected>(sequencer.TakeEntries().at(0)).message ==
        "the call of 'w' is wrong: no data (on ranks 0, 1 and 3); no memory (on rank 2)");
}

}  // namespace muster::worker
