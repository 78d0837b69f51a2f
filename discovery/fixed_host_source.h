#pragma once

// FixedHostSource: hosts that never change, from -H or from -np alone. Thread-safe.

#include <atomic>
#include <utility>

#include "discovery/host_source.h"

namespace muster::discovery {

class FixedHostSource final : public HostSource {
 public:
  explicit FixedHostSource(std::vector<ListedHost> hosts) : list_{std::move(hosts), {}} {}

  Result<HostList> Poll() override;
  void Cancel() override { cancelled_ = true; }

 private:
  const HostList list_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace muster::discovery
