#pragma once

// FakeHost: what an agent and its workers answer the driver, without a process and without delay.
// Workers start, join, form, leave and sync the moment they are told to.
//
// Pure: no connection and no clock. One thread.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "muster/v1/agents.pb.h"

namespace muster::bench {

class FakeHost {
 public:
  using Reports = std::vector<v1::AgentReport>;

  /// `address`: where its workers claim to listen.
  explicit FakeHost(std::string address) : address_(std::move(address)) {}

  /// Carries the order out.
  Reports Perform(const v1::AgentOrder& order);
  /// The worker dies.
  Reports Lose(uint64_t incarnation);
  /// The members have synced. They can only together, and so once all hosts have formed. Before
  /// that they do not come to a place where they could leave.
  Reports Sync();

  /// Of the newest world that it was told of; 0: none yet.
  uint64_t generation() const { return generation_; }
  /// Of that world, on all hosts.
  size_t world_size() const { return world_size_; }
  /// On this host.
  const std::vector<uint64_t>& members() const { return members_; }
  /// The driver wants it to end.
  bool stopped() const { return stopped_; }

 private:
  Reports Start(const v1::SpawnWorker& order);
  Reports Form(const v1::FormWorld& order);
  Reports Leave() const;
  Reports Answer(const v1::AskSuspects& order) const;
  Reports End(uint64_t incarnation, int signal);

  const std::string address_;
  std::set<uint64_t> workers_;  // Incarnations.
  std::vector<uint64_t> members_;
  uint64_t generation_ = 0;
  size_t world_size_ = 0;
  std::optional<v1::CommitId> held_;
  bool synced_ = false;   // In this generation.
  bool pending_ = false;  // It is to end.
  bool stopped_ = false;
};

}  // namespace muster::bench
