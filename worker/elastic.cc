#include "muster/elastic.h"

#include <algorithm>
#include <optional>

#include "worker/elastic_state.h"
#include "worker/elastic_sync.h"
#include "worker/fault.h"
#include "worker/trace_fields.h"

namespace muster::elastic {
namespace {

using worker::GetRuntime;
using worker::OpKind;
using worker::Registered;
using worker::Runtime;
using worker::Snapshot;
using worker::Submission;
using worker::TraceFields;

class ValueMember final : public Member {
 public:
  ValueMember(std::function<std::string()> save, std::function<void(std::string_view)> load)
      : save_(std::move(save)), load_(std::move(load)) {}
  std::vector<Tensor> tensors() override { return {}; }
  std::string save() override { return save_(); }
  void load(std::string_view bytes) override { load_(bytes); }

 private:
  std::function<std::string()> save_;
  std::function<void(std::string_view)> load_;
};

class TensorMember final : public Member {
 public:
  explicit TensorMember(Tensor live) : live_(std::move(live)) {}
  std::vector<Tensor> tensors() override { return {live_}; }
  std::string save() override { return {}; }
  void load(std::string_view) override {}

 private:
  Tensor live_;
};

Registered Own(std::string name, bool per_rank, std::unique_ptr<Member> member) {
  Registered entry{.name = std::move(name), .per_rank = per_rank};
  entry.member = member.get();
  entry.owned = std::move(member);
  return entry;
}

}  // namespace

void State::Impl::Register(Registered entry) {
  if (fixed_) {
    throw Error("elastic::State: \"" + entry.name + "\" is added after the first sync");
  }
  const bool known = std::any_of(entries_.begin(), entries_.end(), [&](const Registered& other) {
    return other.name == entry.name;
  });
  if (known) {
    throw Error("elastic::State: two members have the name \"" + entry.name + "\"");
  }
  worker::LiveTensors(entry);  // A tensor that cannot be committed is refused where it is named.
  entries_.push_back(std::move(entry));
}

void State::Impl::TakeSnapshot(Runtime& runtime, muster::CommitId commit) {
  const int rank = runtime.place().rank;
  snapshot_.Take(
      entries_, Snapshot::Copy::kChanged, [rank] { worker::FaultPoint("commit_copy", rank); });
  ledger_.Hold(commit);
  runtime.SetHeld(commit);
  if (runtime.trace().enabled()) {
    runtime.trace().Write("commit", TraceFields(runtime.place(), commit));
  }
}

// Agreements that passed while this rank had joined count as on the other ranks.
muster::CommitId State::Impl::NextCommit(const Runtime& runtime) const {
  return ledger_.Next(runtime.place().generation, runtime.JoinedAgreements());
}

bool State::Impl::Agree(Runtime& runtime) {
  const Generation generation = runtime.place().generation;
  const std::optional<PostedAgreement> previous = std::exchange(posted_, std::nullopt);
  Submission submission;
  submission.kind = OpKind::kAgreement;
  // Two are under way at most, so two names do; a name of its own for each would fill the tables
  // that remember names.
  submission.name = "muster.agreement." + std::to_string(NextCommit(runtime).sequence % 2);
  submission.vote = runtime.PendingChange();
  posted_ = {.generation = generation, .handle = runtime.Submit(std::move(submission))};
  ledger_.Posted(generation);
  if (!previous || previous->generation != generation) {
    return false;
  }
  Handle handle = previous->handle;
  return runtime.Value(handle) != 0;
}

void State::Impl::Commit() {
  Runtime& runtime = GetRuntime();
  worker::FaultPoint("commit", runtime.place().rank);
  // The snapshot comes first: whatever the agreement meets, this place is committed.
  TakeSnapshot(runtime, NextCommit(runtime));
  if (Agree(runtime)) {
    throw HostsUpdated("the world will change at commit " +
                       std::to_string(ledger_.held()->sequence) + " of generation " +
                       std::to_string(ledger_.held()->generation));
  }
}

void State::Impl::CheckHostUpdates() {
  Runtime& runtime = GetRuntime();
  const muster::CommitId commit = NextCommit(runtime);
  if (Agree(runtime)) {
    TakeSnapshot(runtime, commit);
    throw HostsUpdated("the world will change at check " + std::to_string(commit.sequence) +
                       " of generation " + std::to_string(commit.generation));
  }
}

bool State::Impl::Restore() {
  if (!ledger_.held()) {
    return false;
  }
  snapshot_.WriteBack(entries_, Snapshot::Part::kAll);
  return true;
}

void State::Impl::Sync() {
  Runtime& runtime = GetRuntime();
  fixed_ = true;
  const worker::SyncReport report =
      worker::Synchronizer(runtime, entries_, snapshot_, ledger_).Run();
  const muster::CommitId commit = report.source.commit;
  runtime.SetHeld(commit);
  runtime.ReportSynced(commit);
  if (runtime.trace().enabled()) {
    nlohmann::json fields = TraceFields(runtime.place(), commit);
    fields["source"] = report.source.rank;
    fields["bytes"] = report.bytes;
    runtime.trace().Write("sync", std::move(fields));
  }
}

State::State() : impl_(std::make_unique<Impl>()) {}
State::~State() = default;

void State::add_value(std::string name,
                      std::function<std::string()> save,
                      std::function<void(std::string_view)> load) {
  impl_->Register(
      Own(std::move(name), false, std::make_unique<ValueMember>(std::move(save), std::move(load))));
}

State& State::tensor(std::string name, Tensor live, TensorOptions options) {
  impl_->Register(
      Own(std::move(name), options.per_rank, std::make_unique<TensorMember>(std::move(live))));
  return *this;
}

State& State::member(std::string name, Member& m, TensorOptions options) {
  Registered entry{.name = std::move(name), .per_rank = options.per_rank, .member = &m};
  impl_->Register(std::move(entry));
  return *this;
}

void State::commit() {
  impl_->Commit();
}
void State::check_host_updates() {
  impl_->CheckHostUpdates();
}
void State::sync() {
  impl_->Sync();
}

void State::restore() {
  Runtime& runtime = GetRuntime();
  if (impl_->Restore() && runtime.trace().enabled()) {
    runtime.trace().Write("restore", TraceFields(runtime.place(), impl_->ledger().held()));
  }
}

// Every commit copies at once, so there is never a copy to wait for.
void State::before_write() {}

void State::register_reset_callbacks(std::vector<std::function<void()>> callbacks) {
  for (std::function<void()>& callback : callbacks) {
    impl_->reset_callbacks.push_back(std::move(callback));
  }
}

CommitId State::last_commit() const {
  const std::optional<muster::CommitId>& held = impl_->ledger().held();
  return held ? CommitId{held->generation, held->sequence} : CommitId{};
}

}  // namespace muster::elastic
