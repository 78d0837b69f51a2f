#include "test/support/fake_runtime.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/core/dtype.h"

namespace muster::testing {
namespace {

using worker::Awaited;
using worker::OpKind;
using worker::Submission;

constexpr std::chrono::seconds kDeadline{20};

size_t Bytes(const Tensor& tensor) {
  return static_cast<size_t>(*worker::ElementCount(tensor.shape, tensor.dtype)) *
         worker::ElementSize(tensor.dtype);
}

void Gather(const std::map<int, const Submission*>& parts) {
  int64_t rows = 0;
  for (const auto& [rank, part] : parts) {
    rows += part->in.shape.at(0);
  }
  for (const auto& [to, receiver] : parts) {
    Shape shape = receiver->in.shape;
    shape[0] = rows;
    auto* out = static_cast<char*>(receiver->allocate(shape, receiver->in.dtype, {}));
    for (const auto& [from, sender] : parts) {
      std::memcpy(out, sender->in.data, Bytes(sender->in));
      out += Bytes(sender->in);
    }
  }
}

void Spread(const std::map<int, const Submission*>& parts) {
  const Submission& root = *parts.at(parts.begin()->second->root);
  for (const auto& [rank, part] : parts) {
    MUSTER_CHECK_EQ(Bytes(part->in), Bytes(root.in));
    MUSTER_CHECK_EQ(part->root, root.root);
    if (part->in.data != root.in.data && Bytes(root.in) > 0) {
      std::memcpy(part->in.data, root.in.data, Bytes(root.in));
    }
  }
}

// There is no executor here: callbacks run at once.
void End(Operation& operation, std::exception_ptr error, int64_t value = 0) {
  if (operation.Complete(std::move(error), value)) {
    operation.RunCallbacks();
  }
}

void SumDoubles(const std::map<int, const Submission*>& parts) {
  const size_t count = Bytes(parts.begin()->second->in) / sizeof(double);
  std::vector<double> sum(count, 0.0);
  for (const auto& [rank, part] : parts) {
    MUSTER_CHECK(part->in.dtype == DType::kF64, "the fake sums doubles only");
    for (size_t i = 0; i < count; ++i) {
      sum[i] += static_cast<const double*>(part->in.data)[i];
    }
  }
  for (const auto& [rank, part] : parts) {
    std::memcpy(part->out.data, sum.data(), count * sizeof(double));
  }
}

}  // namespace

// ---------------------------------------------------------------- FakeRuntime

FakeRuntime::FakeRuntime(FakeJob& job, int id, const std::string& trace_path)
    : job_(job), id_(id), trace_(trace_path) {
  place_.host = "fake";
  place_.slot = id;
}

Handle FakeRuntime::Submit(Submission submission) {
  submitted.push_back(submission.name);
  return job_.Submit(*this, std::move(submission));
}

// The fake knows single operations only.
Handle FakeRuntime::SubmitGroup(std::vector<Submission> members) {
  MUSTER_CHECK_EQ(members.size(), size_t{1});
  return Submit(std::move(members.front()));
}

int64_t FakeRuntime::Value(Handle& handle) {
  return OperationAccess::Of(handle).WaitForValue();
}

bool FakeRuntime::PendingChange() const {
  return job_.PendingChange(id_);
}
void FakeRuntime::Leave() {
  job_.Leave(*this);
}
Awaited FakeRuntime::AwaitWorld() {
  return job_.AwaitWorld(*this);
}

// ---------------------------------------------------------------- FakeJob: threads

FakeJob::FakeJob(int size, std::string trace_path) : trace_path_(std::move(trace_path)) {
  const MutexLock lock(mutex_);
  states_.resize(size);
  for (int id = 0; id < size; ++id) {
    workers_.push_back(std::make_unique<FakeRuntime>(*this, id, trace_path_));
    members_.push_back(id);
  }
  for (const auto& runtime : workers_) {
    Adopt(*runtime);
  }
}

FakeJob::~FakeJob() {
  threads_.clear();
}

int FakeJob::AddNewcomer() {
  const MutexLock lock(mutex_);
  const int id = static_cast<int>(workers_.size());
  workers_.push_back(std::make_unique<FakeRuntime>(*this, id, trace_path_));
  states_.emplace_back();
  return id;
}

void FakeJob::Start(int id, Body body) {
  threads_.emplace_back([this, id, body = std::move(body)] {
    FakeRuntime& runtime = *workers_.at(id);
    worker::SetThreadRuntime(&runtime);
    try {
      body(runtime);
    } catch (const FakeDeath&) {
      return;
    } catch (...) {
      const MutexLock lock(mutex_);
      if (!failure_) {
        failure_ = std::current_exception();
      }
      Lose(id);  // A process that ends: the others are not left waiting.
    }
  });
}

void FakeJob::RunAll(const Body& body) {
  for (size_t id = 0; id < workers_.size(); ++id) {
    Start(static_cast<int>(id), body);
  }
  Join();
}

void FakeJob::Join() {
  threads_.clear();
  const MutexLock lock(mutex_);
  if (failure_) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

// ---------------------------------------------------------------- FakeJob: what happens to it

void FakeJob::LoseAt(int id, const std::string& operation, int nth, Moment moment) {
  const MutexLock lock(mutex_);
  deaths_.push_back({id, operation, nth, moment});
}

void FakeJob::Die(int id) {
  const MutexLock lock(mutex_);
  Lose(id);
  throw FakeDeath{};
}

void FakeJob::NotifyPending() {
  const MutexLock lock(mutex_);
  for (const int id : members_) {
    states_[id].told = true;
  }
}

void FakeJob::NotifyPending(int id) {
  const MutexLock lock(mutex_);
  states_[id].told = true;
}

void FakeJob::Drain(int id) {
  const MutexLock lock(mutex_);
  states_[id].draining = true;
  states_[id].told = true;
}

void FakeJob::WaitUntilWarm(int id) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  const MutexLock lock(mutex_);
  while (!states_[id].warm) {
    WaitChange(deadline);
  }
}

uint64_t FakeJob::generation() const {
  const MutexLock lock(mutex_);
  return generation_;
}

void FakeJob::Lose(int id) {
  states_[id].lost = true;
  if (std::find(members_.begin(), members_.end(), id) != members_.end()) {
    Revoke("worker " + std::to_string(id) + " was lost");
    FormWorld();
  }
  changed_.NotifyAll();
}

void FakeJob::Revoke(const std::string& reason) {
  for (auto& [name, meeting] : std::exchange(meetings_, {})) {
    for (auto& [rank, part] : meeting.parts) {
      End(*part.operation, std::make_exception_ptr(WorkersLost(reason)));
    }
  }
  reason_ = reason;
}

void FakeJob::FormWorld() {
  std::vector<int> next;
  for (const int id : members_) {
    if (!states_[id].lost && !(states_[id].draining && states_[id].left)) {
      next.push_back(id);
    }
  }
  for (size_t id = 0; id < states_.size(); ++id) {
    const bool member = std::find(members_.begin(), members_.end(), id) != members_.end();
    if (states_[id].warm && !states_[id].lost && !member) {
      next.push_back(static_cast<int>(id));
      states_[id].warm = false;
    }
  }
  for (const int id : next) {
    states_[id].left = false;
    states_[id].told = states_[id].draining;
  }
  members_ = next;
  ++generation_;
  changed_.NotifyAll();
}

void FakeJob::Adopt(FakeRuntime& runtime) {
  const auto me = std::find(members_.begin(), members_.end(), runtime.id_);
  runtime.place_.generation = Generation{generation_};
  runtime.place_.rank = static_cast<int>(me - members_.begin());
  runtime.place_.size = static_cast<int>(members_.size());
  runtime.place_.local_rank = runtime.place_.rank;
  runtime.place_.local_size = runtime.place_.size;
}

void FakeJob::WaitChange(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= left.zero()) {
    throw std::runtime_error("a worker of the fake job waited too long");
  }
  changed_.WaitFor(mutex_, left);
}

// ---------------------------------------------------------------- FakeJob: the runtimes' side

bool FakeJob::PendingChange(int id) const {
  const MutexLock lock(mutex_);
  return states_[id].told;
}

void FakeJob::Leave(FakeRuntime& runtime) {
  const MutexLock lock(mutex_);
  if (runtime.place_.generation.value != generation_) {
    return;  // A loss was faster.
  }
  states_[runtime.id_].left = true;
  const bool all =
      std::all_of(members_.begin(), members_.end(), [&](int id) { return states_[id].left; });
  if (all) {
    Revoke("every member has left");
    FormWorld();
  }
}

Awaited FakeJob::AwaitWorld(FakeRuntime& runtime) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  const MutexLock lock(mutex_);
  Worker& state = states_[runtime.id_];
  state.warm = runtime.place_.generation == Generation{};
  changed_.NotifyAll();
  while (true) {
    const bool member = std::find(members_.begin(), members_.end(), runtime.id_) != members_.end();
    if (member && generation_ > runtime.place_.generation.value) {
      Adopt(runtime);
      return Awaited::kWorld;
    }
    if (state.draining && !member) {
      return Awaited::kReleased;
    }
    WaitChange(deadline);
  }
}

std::optional<FakeJob::Moment> FakeJob::TakeDeath(int id, const std::string& operation) {
  for (Death& death : deaths_) {
    if (death.id == id && death.operation == operation && --death.nth == 0) {
      return death.moment;
    }
  }
  return std::nullopt;
}

Handle FakeJob::Submit(FakeRuntime& runtime, Submission submission) {
  if (runtime.place_.generation == Generation{}) {
    throw InvalidCollective("a newcomer has no world yet");
  }
  const MutexLock lock(mutex_);
  const std::optional<Moment> death = TakeDeath(runtime.id_, submission.name);
  if (death == Moment::kBefore) {
    Lose(runtime.id_);
    throw FakeDeath{};
  }
  auto operation = std::make_shared<Operation>();
  if (runtime.place_.generation.value != generation_) {
    End(*operation, std::make_exception_ptr(WorkersLost(reason_)));
    return Handle(operation);
  }
  const std::string name =
      std::to_string(static_cast<int>(submission.kind)) + " " + submission.name;
  Meeting& meeting = meetings_[name];
  MUSTER_CHECK(!meeting.parts.contains(runtime.place_.rank), name + " is under way already");
  meeting.parts[runtime.place_.rank] = {std::move(submission), operation};
  if (meeting.parts.size() == members_.size()) {
    Complete(std::move(meetings_.extract(name).mapped()));
  }
  if (death == Moment::kAfter) {
    Lose(runtime.id_);
    throw FakeDeath{};
  }
  return Handle(operation);
}

void FakeJob::Complete(Meeting meeting) {
  std::map<int, const Submission*> parts;
  bool vote = false;
  for (const auto& [rank, part] : meeting.parts) {
    parts[rank] = &part.submission;
    vote = vote || part.submission.vote;
  }
  switch (parts.begin()->second->kind) {
    case OpKind::kAllgather:
      Gather(parts);
      break;
    case OpKind::kBroadcast:
      Spread(parts);
      break;
    case OpKind::kAllreduce:
      SumDoubles(parts);
      break;
    case OpKind::kBarrier:
    case OpKind::kAgreement:
      break;
    default:
      MUSTER_CHECK(false, "the fake does not know this operation");
  }
  for (auto& [rank, part] : meeting.parts) {
    End(*part.operation, nullptr, vote ? 1 : 0);
  }
}

}  // namespace muster::testing
