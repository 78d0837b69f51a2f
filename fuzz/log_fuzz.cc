// The log of a generation: requests as any rank may send them, to a coordinator that must stay
// whole; and entries as a coordinator may send them, to a rank that has calls under way.

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "worker/control_messages.h"
#include "worker/core/log_follower.h"
#include "worker/core/sequencer.h"

namespace muster::worker {
namespace {

constexpr uint32_t kSize = 3;

ProcessSets Sets() {
  ProcessSets sets = ProcessSets::OfSize(kSize);
  sets.Add({0, 1});
  sets.Add({1, 2});
  return sets;
}

std::string Zeros(const Signature& /*signature*/,
                  const std::vector<const std::string*>& inputs,
                  uint32_t divisor) {
  MUSTER_CHECK_EQ(inputs.size(), divisor);
  for (const std::string* input : inputs) {
    if (input != nullptr) {
      return std::string(input->size(), '\0');
    }
  }
  return "";
}

Result<uint32_t> Submit(LogFollower& follower, Ticket ticket, const FullRequest& call) {
  return follower.Submit(ticket, call.name, call.signature, call.splits, !call.objection.empty());
}

// Rank 0 is honest: it asks for what others ask for, once each.
class Coordinator {
 public:
  void Take(uint32_t rank, const Requests& message) {
    for (const Request& request : message.requests) {
      now_ += std::chrono::seconds(1);
      if (!gone_[rank] && !sequencer_.Submit(rank, request, now_).ok()) {
        gone_[rank] = true;  // Its link is closed.
      }
      const auto* full = std::get_if<FullRequest>(&request);
      if (full != nullptr) {
        AskToo(*full);
      }
    }
    Follow();
  }
  void Leave(uint32_t rank) {
    sequencer_.Finish(rank);
    Follow();
  }
  void Look() {
    now_ += std::chrono::minutes(1);
    const StallReport stalls =
        sequencer_.CheckStalls(now_, std::chrono::seconds(60), std::chrono::seconds(600));
    for (const Stall& stall : stalls.lost) {
      MUSTER_CHECK(!stall.missing.empty(), "somebody is waited for");
      MUSTER_CHECK(ToString(stall).size() <= 500, "a short message");
    }
  }

 private:
  void AskToo(FullRequest call) {
    if (!call.small.empty() && call.signature.kind != OpKind::kAllreduce) {
      call.small.clear();
    }
    const Result<uint32_t> id = Submit(follower_, next_, call);
    if (!id.ok()) {
      return;  // In flight, or nothing that this rank may ask for.
    }
    ++next_;
    const bool plain_join = call.signature.kind == OpKind::kJoin;
    if (plain_join) {
      FullRequest join;
      join.name = kJoinName;
      join.signature.kind = OpKind::kJoin;
      call = join;
    }
    // What no honest rank sends of small data, this one does not send either.
    Status status = id.value() == 0
                        ? sequencer_.Submit(0, call, now_)
                        : sequencer_.Submit(0, KnownRequest{id.value(), call.small}, now_);
    if (!status.ok() && !call.small.empty()) {
      call.small.clear();
      status = id.value() == 0 ? sequencer_.Submit(0, call, now_)
                               : sequencer_.Submit(0, KnownRequest{id.value(), ""}, now_);
    }
    MUSTER_CHECK(status.ok(), status.message());
  }

  // What the coordinator decides is always about calls that rank 0 has under way.
  void Follow() {
    const Entries entries{sequencer_.TakeEntries()};
    const Result<ControlMessage> sent = Decode(Encode(entries));
    MUSTER_CHECK(
        sent.ok() && std::get<Entries>(sent.value()).entries.size() == entries.entries.size(),
        "entries that the others can read");
    for (const LogEntry& entry : entries.entries) {
      const Result<FollowStep> step = follower_.Apply(entry);
      MUSTER_CHECK(step.ok(), step.status().message());
    }
    MUSTER_CHECK(follower_.sets() == sequencer_.sets(), "the same process sets");
  }

  Sequencer sequencer_{Sets(), {256, 8, 1024}, Zeros};
  LogFollower follower_{0, Sets()};
  Ticket next_ = 1;
  bool gone_[kSize] = {};
  Instant now_;
};

class Rank {
 public:
  void Ask(const Requests& message) {
    for (const Request& request : message.requests) {
      if (const auto* full = std::get_if<FullRequest>(&request)) {
        next_ += Submit(follower_, next_, *full).ok() ? 1 : 0;
      }
    }
  }
  void Apply(const Entries& message) {
    for (const LogEntry& entry : message.entries) {
      if (is_over_) {
        return;
      }
      const size_t before = follower_.pending_count();
      const Result<FollowStep> step = follower_.Apply(entry);
      if (!step.ok()) {
        is_over_ = true;
        return;
      }
      const auto& tickets = step.value().tickets;
      const auto own = std::count_if(
          tickets.begin(), tickets.end(), [](Ticket ticket) { return ticket != kNoTicket; });
      MUSTER_CHECK_EQ(
          follower_.pending_count() + static_cast<size_t>(own) + step.value().orphans.size(),
          before);
    }
  }

 private:
  LogFollower follower_{1, Sets()};
  Ticket next_ = 1;
  bool is_over_ = false;  // The link to the coordinator is closed.
};

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::worker;
  muster::fuzz::FuzzInput input(data, size);
  Coordinator coordinator;
  Rank rank;
  while (!input.at_end()) {
    const uint32_t sender = 1 + static_cast<uint32_t>(input.Below(kSize - 1));
    const muster::Result<ControlMessage> message = Decode(input.Text());
    if (!message.ok()) {
      coordinator.Look();
      continue;
    }
    if (const auto* requests = std::get_if<Requests>(&message.value())) {
      coordinator.Take(sender, *requests);
      rank.Ask(*requests);
    } else if (const auto* entries = std::get_if<Entries>(&message.value())) {
      rank.Apply(*entries);
    } else if (std::holds_alternative<Bye>(message.value())) {
      coordinator.Leave(sender);
    }
  }
  return 0;
}
