#pragma once

// AgentHostSource: the hosts whose agents have dialled in by themselves. Whoever speaks with the
// agents says who comes and goes; a host that is quiet for a while has not left.
//
// Thread-safe: Joined and Left come from one thread, Poll from another. Nothing blocks.

#include <atomic>
#include <vector>

#include "common/mutex.h"
#include "discovery/host_source.h"

namespace muster::discovery {

class AgentHostSource final : public HostSource {
 public:
  /// Goes to the end of the list. One that is in it already keeps its place, with the new count.
  void Joined(const HostId& host, uint32_t slots);
  /// Nothing if it is not in the list.
  void Left(const HostId& host);

  /// In the order of arrival; never an error but kAborted.
  Result<HostList> Poll() override;
  void Cancel() override { cancelled_ = true; }

 private:
  std::atomic<bool> cancelled_ = false;
  Mutex mutex_;
  std::vector<ListedHost> hosts_ MUSTER_GUARDED_BY(mutex_);
};

}  // namespace muster::discovery
