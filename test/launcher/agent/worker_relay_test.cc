#include "launcher/agent/worker_relay.h"

#include <catch2/catch.hpp>

namespace muster::launcher {

TEST_CASE("worker relay keeps an absent commit absent") {
  v1::WorkerReport report;
  report.mutable_formed()->set_generation(4);
  const auto relayed = RelayedReport({9}, report);
  REQUIRE(relayed);
  CHECK(relayed->worker_formed().incarnation() == 9);
  CHECK(relayed->worker_formed().generation() == 4);
  CHECK_FALSE(relayed->worker_formed().has_held());
}

TEST_CASE("worker relay carries commits of Left and Synced") {
  v1::WorkerReport left;
  left.mutable_left()->mutable_held()->set_sequence(5);
  CHECK(RelayedReport({9}, left)->worker_left().held().sequence() == 5);
  v1::WorkerReport synced;
  synced.mutable_synced()->set_generation(2);
  synced.mutable_synced()->mutable_commit()->set_sequence(6);
  const auto relayed = RelayedReport({9}, synced);
  CHECK(relayed->worker_synced().generation() == 2);
  CHECK(relayed->worker_synced().commit().sequence() == 6);
}

TEST_CASE("worker relay carries broken peers with all that is known") {
  v1::WorkerReport report;
  v1::WorkerReport::BrokenPeers& broken = *report.mutable_broken_peers();
  broken.set_generation(3);
  broken.add_suspect_ranks(1);
  broken.add_suspect_ranks(4);
  broken.set_stalled(true);
  broken.set_evidence("reset");
  const v1::PeerLost lost = RelayedReport({9}, report)->peer_lost();
  CHECK(lost.reporter() == 9);
  CHECK(lost.generation() == 3);
  REQUIRE(lost.suspect_ranks_size() == 2);
  CHECK(lost.suspect_ranks(1) == 4);
  CHECK(lost.stalled());
  CHECK(lost.evidence() == "reset");
}

TEST_CASE("worker relay leaves joins and goodbyes to the agent") {
  v1::WorkerReport join;
  join.mutable_join();
  CHECK_FALSE(RelayedReport({9}, join));
  v1::WorkerReport bye;
  bye.mutable_bye();
  CHECK_FALSE(RelayedReport({9}, bye));
  CHECK_FALSE(RelayedReport({9}, {}));
}

}  // namespace muster::launcher
