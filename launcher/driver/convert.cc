#include "launcher/driver/convert.h"

#include <utility>

namespace muster::launcher {
namespace {

std::optional<CommitId> Held(bool present, const v1::CommitId& commit) {
  if (!present) {
    return std::nullopt;
  }
  return CommitId{commit.generation(), commit.sequence()};
}

std::optional<LossKind> ToLossKind(v1::WorkerLost::Kind kind) {
  switch (kind) {
    case v1::WorkerLost::KIND_OWNER_DIED:
      return LossKind::kOwnerDied;
    case v1::WorkerLost::KIND_FROZEN:
      return LossKind::kFrozen;
    case v1::WorkerLost::KIND_SILENT:
      return LossKind::kSilent;
    case v1::WorkerLost::KIND_STALLED:
      return LossKind::kStalled;
    default:
      return std::nullopt;
  }
}

// Of WorkerJoined and WorkerListening.
template <class Report>
std::vector<std::string> AddressesOf(const Report& report) {
  std::vector<std::string> addresses;
  for (const v1::Address& address : report.addresses()) {
    addresses.push_back(address.literal());
  }
  return addresses;
}

Event Broken(const v1::PeerLost& lost) {
  PeerLost event{{lost.reporter()}, {lost.generation()}, {}, lost.stalled(), lost.evidence()};
  event.suspect_ranks.assign(lost.suspect_ranks().begin(), lost.suspect_ranks().end());
  return event;
}

}  // namespace

std::optional<Event> ToEvent(const v1::AgentReport& report, const HostId& host) {
  using Report = v1::AgentReport;
  switch (report.report_case()) {
    case Report::kWorkerStarted:
      return WorkerStarted{{report.worker_started().incarnation()},
                           static_cast<int64_t>(report.worker_started().pid())};
    case Report::kSpawnFailed:
      return SpawnFailed{{report.spawn_failed().incarnation()}, report.spawn_failed().message()};
    case Report::kWorkerJoined:
      return WorkerJoined{{report.worker_joined().incarnation()},
                          AddressesOf(report.worker_joined())};
    case Report::kWorkerListening:
      return WorkerListening{{report.worker_listening().incarnation()},
                             AddressesOf(report.worker_listening())};
    case Report::kWorkerWarm:
      return WorkerWarm{{report.worker_warm().incarnation()}};
    case Report::kWorkerFormed: {
      const auto& formed = report.worker_formed();
      return WorkerFormed{
          {formed.incarnation()}, {formed.generation()}, Held(formed.has_held(), formed.held())};
    }
    case Report::kWorkerLeft: {
      const auto& left = report.worker_left();
      return WorkerLeft{
          {left.incarnation()}, {left.generation()}, Held(left.has_held(), left.held())};
    }
    case Report::kWorkerSynced: {
      const auto& synced = report.worker_synced();
      return WorkerSynced{{synced.incarnation()},
                          {synced.generation()},
                          {synced.commit().generation(), synced.commit().sequence()}};
    }
    case Report::kWorkerDone:
      return WorkerDone{{report.worker_done().incarnation()}, {report.worker_done().generation()}};
    case Report::kWorkerRunning:
      return WorkerRunning{{report.worker_running().incarnation()},
                           {report.worker_running().generation()}};
    case Report::kWorkerBye:
      return WorkerBye{{report.worker_bye().incarnation()}};
    case Report::kWorkerLost: {
      const auto& lost = report.worker_lost();
      const std::optional<LossKind> kind = ToLossKind(lost.kind());
      if (!kind) {
        return std::nullopt;
      }
      return WorkerLost{{lost.incarnation()}, *kind, lost.evidence()};
    }
    case Report::kWorkerExited: {
      const auto& exited = report.worker_exited();
      return WorkerExited{{exited.incarnation()}, exited.code(), exited.signal()};
    }
    case Report::kPeerLost:
      return Broken(report.peer_lost());
    case Report::kSuspectAnswered: {
      const auto& answer = report.suspect_answered();
      return SuspectAnswered{{answer.incarnation()}, {answer.generation()}, answer.alive()};
    }
    case Report::kDrainRequested:
      return DrainRequested{host};
    case Report::kHello:
    case Report::kSummary:
    case Report::kListenersOpened:
    case Report::REPORT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<Incarnation> SubjectOf(const v1::AgentReport& report) {
  using Report = v1::AgentReport;
  switch (report.report_case()) {
    case Report::kWorkerStarted:
      return Incarnation{report.worker_started().incarnation()};
    case Report::kSpawnFailed:
      return Incarnation{report.spawn_failed().incarnation()};
    case Report::kWorkerJoined:
      return Incarnation{report.worker_joined().incarnation()};
    case Report::kWorkerListening:
      return Incarnation{report.worker_listening().incarnation()};
    case Report::kWorkerWarm:
      return Incarnation{report.worker_warm().incarnation()};
    case Report::kWorkerFormed:
      return Incarnation{report.worker_formed().incarnation()};
    case Report::kWorkerLeft:
      return Incarnation{report.worker_left().incarnation()};
    case Report::kWorkerSynced:
      return Incarnation{report.worker_synced().incarnation()};
    case Report::kWorkerDone:
      return Incarnation{report.worker_done().incarnation()};
    case Report::kWorkerRunning:
      return Incarnation{report.worker_running().incarnation()};
    case Report::kWorkerBye:
      return Incarnation{report.worker_bye().incarnation()};
    case Report::kWorkerLost:
      return Incarnation{report.worker_lost().incarnation()};
    case Report::kWorkerExited:
      return Incarnation{report.worker_exited().incarnation()};
    case Report::kPeerLost:
      return Incarnation{report.peer_lost().reporter()};
    case Report::kSuspectAnswered:
      return Incarnation{report.suspect_answered().incarnation()};
    default:
      return std::nullopt;
  }
}

v1::Placement ToProto(const Placement& placement) {
  v1::Placement proto;
  proto.set_rank(placement.rank);
  proto.set_size(placement.size);
  proto.set_local_rank(placement.local_rank);
  proto.set_local_size(placement.local_size);
  proto.set_cross_rank(placement.cross_rank);
  proto.set_cross_size(placement.cross_size);
  return proto;
}

std::map<HostId, v1::FormWorld> SplitByHost(const FormWorld& world,
                                            const std::string& link_key,
                                            const std::string& reason) {
  std::map<HostId, v1::FormWorld> messages;
  v1::Layout layout;
  for (const Member& member : world.members) {
    const auto [it, is_new] = messages.try_emplace(member.slot.host);
    if (is_new) {
      it->second.set_host_index(static_cast<uint32_t>(layout.host_sizes_size()));
      layout.add_host_sizes(0);
    }
    const int index = static_cast<int>(it->second.host_index());
    layout.set_host_sizes(index, layout.host_sizes(index) + 1);
    it->second.add_members(member.worker.value);
  }
  for (auto& [host, message] : messages) {
    message.set_generation(world.generation.value);
    message.set_link_key(link_key);
    *message.mutable_layout() = layout;
    for (const std::string& address : world.members.front().addresses) {
      message.add_coordinator()->set_literal(address);
    }
    message.set_reason(reason);
    message.set_counts_as_reset(world.counts_as_reset);
  }
  return messages;
}

}  // namespace muster::launcher
