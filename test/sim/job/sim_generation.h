#pragma once

// SimGeneration: one world as its members' engines make it: who has come, whether it is complete,
// and the collectives that meet in it. An abstraction of formation and session: a collective is
// done for all at one moment, told to each at its own, and waits while members cannot reach each
// other.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "test/sim/job/universe.h"
#include "worker/operation.h"
#include "worker/runtime.h"

namespace muster::sim {

class Site;
class SimWorker;

class SimGeneration : public std::enable_shared_from_this<SimGeneration> {
 public:
  SimGeneration(Site& site, uint64_t number, std::string link_key, uint32_t size);

  uint64_t number() const { return number_; }
  uint32_t size() const { return size_; }
  const std::string& link_key() const { return link_key_; }
  /// By rank: all that were told of it and have not left it.
  const std::map<uint32_t, SimWorker*>& members() const { return members_; }
  /// By rank: all that were ever told of it.
  const std::map<uint32_t, const SimWorker*>& came() const { return came_; }
  bool formed() const { return formed_; }

  /// The worker was told to take this place.
  void Come(uint32_t rank, SimWorker& worker);
  /// Its engine has ended this generation, or its process has died: then its peers may notice.
  void Go(uint32_t rank, bool died);
  void Submit(uint32_t rank, worker::Submission submission, std::shared_ptr<Operation> operation);
  /// A fault: the link between two members. Some of both notice.
  void BreakLink(uint32_t one, uint32_t two);

 private:
  struct Part {
    worker::Submission submission;
    std::string bytes;                     // What it has to say.
    std::shared_ptr<Operation> operation;  // Shared with whoever waits for it.
    SimWorker* worker = nullptr;
  };
  using Meeting = std::map<uint32_t, Part>;  // By rank.

  bool CanWork() const;
  void Retry(Action action);
  void TryForm();
  void CheckAddresses() const;
  void TryExecute(const std::string& name);
  void Execute(Meeting meeting);
  void Suspect(uint32_t reporter, uint32_t suspect, const std::string& evidence);

  Site& site_;
  const uint64_t number_;
  const std::string link_key_;
  const uint32_t size_;
  std::map<uint32_t, SimWorker*> members_;
  std::map<uint32_t, const SimWorker*> came_;
  std::map<std::string, Meeting> meetings_;
  bool formed_ = false;
  bool broken_ = false;
};

}  // namespace muster::sim
