// The log of a generation: requests as any rank may send them, to a coordinator that must stay
// whole; and entries as a coordinator may send them, to a rank that has calls under way.

#include <map>
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "worker/control_messages.h"
#include "worker/core/log_follower.h"
#include "worker/core/sequencer.h"

namespace muster::worker {
namespace {

constexpr uint32_t kSize = 3;

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
      if (full != nullptr && mine_.emplace(full->name, next_).second) {
        const Result<Request> asked = follower_.Submit(next_++, *full);
        MUSTER_CHECK(asked.ok(), asked.status().message());
        const Status status = sequencer_.Submit(0, asked.value(), now_);
        MUSTER_CHECK(status.ok(), status.message());
      }
      Follow();
    }
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
    }
  }

 private:
  // What the coordinator decides is always about calls that rank 0 has under way.
  void Follow() {
    const Entries entries{sequencer_.TakeEntries()};
    const Result<ControlMessage> sent = Decode(Encode(entries));
    MUSTER_CHECK(
        sent.ok() && std::get<Entries>(sent.value()).entries.size() == entries.entries.size(),
        "entries that the others can read");
    for (const LogEntry& entry : entries.entries) {
      const Result<std::optional<Ticket>> ticket = follower_.Apply(entry);
      MUSTER_CHECK(ticket.ok(), ticket.status().message());
      if (ticket.value()) {
        std::erase_if(mine_, [&](const auto& call) { return call.second == *ticket.value(); });
      }
    }
  }

  Sequencer sequencer_{kSize};
  LogFollower follower_;
  std::map<std::string, Ticket> mine_;
  Ticket next_ = 1;
  bool gone_[kSize] = {};
  Instant now_;
};

class Rank {
 public:
  void Ask(const Requests& message) {
    for (const Request& request : message.requests) {
      if (const auto* full = std::get_if<FullRequest>(&request)) {
        const Result<Request> asked = follower_.Submit(next_, *full);
        next_ += asked.ok() ? 1 : 0;
      }
    }
  }
  void Apply(const Entries& message) {
    for (const LogEntry& entry : message.entries) {
      const size_t before = follower_.pending_count();
      const Result<std::optional<Ticket>> ticket = follower_.Apply(entry);
      const bool completed = ticket.ok() && ticket.value();
      MUSTER_CHECK_EQ(follower_.pending_count() + (completed ? 1 : 0), before);
    }
  }

 private:
  LogFollower follower_;
  Ticket next_ = 1;
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
