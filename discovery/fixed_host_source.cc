#include "discovery/fixed_host_source.h"

namespace muster::discovery {

Result<HostList> FixedHostSource::Poll() {
  if (cancelled_) {
    return Status(StatusCode::kAborted, "cancelled");
  }
  return list_;
}

}  // namespace muster::discovery
