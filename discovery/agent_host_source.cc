#include "discovery/agent_host_source.h"

#include <algorithm>

namespace muster::discovery {

void AgentHostSource::Joined(const HostId& host, uint32_t slots) {
  const MutexLock lock(mutex_);
  const auto known = std::find_if(
      hosts_.begin(), hosts_.end(), [&](const ListedHost& listed) { return listed.host == host; });
  if (known != hosts_.end()) {
    known->slots = slots;
  } else {
    hosts_.push_back({host, slots});
  }
}

void AgentHostSource::Left(const HostId& host) {
  const MutexLock lock(mutex_);
  std::erase_if(hosts_, [&](const ListedHost& listed) { return listed.host == host; });
}

Result<HostList> AgentHostSource::Poll() {
  if (cancelled_) {
    return Status(StatusCode::kAborted, "cancelled");
  }
  const MutexLock lock(mutex_);
  return HostList{hosts_, {}};
}

}  // namespace muster::discovery
