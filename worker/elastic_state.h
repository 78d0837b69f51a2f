#pragma once

// What stands behind elastic::State, for elastic.cc and elastic_run.cc only.
//
// Used by the one thread that is inside elastic::run.

#include <functional>
#include <string>
#include <vector>

#include "muster/elastic.h"
#include "worker/core/commit_ledger.h"
#include "worker/elastic_snapshot.h"
#include "worker/runtime.h"

namespace muster::elastic {

class State::Impl {
 public:
  void Register(worker::Registered entry);
  /// A commit at this place: snapshot, agreement, and then HostsUpdated if the ranks have agreed.
  void Commit();
  /// The agreement alone; the snapshot only before HostsUpdated.
  void CheckHostUpdates();
  /// False if there is nothing to go back to.
  bool Restore();
  void Sync();

  const worker::CommitLedger& ledger() const { return ledger_; }

  std::vector<std::function<void()>> reset_callbacks;

 private:
  void TakeSnapshot(worker::Runtime& runtime, muster::CommitId commit);
  muster::CommitId NextCommit(const worker::Runtime& runtime) const;
  bool Agree(worker::Runtime& runtime);

  std::vector<worker::Registered> entries_;
  bool fixed_ = false;  // A sync has begun: no more entries.
  worker::Snapshot snapshot_;
  worker::CommitLedger ledger_;

  // The agreement that the next call of this generation acts on.
  struct PostedAgreement {
    Generation generation;
    Handle handle;
  };
  std::optional<PostedAgreement> posted_;
};

/// Gives elastic_run.cc the inside of a State.
class StateAccess {
 public:
  using Impl = State::Impl;
  static Impl& Get(State& state) { return *state.impl_; }
};

}  // namespace muster::elastic
