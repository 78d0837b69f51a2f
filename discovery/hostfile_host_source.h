#pragma once

// HostfileHostSource: hosts from a file, read again at every poll, so that an edit counts from the
// next one on. Replace the file by rename: a half-written one is read as it stands.
//
// Thread contract: Poll from one thread at a time, Cancel from any.

#include <atomic>
#include <string>

#include "discovery/host_list.h"
#include "discovery/host_source.h"

namespace muster::discovery {

class HostfileHostSource final : public HostSource {
 public:
  HostfileHostSource(std::string path, DefaultSlots default_slots);

  /// Errors name the file, and the line where there is one.
  Result<HostList> Poll() override;
  void Cancel() override { cancelled_ = true; }

 private:
  const std::string path_;
  const DefaultSlots default_slots_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace muster::discovery
