#include "worker/core/log_follower.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/core/call_check.h"
#include "worker/core/dtype.h"
#include "worker/core/fusion.h"

namespace muster::worker {
namespace {

using Key = std::pair<int32_t, std::string>;  // The set, and the name that is unique there.
using KeyView = std::pair<int32_t, std::string_view>;
struct KeyLess {
  using is_transparent = void;
  bool operator()(const KeyView& a, const KeyView& b) const { return a < b; }
};

struct Call {
  Signature signature;
  std::vector<int64_t> splits;
  bool objected = false;

  bool Is(const Signature& other, std::span<const int64_t> other_splits) const {
    return signature == other &&
           std::equal(splits.begin(), splits.end(), other_splits.begin(), other_splits.end());
  }
};

std::string Text(const OperationKey& key) {
  return "operation " + std::to_string(key.id) + " " + Quoted(key.name) + " of process set " +
         std::to_string(key.set);
}

bool IsData(OpKind kind) {
  return kind <= OpKind::kReducescatter;
}

/// What the members bring to an allgather or alltoall has to go with what this rank brings.
bool HasRightDims(const Call& call, const std::vector<int64_t>& dims, size_t members, size_t self) {
  switch (call.signature.kind) {
    case OpKind::kAllgather:
      return dims.size() == members && !call.signature.shape.empty() &&
             dims[self] == call.signature.shape.front() &&
             TotalRows(call.signature, dims).has_value();
    case OpKind::kAlltoall: {
      if (dims.size() != members * members) {
        return false;
      }
      const std::span<const int64_t> own = std::span(dims).subspan(self * members, members);
      return std::equal(own.begin(), own.end(), call.splits.begin(), call.splits.end()) &&
             ReceivedRows(call.signature, dims).has_value();
    }
    default:
      return dims.empty();
  }
}

}  // namespace

/// Of one name: pending, or known by an id, or both.
struct LogFollower::Operation {
  uint32_t id = 0;
  std::optional<Call> known;    // The call for which the id stands.
  std::optional<Call> spelled;  // The pending one, if it is another.
  Ticket ticket = kNoTicket;    // Of the pending one.

  bool is_pending() const { return ticket != kNoTicket; }
  const Call& call() const { return spelled ? *spelled : *known; }
};

struct LogFollower::Names {
  std::map<Key, Operation, KeyLess> operations;
  std::vector<std::map<Key, Operation, KeyLess>::iterator> by_id;  // end(): no such id.

  using Place = std::map<Key, Operation, KeyLess>::iterator;

  Place ById(uint32_t id) { return id < by_id.size() ? by_id[id] : operations.end(); }

  /// False: the coordinator contradicts itself.
  bool Assign(Place place, uint32_t id) {
    if (id > kIdMax || (place->second.id != 0 && place->second.id != id)) {
      return false;
    }
    if (by_id.size() <= id) {
      by_id.resize(id + 1, operations.end());
    }
    if (by_id[id] != operations.end() && by_id[id] != place) {
      return false;
    }
    by_id[id] = place;
    place->second.id = id;
    return true;
  }

  void Forget(Place place) {
    if (place->second.id != 0) {
      by_id[place->second.id] = operations.end();
    }
    operations.erase(place);
  }
};

LogFollower::LogFollower(uint32_t rank, ProcessSets sets)
    : rank_(rank), sets_(std::move(sets)), names_(std::make_unique<Names>()) {
  MUSTER_CHECK(rank_ < sets_.world_size(), "a rank of this world");
}

LogFollower::~LogFollower() = default;

// ---------------------------------------------------------------- calls

std::optional<uint32_t> LogFollower::FindKnown(std::string_view name,
                                               const Signature& signature,
                                               std::span<const int64_t> splits) const {
  const auto it = names_->operations.find(KeyView(signature.set, name));
  if (it == names_->operations.end() || it->second.id == 0 || !it->second.known ||
      signature.kind == OpKind::kAgreement || !it->second.known->Is(signature, splits)) {
    return std::nullopt;  // A vote does not fit into an id.
  }
  return it->second.id;
}

Result<uint32_t> LogFollower::Submit(Ticket ticket,
                                     std::string_view name,
                                     const Signature& signature,
                                     std::span<const int64_t> splits,
                                     bool objected) {
  MUSTER_CHECK(ticket != kNoTicket, "a ticket of the caller's");
  if (joined()) {
    return Status::Invalid("this rank has joined, and takes part in nothing until all have");
  }
  const std::string fault = sets_.FindUseFault(signature.set, rank_);
  if (!fault.empty()) {
    return Status::Invalid(Quoted(name) + ": " + fault);
  }
  if ((signature.kind == OpKind::kJoin) != (name == kJoinName)) {
    return Status::Invalid(Quoted(name) + " is the name of every join, and of nothing else");
  }
  if (signature.kind == OpKind::kJoin) {
    join_ticket_ = ticket;
    ++pending_count_;
    return 0U;
  }
  auto it = names_->operations.find(KeyView(signature.set, name));
  if (it == names_->operations.end()) {
    it = names_->operations.emplace(Key(signature.set, name), Operation()).first;
  }
  Operation& operation = it->second;
  if (operation.is_pending()) {
    return Status::Invalid(Quoted(name) + " is already in flight on this rank");
  }
  operation.ticket = ticket;
  ++pending_count_;
  const bool by_id = operation.id != 0 && operation.known && !objected &&
                     signature.kind != OpKind::kAgreement && operation.known->Is(signature, splits);
  if (by_id) {
    return operation.id;
  }
  operation.spelled = Call{signature, {splits.begin(), splits.end()}, objected};
  return 0U;
}

// ---------------------------------------------------------------- entries

struct LogFollower::EntryVisitor {
  LogFollower& follower;
  Names& names = *follower.names_;

  Result<FollowStep> operator()(const Execute& entry) const;
  Result<FollowStep> operator()(const SmallResult& entry) const {
    return Pass(entry.key, OpKind::kAllreduce, &entry.bytes);
  }
  Result<FollowStep> operator()(const Agreed& entry) const {
    return Pass(entry.key, OpKind::kAgreement);
  }
  Result<FollowStep> operator()(const BarrierPassed& entry) const {
    return Pass(entry.key, OpKind::kBarrier);
  }
  Result<FollowStep> operator()(const AllJoined& entry) const;
  Result<FollowStep> operator()(const SetAdded& entry) const;
  Result<FollowStep> operator()(const SetRemoved& entry) const;
  Result<FollowStep> operator()(const Rejected& entry) const {
    const bool is_about_others =
        !entry.only.empty() &&
        std::find(entry.only.begin(), entry.only.end(), follower.rank_) == entry.only.end();
    return is_about_others ? FollowStep{false, {}, false, {}} : Fail(entry.key);
  }
  Result<FollowStep> operator()(const Unserved& entry) const { return Fail(entry.key); }
  Result<FollowStep> operator()(const MemberFinished& entry) const;

 private:
  /// This rank's index in the set; -1: it is none of its members.
  Result<int> Index(int32_t set) const;
  /// Null: the rank has joined, and never heard of it.
  Result<Operation*> Find(const OperationKey& key) const;
  /// What needs no data moved. `result`: of a small allreduce.
  Result<FollowStep> Pass(const OperationKey& key,
                          OpKind kind,
                          const std::string* result = nullptr) const;
  Result<FollowStep> Fail(const OperationKey& key) const;
  /// Of an operation that all ranks of the world have asked for.
  Result<Ticket> Own(const OperationKey& key, OpKind kind, const Signature*& signature) const;
  /// Ends the operation's pending call, or what it stands for with a rank that has joined.
  Ticket Complete(const OperationKey& key, Operation* operation, const Signature* joined) const;
  Status Check(const Item& item, const Operation* operation, size_t members, int self) const;
  void EndJoin(FollowStep& step) const;
};

Result<FollowStep> LogFollower::Apply(const LogEntry& entry) {
  return std::visit(EntryVisitor{*this}, entry);
}

Result<int> LogFollower::EntryVisitor::Index(int32_t set) const {
  const ProcessSets::Set* found = follower.sets_.Find(set);
  if (found == nullptr || found->broken()) {
    return Status::Invalid("the log is about process set " + std::to_string(set) +
                           ", which cannot be used");
  }
  return found->IndexOf(follower.rank_);
}

Result<LogFollower::Operation*> LogFollower::EntryVisitor::Find(const OperationKey& key) const {
  Names::Place place =
      key.name.empty() ? names.ById(key.id) : names.operations.find(KeyView(key.set, key.name));
  const bool is_here = place != names.operations.end() && place->first.first == key.set;
  const bool is_pending = is_here && place->second.is_pending();
  if (!is_pending && !(follower.joined() && (is_here || !key.name.empty()))) {
    return Status::Invalid("the log names " + Text(key) + ", which this rank has not submitted");
  }
  if (key.id == 0) {
    return is_here ? &place->second : nullptr;
  }
  if (!is_here) {
    place = names.operations.emplace(Key(key.set, key.name), Operation()).first;
  }
  if (place->second.id != key.id && !names.Assign(place, key.id)) {
    return Status::Invalid("the log gives an id twice: " + Text(key));
  }
  return &place->second;
}

Ticket LogFollower::EntryVisitor::Complete(const OperationKey& key,
                                           Operation* operation,
                                           const Signature* joined) const {
  if (operation == nullptr) {
    return kNoTicket;
  }
  const Ticket ticket = std::exchange(operation->ticket, kNoTicket);
  if (ticket != kNoTicket) {
    --follower.pending_count_;
    if (operation->spelled) {
      operation->known = std::exchange(operation->spelled, std::nullopt);
    }
  } else if (joined != nullptr) {
    operation->known = Call{*joined, {}, false};
  } else {
    operation->known.reset();  // It may have changed, unheard by this rank.
  }
  if (key.id == 0) {
    names.Forget(names.operations.find(KeyView(key.set, key.name)));  // An id it had is taken back.
  }
  return ticket;
}

Status LogFollower::EntryVisitor::Check(const Item& item,
                                        const Operation* operation,
                                        size_t members,
                                        int self) const {
  const bool is_pending = operation != nullptr && operation->is_pending();
  if (is_pending) {
    const Call& call = operation->call();
    const bool may = operation->spelled ? IsData(call.signature.kind) && !call.objected &&
                                              FindFault(call.signature, follower.sets_).empty()
                                        : IsData(call.signature.kind);
    const bool right = may && item.joined.size() <= 1 &&
                       (item.joined.empty() || item.joined.front() == call.signature) &&
                       HasRightDims(call, item.dims, members, static_cast<size_t>(self));
    return right ? Status::Ok()
                 : Status::Invalid("the log executes " + Text(item.key) +
                                   " in another way than this rank asked for");
  }
  const bool right = item.joined.size() == 1 && item.dims.empty() &&
                     item.joined.front().kind == OpKind::kAllreduce &&
                     item.joined.front().set == item.key.set &&
                     item.joined.front().op != Op::kAdasum &&
                     FindFault(item.joined.front(), follower.sets_).empty();
  return right ? Status::Ok()
               : Status::Invalid("the log does not tell a rank that has joined how to execute " +
                                 Text(item.key));
}

Result<FollowStep> LogFollower::EntryVisitor::operator()(const Execute& entry) const {
  const Result<int> index = Index(entry.set);
  if (!index.ok()) {
    return index.status();
  }
  FollowStep step;
  if (index.value() < 0) {
    step.concerns = false;
    return step;
  }
  if (entry.items.empty()) {
    return Status::Invalid("the log executes nothing");
  }
  const size_t members = follower.sets_.Find(entry.set)->size();
  step.tickets.reserve(entry.items.size());
  std::optional<FusionClass> common;
  for (const Item& item : entry.items) {
    if (item.key.set != entry.set) {
      return Status::Invalid("the log mixes process sets: " + Text(item.key));
    }
    const Result<Operation*> operation = Find(item.key);
    if (!operation.ok()) {
      return operation.status();
    }
    Status status = Check(item, operation.value(), members, index.value());
    if (!status.ok()) {
      return status;
    }
    const bool is_pending = operation.value() != nullptr && operation.value()->is_pending();
    const Signature* joined = item.joined.empty() ? nullptr : &item.joined.front();
    const FusionClass own = ClassOf(is_pending ? operation.value()->call().signature : *joined);
    if (entry.items.size() > 1 &&
        (own.kind != OpKind::kAllreduce || own.op == Op::kAdasum || own != common.value_or(own))) {
      return Status::Invalid("the log fuses what is not alike: " + Text(item.key));
    }
    common = own;
    step.tickets.push_back(Complete(item.key, operation.value(), joined));
  }
  return step;
}

Result<FollowStep> LogFollower::EntryVisitor::Pass(const OperationKey& key,
                                                   OpKind kind,
                                                   const std::string* result) const {
  const Result<int> index = Index(key.set);
  if (!index.ok()) {
    return index.status();
  }
  FollowStep step;
  if (index.value() < 0) {
    step.concerns = false;
    return step;
  }
  const Result<Operation*> operation = Find(key);
  if (!operation.ok()) {
    return operation.status();
  }
  if (operation.value() != nullptr && operation.value()->is_pending()) {
    const Signature& signature = operation.value()->call().signature;
    if (signature.kind != kind) {
      return Status::Invalid("the log takes " + Text(key) + " for another kind of operation");
    }
    const auto count = ElementCount(signature.shape, signature.dtype);
    if (result != nullptr &&
        (!count || static_cast<size_t>(*count) * ElementSize(signature.dtype) != result->size())) {
      return Status::Invalid("the log brings " + std::to_string(result->size()) +
                             " bytes as the result of " + Text(key));
    }
  }
  const Ticket ticket = Complete(key, operation.value(), nullptr);
  step.while_joined = ticket == kNoTicket;
  if (ticket != kNoTicket) {
    step.tickets.push_back(ticket);
  }
  return step;
}

// After a failure the coordinator may have forgotten the id, so the next call goes in full.
Result<FollowStep> LogFollower::EntryVisitor::Fail(const OperationKey& key) const {
  const Result<int> index = Index(key.set);
  if (!index.ok()) {
    return index.status();
  }
  FollowStep step;
  if (index.value() < 0) {
    step.concerns = false;
    return step;
  }
  if (key.set == 0 && key.name == kJoinName) {
    EndJoin(step);
    return step;
  }
  const Names::Place place =
      key.name.empty() ? names.ById(key.id) : names.operations.find(KeyView(key.set, key.name));
  if (place == names.operations.end() || place->first.first != key.set) {
    return step;
  }
  if (place->second.is_pending()) {
    step.tickets.push_back(place->second.ticket);
    --follower.pending_count_;
  }
  names.Forget(place);
  return step;
}

void LogFollower::EntryVisitor::EndJoin(FollowStep& step) const {
  if (follower.joined()) {
    step.tickets.push_back(std::exchange(follower.join_ticket_, kNoTicket));
    --follower.pending_count_;
  }
}

Result<FollowStep> LogFollower::EntryVisitor::operator()(const AllJoined& entry) const {
  if (!follower.joined() || entry.last_rank >= follower.sets_.world_size()) {
    return Status::Invalid("the log says that all have joined, rank " +
                           std::to_string(entry.last_rank) + " last");
  }
  FollowStep step;
  EndJoin(step);
  return step;
}

Result<Ticket> LogFollower::EntryVisitor::Own(const OperationKey& key,
                                              OpKind kind,
                                              const Signature*& signature) const {
  const Names::Place place = names.operations.find(KeyView(0, key.name));
  if (key.set != 0 || key.id != 0 || place == names.operations.end() ||
      !place->second.is_pending() || place->second.call().signature.kind != kind) {
    return Status::Invalid("the log changes the process sets with " + Text(key) +
                           ", which this rank has not submitted");
  }
  signature = &place->second.call().signature;
  return place->second.ticket;
}

Result<FollowStep> LogFollower::EntryVisitor::operator()(const SetAdded& entry) const {
  const Signature* signature = nullptr;
  const Result<Ticket> ticket = Own(entry.key, OpKind::kAddSet, signature);
  if (!ticket.ok()) {
    return ticket.status();
  }
  const std::string fault = follower.sets_.FindAddFault(entry.ranks);
  if (signature->ranks != entry.ranks || entry.set != follower.sets_.next_id() || !fault.empty()) {
    return Status::Invalid("the log adds process set " + std::to_string(entry.set) +
                           ", which is not the one that this rank asked for: " + fault);
  }
  follower.sets_.Add(entry.ranks);
  FollowStep step;
  step.tickets.push_back(ticket.value());
  Fail(entry.key).value();  // Done with, as after a failure: there is no id to keep.
  return step;
}

Result<FollowStep> LogFollower::EntryVisitor::operator()(const SetRemoved& entry) const {
  const Signature* signature = nullptr;
  const Result<Ticket> ticket = Own(entry.key, OpKind::kRemoveSet, signature);
  if (!ticket.ok()) {
    return ticket.status();
  }
  const std::string fault = follower.sets_.FindRemoveFault(entry.set);
  if (signature->root != entry.set || !fault.empty()) {
    return Status::Invalid("the log removes process set " + std::to_string(entry.set) +
                           ", which is not the one that this rank asked for: " + fault);
  }
  FollowStep step;
  step.tickets.push_back(ticket.value());
  Fail(entry.key).value();
  for (auto place = names.operations.lower_bound(KeyView(entry.set, ""));
       place != names.operations.end() && place->first.first == entry.set;) {
    if (place->second.is_pending()) {
      step.orphans.push_back(place->second.ticket);
      --follower.pending_count_;
    }
    names.Forget(place++);
  }
  std::sort(step.orphans.begin(), step.orphans.end());
  follower.sets_.Remove(entry.set);
  return step;
}

Result<FollowStep> LogFollower::EntryVisitor::operator()(const MemberFinished& entry) const {
  if (entry.rank >= follower.sets_.world_size()) {
    return Status::Invalid("the log says that rank " + std::to_string(entry.rank) +
                           " has finished, which does not exist");
  }
  return FollowStep();
}

}  // namespace muster::worker
