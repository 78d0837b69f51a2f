#pragma once

// Worlds of connected sockets in one process: rank i's socket to j is the other end of rank j's
// socket to i.

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <vector>

#include "worker/socket.h"

namespace muster::worker {

/// By rank, then by peer.
inline std::vector<std::vector<PrivateFd>> ConnectAll(int size) {
  std::vector<std::vector<PrivateFd>> sockets(static_cast<size_t>(size));
  for (auto& row : sockets) {
    row.resize(static_cast<size_t>(size));
  }
  for (int i = 0; i < size; ++i) {
    PrivateFd listener = ListenOnLoopback().value();
    const SocketAddress address = ParseAddress(LocalAddress(listener.get()).value()).value();
    for (int j = 0; j < i; ++j) {
      sockets[j][i] = StartConnect(address).value();
      sockets[i][j] = Accept(listener.get()).value();
    }
  }
  return sockets;
}

/// Runs `body(rank)` on a thread for each rank; fails the test if one does not end within 30 s.
inline void OnAllRanks(int size, const std::function<void(int)>& body) {
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, body, rank));
  }
  for (auto& rank : ranks) {
    REQUIRE(rank.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
    rank.get();
  }
}

}  // namespace muster::worker
