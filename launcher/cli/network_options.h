#pragma once

// NetworkOptions: which of its addresses and ports a job may use, on every host alike. A value.

#include <string>
#include <vector>

#include "common/network.h"

namespace muster::launcher {

struct NetworkOptions {
  /// --network-interface: names or host literals in order of preference (ChooseAddresses); empty:
  /// whatever leads to the other side.
  std::vector<std::string> interfaces;
  AddressFamily family = AddressFamily::kAny;  // --address-family
  PortRange ports;                             // --port-range, for every listener of the job.
};

}  // namespace muster::launcher
