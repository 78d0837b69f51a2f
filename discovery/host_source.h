#pragma once

// HostSource: where the list of usable hosts comes from. Poll blocks (a script may take its
// time), so it is called on the discovery thread, never on a loop thread.

#include <string>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace muster::discovery {

struct ListedHost {
  HostId host;
  uint32_t slots = 0;  // 0: listed, unused.
  bool operator==(const ListedHost&) const = default;
};

struct HostList {
  std::vector<ListedHost> hosts;      // Source order, one entry per host.
  std::vector<std::string> warnings;  // Such as a host listed twice; shown once each.
  bool operator==(const HostList&) const = default;
};

class HostSource {
 public:
  virtual ~HostSource() = default;

  /// The hosts now. An error keeps the last good list; on the very first poll it ends the job.
  virtual Result<HostList> Poll() = 0;

  /// Makes the Poll that is under way, and every later one, return soon with kAborted. For good,
  /// so that a Poll which is just about to begin is not missed. From any thread.
  virtual void Cancel() = 0;
};

}  // namespace muster::discovery
