// What workers do: init(), the wait for worlds, sync, steps with commits, Done, shutdown, death.

#include <algorithm>

#include "test/sim/membership_sim.h"

namespace muster::launcher {
namespace {

// What waits for a network that is cut is tried again this often.
constexpr Duration kRetry = std::chrono::milliseconds(100);

}  // namespace

void MembershipSim::Boot(Incarnation id) {
  const bool crashes = !healed_ && Chance(crashing_ ? 50 : 4);
  const bool slow = !healed_ && Chance(5);
  Later(slow ? Between(3000, 15'000) : Between(5, 500), [this, id, crashes] {
    Process* process = Alive(id);
    if (process == nullptr || process->frozen) {
      return;
    }
    if (crashes) {
      Die(id, 1, 0);
      return;
    }
    process->joined = true;
    process->at = At::kInit;
    Report(process->slot.host, WorkerJoined{id, {"127.0.0.1:1"}});
  });
}

void MembershipSim::ReachFirstSync(Incarnation id) {
  Process* process = Alive(id);
  if (process == nullptr || process->frozen || process->at != At::kUser) {
    return;
  }
  process->at = At::kAwait;
  if (process->released) {
    Shutdown(id);
  } else {
    Report(process->slot.host, WorkerWarm{id});
  }
}

// The order to form a world, which revokes all older ones.
void MembershipSim::Receive(Incarnation id, Generation generation) {
  Process* process = Alive(id);
  if (process == nullptr || process->told >= generation) {
    return;
  }
  process->told = generation;
  process->in = generation;
  process->rank0 = worlds_[generation].members.front() == id;
  process->pending = false;
  if (process->at == At::kUser || process->at == At::kBooting) {
    Wrong("a member that is not warm");
  }
  if (process->at != At::kEpilogue && process->at != At::kShutdown) {
    process->at = At::kForming;
  }
  worlds_[generation].received.insert(id);
  TryForm(generation);
}

bool MembershipSim::AllAlive(const SimWorld& world) {
  return std::all_of(world.members.begin(), world.members.end(), [this](Incarnation id) {
    const Process* process = Alive(id);
    return process != nullptr && !process->frozen;
  });
}

// The engines form as soon as they can reach each other; no user code is needed for it.
void MembershipSim::TryForm(Generation generation) {
  SimWorld& world = worlds_[generation];
  if (world.forming || world.received.size() < world.members.size() || !AllAlive(world)) {
    return;
  }
  if (!Connected(world)) {
    Later(kRetry, [this, generation] { TryForm(generation); });
    return;
  }
  world.forming = true;
  for (const Incarnation id : world.members) {
    Later(Between(0, 20), [this, id, generation] {
      const Process* process = Alive(id);
      if (process != nullptr && !process->frozen && process->told == generation) {
        Report(process->slot.host, WorkerFormed{id, generation, process->held});
      }
    });
  }
  Later(Between(21, 100), [this, generation] { TrySync(generation); });
}

std::optional<CommitId> MembershipSim::Newest(const SimWorld& world) {
  std::optional<CommitId> newest;
  for (const Incarnation id : world.members) {
    newest = std::max(newest, processes_.at(id).held);
  }
  return newest;
}

// All members are needed in sync(): one that is done keeps the others waiting.
void MembershipSim::TrySync(Generation generation) {
  SimWorld& world = worlds_[generation];
  for (const Incarnation id : world.members) {
    const Process* process = Alive(id);
    if (process == nullptr || process->frozen || process->told != generation ||
        process->at != At::kForming) {
      return;
    }
  }
  if (!Connected(world)) {
    Later(kRetry, [this, generation] { TrySync(generation); });
    return;
  }
  std::optional<CommitId> newest = Newest(world);
  if (!newest.has_value()) {
    if (state_exists_) {
      return;  // The driver has to notice: nobody holds anything.
    }
    newest = CommitId{generation.value, 0};
    progress_[*newest] = 0;
    // The source of a first sync is rank 0, from its live values.
    processes_.at(world.members.front()).held = newest;
  }
  for (const Incarnation id : world.members) {
    processes_.at(id).at = At::kTraining;
    Later(Between(1, 40),
          [this, id, generation, commit = *newest] { FinishSync(id, generation, commit); });
  }
}

void MembershipSim::FinishSync(Incarnation id, Generation generation, CommitId commit) {
  SimWorld& world = worlds_[generation];
  Process* process = Alive(id);
  const bool source_lives =
      std::any_of(world.members.begin(), world.members.end(), [&](Incarnation other) {
        return Alive(other) != nullptr && (processes_.at(other).held == commit || other == id);
      });
  if (process == nullptr || process->frozen || process->told != generation ||
      process->at != At::kTraining || !source_lives || world.broken) {
    return;
  }
  if (process->held != commit && !Connected(world)) {
    Later(kRetry, [this, id, generation, commit] { FinishSync(id, generation, commit); });
    return;
  }
  process->held = commit;
  world.synced.insert(id);
  Report(process->slot.host, WorkerSynced{id, generation, commit});
  if (world.synced.size() == world.members.size()) {
    CheckSynced(generation);
    Later(Between(1, 50), [this, generation] { TrainStep(generation); });
  }
}

void MembershipSim::TrainStep(Generation generation) {
  SimWorld& world = worlds_[generation];
  if (!AllAlive(world) || world.broken) {
    return;
  }
  bool pending = false;
  for (const Incarnation id : world.members) {
    const Process& process = processes_.at(id);
    if (process.told != generation || process.at != At::kTraining) {
      return;
    }
    pending |= process.pending;
  }
  if (!Connected(world)) {
    Later(kRetry, [this, generation] { TrainStep(generation); });
    return;
  }
  const CommitId before = *processes_.at(world.members.front()).held;
  const CommitId commit{generation.value, ++world.sequence};
  progress_[commit] = progress_[before] + 1;
  for (const Incarnation id : world.members) {
    processes_.at(id).held = commit;
  }
  if (world.leaving) {
    LeaveAll(generation);
  } else if (progress_[commit] >= steps_) {
    FinishAll(generation);
  } else {
    world.leaving = pending;
    Later(Between(20, 150), [this, generation] { TrainStep(generation); });
  }
}

void MembershipSim::LeaveAll(Generation generation) {
  for (const Incarnation id : worlds_[generation].members) {
    Later(Between(0, 50), [this, id, generation] {
      Process* process = Alive(id);
      if (process != nullptr && !process->frozen && process->told == generation &&
          process->at == At::kTraining) {
        process->at = At::kAwait;
        Report(process->slot.host, WorkerLeft{id, generation, process->held});
      }
    });
  }
}

void MembershipSim::FinishAll(Generation generation) {
  for (const Incarnation id : worlds_[generation].members) {
    Later(Between(0, 400), [this, id, generation] {
      const Process* process = Alive(id);
      if (process != nullptr && process->told == generation && process->at == At::kTraining) {
        BecomeDone(id);
      }
    });
  }
}

void MembershipSim::BecomeDone(Incarnation id) {
  Process& process = *Alive(id);
  if (process.frozen) {
    return;
  }
  process.at = At::kEpilogue;
  any_done_ = true;
  Report(process.slot.host, WorkerDone{id, process.told});
  const bool crashes = !healed_ && Chance(2);
  Later(Between(0, 1500), [this, id, crashes] {
    const Process* done = Alive(id);
    if (done == nullptr || done->frozen) {
      return;
    }
    if (crashes) {
      Die(id, 3, 0);
    } else {
      Shutdown(id);
    }
  });
}

void MembershipSim::Shutdown(Incarnation id) {
  Process& process = *Alive(id);
  const bool done = process.at == At::kEpilogue;
  process.at = At::kShutdown;
  Report(process.slot.host, WorkerBye{id});
  if (!done || !process.rank0 || process.released) {
    ExitByItself(id, 0);
  }
}

void MembershipSim::ExitByItself(Incarnation id, int code) {
  Later(Between(0, 100), [this, id, code] {
    const Process* process = Alive(id);
    if (process != nullptr && !process->frozen) {
      Die(id, code, 0);
    }
  });
}

// A dying process drops its robust mutex first, and is gone some time later.
void MembershipSim::Die(Incarnation id, int code, int signal) {
  Process* process = Alive(id);
  if (process == nullptr) {
    return;
  }
  const HostId host = process->slot.host;
  const bool silent = process->at == At::kShutdown || !process->joined;
  process->dead = true;
  Note("worker " + std::to_string(id.value) + " dies with " + std::to_string(code));
  if (!silent) {
    Report(host, WorkerLost{id, LossKind::kOwnerDied, ""});
    ReportBrokenLinks(id);
  }
  Later(Between(1, 90), [this, id, host, code, signal] {
    Report(host, WorkerExited{id, code, signal});
  });
}

// Some of its peers notice, before or after the agent does.
void MembershipSim::ReportBrokenLinks(Incarnation dead) {
  const Generation generation = processes_.at(dead).in;
  if (generation.value == 0) {
    return;
  }
  const SimWorld& world = worlds_[generation];
  for (size_t rank = 0; rank < world.members.size(); ++rank) {
    if (world.members[rank] != dead) {
      continue;
    }
    for (const Incarnation id : world.members) {
      const Process* peer = Alive(id);
      if (peer != nullptr && !peer->frozen && peer->told == generation && Chance(40)) {
        Report(peer->slot.host,
               PeerLost{id, generation, {static_cast<uint32_t>(rank)}, false, "reset by peer"});
      }
    }
  }
}

}  // namespace muster::launcher
