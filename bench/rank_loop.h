#pragma once

// A rank's side of the bench: carries out orders until the bench hangs up. What a contestant can
// do stands behind RankEngine; its libraries report errors by exceptions, which end here and
// become the order's report.
//
// One thread.

#include <functional>

#include "bench/buffers.h"
#include "bench/order.h"

namespace muster::bench {

class RankEngine {
 public:
  virtual ~RankEngine() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns when every rank has called it.
  virtual void Barrier() = 0;
  /// One iteration of `order` over all tensors of `buffers`, which outlives it. What a user would
  /// do once and not per step is done here, outside the measured time. Throws
  /// std::invalid_argument for what the contestant does not have.
  virtual std::function<void()> Prepare(const Order& order, Buffers& buffers) = 0;
};

/// Times and verifies; errors become Report::error.
Report Execute(RankEngine& engine, const Order& order);

/// Says who it is and serves the bench at `path` until it hangs up.
Status Serve(RankEngine& engine, const std::string& path);

}  // namespace muster::bench
