#pragma once

// Bulletin: what the engine has to tell the user's threads. The engine writes, and wakes; the
// runtime's public calls read and wait. Nothing in here changes a user's rank or size: the user's
// thread does that when it adopts what it reads.
//
// Threads: any, under the mutex.

#include <chrono>
#include <exception>
#include <optional>
#include <string>

#include "common/mutex.h"
#include "worker/runtime.h"

namespace muster::worker {

struct Bulletin {
  Mutex mutex;
  CondVar changed;

  std::optional<std::string> failure MUSTER_GUARDED_BY(mutex);  // init() cannot succeed.
  std::optional<Place> provisional MUSTER_GUARDED_BY(mutex);    // Admitted as a newcomer.
  std::optional<Place> formed MUSTER_GUARDED_BY(mutex);         // The world at work, if one is.
  Generation revoked MUSTER_GUARDED_BY(mutex);                  // This one and all older ones are.
  std::string revoke_reason MUSTER_GUARDED_BY(mutex);
  // Sessions that have ended, while an operation of theirs may still touch the user's memory.
  int ending_sessions MUSTER_GUARDED_BY(mutex) = 0;
  bool pending MUSTER_GUARDED_BY(mutex) = false;
  bool draining MUSTER_GUARDED_BY(mutex) = false;
  bool released MUSTER_GUARDED_BY(mutex) = false;
  bool stopped MUSTER_GUARDED_BY(mutex) = false;  // The engine has ended.

  // What the user's side tells the engine.
  std::optional<CommitId> held MUSTER_GUARDED_BY(mutex);
  Generation adopted MUSTER_GUARDED_BY(mutex);
};

/// "generation 3 was revoked: rank 2 on host b was lost"
inline std::string RevokedText(Generation generation, const std::string& reason) {
  return "generation " + std::to_string(generation.value) +
         " was revoked: " + (reason.empty() ? "the world has changed" : reason);
}

/// Whoever is told of a loss may free or restore any memory: first, nobody touches it any more.
/// Takes milliseconds; the engine ends the process if it took 5 s.
inline void AwaitSessionsEnded(Bulletin& bulletin) MUSTER_REQUIRES(bulletin.mutex) {
  while (bulletin.ending_sessions > 0 && !bulletin.stopped) {
    bulletin.changed.WaitFor(bulletin.mutex, std::chrono::seconds(1));
  }
}

inline std::exception_ptr LostError(Generation generation, const std::string& reason) {
  return std::make_exception_ptr(WorkersLost(RevokedText(generation, reason)));
}

}  // namespace muster::worker
