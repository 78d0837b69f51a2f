#pragma once

// Lease: how long an agent across a network may let its workers live without an answer from the
// driver. It counts from the *sending* of the last summary that was acknowledged: the driver, which
// counts from its acknowledgement, can then be sure that the agent gave up first.
//
// Pure: time is an argument. Threads: one at a time.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "common/clock.h"

namespace muster::launcher {

class Lease {
 public:
  /// Begins, or is renewed by something else than a summary that was sent at this moment.
  void Renew(Instant sent) { renewed_ = std::max(renewed_, sent); }

  void SummarySent(uint64_t sequence, Instant now) {
    sent_.emplace_back(sequence, now);
    if (sent_.size() > kSummariesMax) {
      sent_.pop_front();  // Older than any lease: its acknowledgement would renew nothing.
    }
  }

  void SummaryAcknowledged(uint64_t sequence) {
    while (!sent_.empty() && sent_.front().first <= sequence) {
      if (sent_.front().first == sequence) {
        Renew(sent_.front().second);
      }
      sent_.pop_front();
    }
  }

  /// When what renewed it was sent.
  Instant renewed() const { return renewed_; }
  bool Expired(Instant now, Duration length) const { return now - renewed_ > length; }

  /// Five minutes' worth at one in 200 ms.
  static constexpr size_t kSummariesMax = 1500;

 private:
  Instant renewed_ = Instant::min();
  std::deque<std::pair<uint64_t, Instant>> sent_;
};

}  // namespace muster::launcher
