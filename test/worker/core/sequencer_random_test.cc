// The sequencer against a model of it: random requests of 1..8 ranks arrive in random order, and
// after each one the sequencer has to append just what the model, which knows each call in full,
// says. MUSTER_SIM_SEED replays one run.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <set>

#include "common/random.h"
#include "test/worker/core/log_fixture.h"
#include "test/worker/core/sequencer_model.h"
#include "worker/core/call_check.h"
#include "worker/core/sequencer.h"

namespace muster::worker {
namespace {

/// One run: the ranks' side of ids is kept here as plainly as the calls are in the model.
class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        size_(1 + static_cast<uint32_t>(random_.Below(8))),
        finishes_(random_.Below(3) != 0),
        sequencer_(size_),
        model_(size_) {}

  void Run() {
    for (int step = 0; step < 400; ++step) {
      now_ += Duration(random_.Below(12'000'000));
      Step();
      REQUIRE(sequencer_.pending_count() == model_.open_count());
    }
    Heal();
  }

  const std::array<size_t, std::variant_size_v<LogEntry>>& counts() const { return counts_; }
  size_t by_id() const { return by_id_; }
  size_t stalls() const { return stalls_; }

 private:
  using SignatureAndSplits = std::pair<Signature, std::vector<int64_t>>;

  void Step() {
    const uint64_t choice = random_.Below(100);
    if (choice < 85) {
      CallSomething(AnyRank());
    } else if (choice < 95) {
      CheckStalls();
    } else if (choice < 98) {
      SendNonsense(AnyRank());
    } else if (finishes_ && random_.Below(4) == 0) {
      Finish(AnyRank());
    }
    for (uint32_t rank = 0; rank < size_; ++rank) {
      const size_t others = model_.finished_count() - (model_.IsFinished(rank) ? 1 : 0);
      REQUIRE(sequencer_.AllOthersFinished(rank) == (others + 1 == size_));
    }
  }

  /// Often right behind a call that nobody else has made: it may be served, but keeps nobody
  /// waiting.
  void Finish(uint32_t rank) {
    const std::string name = "last" + std::to_string(rank);
    if (random_.Below(2) == 0 && !model_.HasCalled(rank, name)) {
      FullRequest call;
      call.name = name;
      call.signature.kind = random_.Below(2) == 0 ? OpKind::kBarrier : OpKind::kAgreement;
      call.vote = call.signature.kind == OpKind::kAgreement && random_.Below(2) == 0;
      Send(rank, call);
    }
    sequencer_.Finish(rank);
    Compare(model_.Finish(rank));
  }

  uint32_t AnyRank() { return static_cast<uint32_t>(random_.Below(size_)); }

  /// A name that another rank waits for, if chance will have it, so that operations complete.
  std::string AnyName() {
    const auto names = model_.open_names();
    return !names.empty() && random_.Below(5) != 0 ? names[random_.Below(names.size())]
                                                   : "t" + std::to_string(random_.Below(6));
  }

  FullRequest NewCall(const std::string& name) {
    FullRequest call;
    call.name = name;
    call.reusable = random_.Below(5) != 0;
    Signature& signature = call.signature;
    signature.kind = kKinds[random_.Below(std::size(kKinds))];
    if (MovesData(call)) {
      signature.dtype = static_cast<DType>(random_.Below(2));
      signature.shape = {1 + static_cast<int64_t>(random_.Below(2)), 3};
    }
    FillSplits(call);
    return call;
  }

  /// Splits that come to the tensor's first dimension, whatever it was.
  void FillSplits(FullRequest& call) {
    call.splits.clear();
    if (call.signature.kind != OpKind::kAlltoall) {
      return;
    }
    call.signature.shape.front() = 0;
    for (uint32_t to = 0; to < size_; ++to) {
      call.splits.push_back(static_cast<int64_t>(random_.Below(3)));
      call.signature.shape.front() += call.splits.back();
    }
  }

  FullRequest Spoiled(FullRequest call) {
    Signature& signature = call.signature;
    switch (random_.Below(5)) {
      case 0:
        return NewCall(call.name);
      case 1:
        call.objection = "objection " + std::to_string(random_.Below(2));
        break;
      case 2:
        signature.root = signature.kind == OpKind::kBroadcast ? 1 : 0;
        break;
      case 3:
        signature.prescale = signature.kind == OpKind::kAllreduce ? 2 : 1;
        break;
      default:
        signature.op = signature.kind == OpKind::kAllreduce ? Op::kMax : Op::kSum;
    }
    return call;
  }

  FullRequest ChooseCall(uint32_t rank, const std::string& name) {
    const auto last = last_call_.find(name);
    FullRequest call;
    if (const FullRequest* first = model_.FirstCall(name)) {
      call = *first;
      call.objection.clear();
    } else {
      call = last != last_call_.end() && random_.Below(5) != 0 ? last->second : NewCall(name);
    }
    if (call.signature.kind == OpKind::kAllgather) {
      call.signature.shape.front() = rank + static_cast<int64_t>(random_.Below(5) == 0);
    }
    if (random_.Below(3) == 0) {
      FillSplits(call);
    }
    call.vote = call.signature.kind == OpKind::kAgreement && random_.Below(4) == 0;
    return random_.Below(40) == 0 ? Spoiled(call) : call;
  }

  void CallSomething(uint32_t rank) {
    const std::string name = AnyName();
    if (!model_.HasCalled(rank, name)) {
      Send(rank, ChooseCall(rank, name));
    }
  }

  /// By id, where the rank may and chance will have it.
  void Send(uint32_t rank, const FullRequest& call) {
    Request request = call;
    const auto known = known_.find({rank, call.name});
    if (known != known_.end() && known->second.second == std::pair(call.signature, call.splits) &&
        call.objection.empty() && random_.Below(4) != 0) {
      request = KnownRequest{known->second.first};
      ++by_id_;
    }
    if (!model_.IsFinished(rank)) {
      sent_[{rank, call.name}] = {call.signature, call.splits};
      last_call_[call.name] = call;
      last_call_[call.name].objection.clear();
    }
    const Status status = sequencer_.Submit(rank, request, now_);
    INFO(status.message());
    REQUIRE(status.ok());
    Compare(model_.Arrive(rank, call, now_));
  }

  void SendNonsense(uint32_t rank) {
    CHECK_FALSE(sequencer_.Submit(size_, NewCall("t0"), now_).ok());
    CHECK_FALSE(sequencer_.Submit(rank, KnownRequest{1'000'000}, now_).ok());
    const std::string name = AnyName();
    if (model_.HasCalled(rank, name) && !model_.IsFinished(rank)) {
      CHECK_FALSE(sequencer_.Submit(rank, NewCall(name), now_).ok());
    }
    Compare({});
  }

  void CheckStalls() {
    const StallReport got = sequencer_.CheckStalls(now_, kWarn, kShutdown);
    const StallReport expected = model_.Stalls(now_);
    const auto is_same = [](const std::vector<Stall>& a, const std::vector<Stall>& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Stall& x, const Stall& y) {
        return x.name == y.name && x.missing == y.missing && x.waited == y.waited;
      });
    };
    REQUIRE(is_same(got.warnings, expected.warnings));
    REQUIRE(is_same(got.lost, expected.lost));
    stalls_ += got.lost.size();
  }

  void Compare(const std::vector<Expected>& expected) {
    const std::vector<LogEntry> entries = sequencer_.TakeEntries();
    REQUIRE(entries.size() == expected.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      INFO("entry for '" << expected[i].name << "'");
      REQUIRE(entries[i].index() == expected[i].kind);
      ++counts_[expected[i].kind];
      std::visit([&](const auto& entry) { CompareOne(entry, expected[i]); }, entries[i]);
    }
  }

  void CompareOne(const MemberFinished& entry, const Expected& expected) {
    REQUIRE(std::to_string(entry.rank) == expected.name);
  }
  void CompareOne(const Execute& entry, const Expected& expected) {
    REQUIRE(entry.items.size() == 1);  // Entries are taken one by one here.
    REQUIRE(entry.items.front().dims == expected.dims);
    REQUIRE(entry.items.front().joined.empty());
    LearnId(entry.items.front().key, expected.name);
  }
  template <class Other>
  void CompareOne(const Other& /*entry*/, const Expected& /*expected*/) {
    FAIL("an entry that nobody has asked for");
  }
  void CompareOne(const BarrierPassed& entry, const Expected& expected) {
    LearnId(entry.key, expected.name);
  }
  void CompareOne(const Agreed& entry, const Expected& expected) {
    REQUIRE(entry.vote == expected.vote);
    REQUIRE(entry.key == OperationKey{0, expected.name});
    ForgetId(expected.name);
  }
  void CompareOne(const Unserved& entry, const Expected& expected) {
    CompareFailure(entry.key, entry.message, expected);
  }
  void CompareOne(const Rejected& entry, const Expected& expected) {
    CompareFailure(entry.key, entry.message, expected);
    ForgetId(expected.name);
  }

  void ForgetId(const std::string& name) {
    for (uint32_t rank = 0; rank < size_; ++rank) {
      known_.erase({rank, name});
    }
    const auto id = id_of_.find(name);
    if (id != id_of_.end()) {
      name_of_.erase(id->second);
      id_of_.erase(id);
    }
  }

  static void CompareFailure(const OperationKey& key,
                             const std::string& message,
                             const Expected& expected) {
    REQUIRE(key == OperationKey{0, expected.name});
    for (const std::string& text : expected.texts) {
      INFO("looking for '" << text << "' in: " << message);
      REQUIRE(message.find(text) != std::string::npos);
    }
  }

  /// An id stands for one name for ever, and the name travels with the first entry only.
  void LearnId(const OperationKey& key, const std::string& name) {
    const bool had_id = id_of_.contains(name);
    REQUIRE(key.name == (had_id ? "" : name));
    if (key.id == 0) {
      return;
    }
    if (had_id) {
      REQUIRE(id_of_.at(name) == key.id);
    } else {
      REQUIRE(given_.insert(key.id).second);
      id_of_[name] = key.id;
      name_of_[key.id] = name;
    }
    REQUIRE(name_of_.at(key.id) == name);
    for (uint32_t rank = 0; rank < size_; ++rank) {
      known_[{rank, name}] = {key.id, sent_.at({rank, name})};
    }
  }

  /// Whoever lives makes every call that somebody waits for: nothing may be left over.
  void Heal() {
    for (uint32_t rank = 0; rank < size_; ++rank) {
      for (const std::string& name : model_.open_names()) {
        if (!model_.IsFinished(rank) && !model_.HasCalled(rank, name)) {
          Send(rank, ChooseCall(rank, name));
        }
      }
    }
    for (const std::string& name : model_.open_names()) {
      INFO("still open: " << name);
      CHECK(model_.finished_count() == size_);  // Only the finished can have left it behind.
    }
    CHECK(sequencer_.pending_count() == model_.open_count());
  }

  Random random_;
  const uint32_t size_;
  const bool finishes_;
  TestSequencer sequencer_;
  Model model_;
  Instant now_;
  std::map<std::string, FullRequest> last_call_;
  std::map<std::pair<uint32_t, std::string>, SignatureAndSplits> sent_;
  std::map<std::pair<uint32_t, std::string>, std::pair<uint32_t, SignatureAndSplits>> known_;
  std::map<std::string, uint32_t> id_of_;
  std::map<uint32_t, std::string> name_of_;
  std::set<uint32_t> given_;
  std::array<size_t, std::variant_size_v<LogEntry>> counts_{};
  size_t by_id_ = 0;
  size_t stalls_ = 0;
};

}  // namespace

TEST_CASE("sequencer appends what a plain model of it appends, whatever arrives") {
  if (const char* seed = std::getenv("MUSTER_SIM_SEED")) {
    Simulation(std::strtoull(seed, nullptr, 10)).Run();
    return;
  }
  std::array<size_t, std::variant_size_v<LogEntry>> counts{};
  size_t by_id = 0;
  size_t stalls = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("MUSTER_SIM_SEED=" << seed);
    Simulation simulation(seed);
    simulation.Run();
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i] += simulation.counts()[i];
    }
    by_id += simulation.by_id();
    stalls += simulation.stalls();
  }
  // A simulation in which nothing happens would agree with anything.
  for (const size_t kind : {KindOf<Execute>(),
                            KindOf<Agreed>(),
                            KindOf<BarrierPassed>(),
                            KindOf<Rejected>(),
                            KindOf<Unserved>(),
                            KindOf<MemberFinished>()}) {
    CHECK(counts[kind] > 100);
  }
  CHECK(by_id > 1000);
  CHECK(stalls > 100);
}

TEST_CASE("sequencer gives no more ids than its limit and serves later names without") {
  TestSequencer sequencer(1);
  FullRequest call;
  call.signature.kind = OpKind::kBarrier;
  call.reusable = true;
  uint32_t with_id = 0;
  for (uint32_t i = 0; i < SequencerOptions().id_limit + 10; ++i) {
    call.name = "t" + std::to_string(i);
    if (!sequencer.Submit(0, call, Instant()).ok()) {
      FAIL("a fresh name is refused");
    }
    const auto entries = sequencer.TakeEntries();
    with_id += std::get<BarrierPassed>(entries.at(0)).key.id != 0 ? 1 : 0;
  }
  CHECK(with_id == SequencerOptions().id_limit);
  REQUIRE(sequencer.Submit(0, call, Instant()).ok());
  CHECK(std::get<BarrierPassed>(sequencer.TakeEntries().at(0)).key == OperationKey{0, call.name});
}

TEST_CASE("sequencer counts nothing that a rank asks for after it has finished") {
  TestSequencer sequencer(3);
  FullRequest barrier;
  barrier.name = "b";
  sequencer.Finish(2);
  sequencer.TakeEntries();
  REQUIRE(sequencer.Submit(2, barrier, Instant()).ok());
  CHECK(sequencer.pending_count() == 0);
  CHECK(sequencer.TakeEntries().empty());
  CHECK(sequencer.CheckStalls(Instant(seconds(900)), seconds(1), seconds(1)).lost.empty());
  REQUIRE(sequencer.Submit(0, barrier, Instant()).ok());
  CHECK(std::get<Unserved>(sequencer.TakeEntries().at(0)).key == OperationKey{0, "b"});
}

TEST_CASE("sequencer blames nobody for what only a finished rank waits for") {
  TestSequencer sequencer(3);
  FullRequest barrier;
  barrier.name = "b";
  REQUIRE(sequencer.Submit(2, barrier, Instant()).ok());
  sequencer.Finish(2);
  sequencer.TakeEntries();
  StallReport report = sequencer.CheckStalls(Instant(seconds(500)), seconds(60), seconds(90));
  CHECK(report.warnings.empty());
  CHECK(report.lost.empty());
  // The wait that counts begins with the first rank that really waits.
  REQUIRE(sequencer.Submit(0, barrier, Instant(seconds(500))).ok());
  CHECK(sequencer.CheckStalls(Instant(seconds(589)), seconds(60), seconds(90)).lost.empty());
  report = sequencer.CheckStalls(Instant(seconds(590)), seconds(60), seconds(90));
  REQUIRE(report.lost.size() == 1);
  CHECK(report.lost[0].missing == std::vector<uint32_t>{1});
  REQUIRE(sequencer.Submit(1, barrier, Instant(seconds(591))).ok());
  CHECK(std::holds_alternative<BarrierPassed>(sequencer.TakeEntries().at(0)));
}

}  // namespace muster::worker
