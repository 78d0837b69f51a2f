#include "launcher/agent/worker_relay.h"

namespace muster::launcher {
namespace {

// Formed and Left have the same fields.
template <class To, class From>
void CopyHeld(Incarnation worker, const From& from, To& to) {
  to.set_incarnation(worker.value);
  to.set_generation(from.generation());
  if (from.has_held()) {
    *to.mutable_held() = from.held();
  }
}

void CopyBrokenPeers(Incarnation worker,
                     const v1::WorkerReport::BrokenPeers& from,
                     v1::PeerLost& to) {
  to.set_reporter(worker.value);
  to.set_generation(from.generation());
  *to.mutable_suspect_ranks() = from.suspect_ranks();
  to.set_stalled(from.stalled());
  to.set_evidence(from.evidence());
}

}  // namespace

std::optional<v1::AgentReport> RelayedReport(Incarnation worker, const v1::WorkerReport& report) {
  v1::AgentReport relayed;
  switch (report.report_case()) {
    case v1::WorkerReport::kWarm:
      relayed.mutable_worker_warm()->set_incarnation(worker.value);
      break;
    case v1::WorkerReport::kFormed:
      CopyHeld(worker, report.formed(), *relayed.mutable_worker_formed());
      break;
    case v1::WorkerReport::kLeft:
      CopyHeld(worker, report.left(), *relayed.mutable_worker_left());
      break;
    case v1::WorkerReport::kSynced:
      relayed.mutable_worker_synced()->set_incarnation(worker.value);
      relayed.mutable_worker_synced()->set_generation(report.synced().generation());
      *relayed.mutable_worker_synced()->mutable_commit() = report.synced().commit();
      break;
    case v1::WorkerReport::kDone:
      relayed.mutable_worker_done()->set_incarnation(worker.value);
      relayed.mutable_worker_done()->set_generation(report.done().generation());
      break;
    case v1::WorkerReport::kRunning:
      relayed.mutable_worker_running()->set_incarnation(worker.value);
      relayed.mutable_worker_running()->set_generation(report.running().generation());
      break;
    case v1::WorkerReport::kBrokenPeers:
      CopyBrokenPeers(worker, report.broken_peers(), *relayed.mutable_peer_lost());
      break;
    case v1::WorkerReport::kJoin:
    case v1::WorkerReport::kBye:
    case v1::WorkerReport::kListening:
    case v1::WorkerReport::REPORT_NOT_SET:
      return std::nullopt;
  }
  return relayed;
}

}  // namespace muster::launcher
