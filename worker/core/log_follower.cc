#include "worker/core/log_follower.h"

#include <utility>

namespace muster::worker {

Result<Request> LogFollower::Submit(Ticket ticket, FullRequest request) {
  const bool added = pending_.try_emplace(request.name, Pending{ticket, request.signature}).second;
  if (!added) {
    return Status::Invalid("'" + request.name + "' is already in flight on this rank");
  }
  const auto it = known_.find(request.name);
  if (it != known_.end() && it->second.signature == request.signature &&
      request.objection.empty()) {
    return Request(KnownRequest{it->second.id});
  }
  return Request(std::move(request));
}

Result<std::optional<Ticket>> LogFollower::Apply(const LogEntry& entry) {
  struct Visitor {
    LogFollower& follower;
    Result<std::optional<Ticket>> operator()(const Execute& e) { return follower.Complete(e.key); }
    Result<std::optional<Ticket>> operator()(const Agreed& e) { return follower.Complete(e.key); }
    Result<std::optional<Ticket>> operator()(const BarrierPassed& e) {
      return follower.Complete(e.key);
    }
    Result<std::optional<Ticket>> operator()(const Rejected& e) { return follower.Drop(e.key); }
    Result<std::optional<Ticket>> operator()(const Unserved& e) { return follower.Drop(e.key); }
    Result<std::optional<Ticket>> operator()(const MemberFinished&) {
      return std::optional<Ticket>();
    }
  };
  return std::visit(Visitor{*this}, entry);
}

std::optional<std::string> LogFollower::NameOf(const OperationKey& key) const {
  if (!key.name.empty()) {
    return key.name;
  }
  const auto it = names_.find(key.id);
  return it == names_.end() ? std::nullopt : std::optional(it->second);
}

Result<std::optional<Ticket>> LogFollower::Complete(const OperationKey& key) {
  const std::optional<std::string> name = NameOf(key);
  const auto it = name ? pending_.find(*name) : pending_.end();
  if (it == pending_.end()) {
    return Status::Invalid("the log names operation " + std::to_string(key.id) + " '" +
                           name.value_or("") + "', which this rank has not submitted");
  }
  const Ticket ticket = it->second.ticket;
  if (key.id != 0) {
    known_[*name] = {key.id, std::move(it->second.signature)};
    names_[key.id] = *name;
  }
  pending_.erase(it);
  return std::optional(ticket);
}

// After a failure the coordinator may have forgotten the id, so the next call goes in full.
Result<std::optional<Ticket>> LogFollower::Drop(const OperationKey& key) {
  const std::optional<std::string> name = NameOf(key);
  if (!name) {
    return std::optional<Ticket>();
  }
  const auto known = known_.find(*name);
  if (known != known_.end()) {
    names_.erase(known->second.id);
    known_.erase(known);
  }
  const auto it = pending_.find(*name);
  if (it == pending_.end()) {
    return std::optional<Ticket>();
  }
  const Ticket ticket = it->second.ticket;
  pending_.erase(it);
  return std::optional(ticket);
}

}  // namespace muster::worker
