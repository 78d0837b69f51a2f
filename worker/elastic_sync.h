#pragma once

// Synchronizer: makes all members of a world equal to the newest commit that one of them holds
// (docs/state.md gives the steps). It writes live memory at once, but replaces this worker's own
// snapshot only when everything has arrived on every rank: a source that dies in the middle costs
// one more generation, not the State.
//
// One use: construct, Run(). In the user's thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/core/commit_ledger.h"
#include "worker/elastic_manifest.h"
#include "worker/elastic_snapshot.h"
#include "worker/runtime.h"

namespace muster::worker {

struct SyncReport {
  SyncSource source;
  uint64_t bytes = 0;  // Of tensors that the source sent; 0 if every rank had them.
};

class Synchronizer {
 public:
  Synchronizer(Runtime& runtime,
               const std::vector<Registered>& entries,
               Snapshot& snapshot,
               CommitLedger& ledger);

  /// Throws WorkersLost, or Error if a State differs from the source's; then the snapshot is as it
  /// was before.
  SyncReport Run();

 private:
  bool IsSource() const { return runtime_.place().rank == source_.rank; }
  SyncSource AgreeOnSource();
  bool AllHoldTheSameBytes();
  uint64_t Receive();
  Landing AgreeOnManifest();
  uint64_t SpreadTensors(const Landing& landing);
  void LoadValues(const Landing& landing);
  void ReplaceSnapshot(const Landing& landing);
  void Barrier();

  Runtime& runtime_;
  const std::vector<Registered>& entries_;
  Snapshot& snapshot_;
  CommitLedger& ledger_;
  const std::optional<CommitId> held_before_;
  SyncSource source_;
  Manifest manifest_;
};

}  // namespace muster::worker
