#include "test/sim/job/sim_generation.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "common/address.h"
#include "test/sim/job/sim_worker.h"
#include "test/sim/job/site.h"
#include "worker/core/dtype.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using worker::OpKind;

constexpr Duration kRetry = milliseconds(20);

size_t BytesOf(const Tensor& tensor) {
  return tensor.data == nullptr
             ? 0
             : static_cast<size_t>(*worker::ElementCount(tensor.shape, tensor.dtype)) *
                   worker::ElementSize(tensor.dtype);
}

std::string SumOfDoubles(const std::vector<const std::string*>& parts) {
  std::vector<double> sum(parts.front()->size() / sizeof(double), 0.0);
  for (const std::string* part : parts) {
    for (size_t i = 0; i < sum.size(); ++i) {
      double value = 0;
      std::memcpy(&value, part->data() + i * sizeof value, sizeof value);
      sum[i] += value;
    }
  }
  return {reinterpret_cast<const char*>(sum.data()), sum.size() * sizeof(double)};
}

}  // namespace

SimGeneration::SimGeneration(Site& site, uint64_t number, std::string link_key, uint32_t size)
    : site_(site), number_(number), link_key_(std::move(link_key)), size_(size) {}

void SimGeneration::Come(uint32_t rank, SimWorker& worker) {
  if (!came_.emplace(rank, &worker).second) {
    site_.universe.Wrong("two workers have rank " + std::to_string(rank) + " in generation " +
                         std::to_string(number_));
  }
  members_[rank] = &worker;
  site_.observer.OnCame(worker, *this);
  TryForm();
}

void SimGeneration::Go(uint32_t rank, bool died) {
  const auto it = members_.find(rank);
  if (it == members_.end()) {
    return;
  }
  members_.erase(it);
  broken_ = true;
  if (!died) {
    return;
  }
  for (const auto& [peer, worker] : members_) {
    if (site_.universe.Chance(40)) {
      Suspect(peer, rank, "the link to rank " + std::to_string(rank) + " broke");
    }
  }
}

void SimGeneration::BreakLink(uint32_t one, uint32_t two) {
  broken_ = true;
  Suspect(one, two, "connection reset by peer");
  if (site_.universe.Chance(50)) {
    Suspect(two, one, "connection reset by peer");
  }
}

void SimGeneration::Suspect(uint32_t reporter, uint32_t suspect, const std::string& evidence) {
  const auto it = members_.find(reporter);
  if (it != members_.end()) {
    it->second->ReportBroken(
        number_, suspect, evidence, site_.universe.Between(microseconds(50), milliseconds(40)));
  }
}

// All are there, run, and reach each other.
bool SimGeneration::CanWork() const {
  if (broken_ || members_.size() < size_) {
    return false;
  }
  std::set<std::string> machines;
  for (const auto& [rank, worker] : members_) {
    if (worker->process()->stopped) {
      return false;
    }
    machines.insert(worker->process()->address);
  }
  return std::all_of(machines.begin(), machines.end(), [&](const std::string& from) {
    return std::all_of(machines.begin(), machines.end(), [&](const std::string& to) {
      return site_.network.Reaches(from, to);
    });
  });
}

void SimGeneration::Retry(Action action) {
  site_.universe.At(kRetry, std::move(action));
}

void SimGeneration::TryForm() {
  if (formed_ || broken_ || members_.size() < size_) {
    return;
  }
  if (!CanWork()) {
    Retry([self = shared_from_this()] { self->TryForm(); });
    return;
  }
  CheckAddresses();
  formed_ = true;
  for (const auto& [rank, worker] : members_) {
    worker->FormedSoon(number_, site_.universe.Between(microseconds(200), milliseconds(20)));
  }
}

// Every member was told of an address at which rank 0 can be reached from its machine.
void SimGeneration::CheckAddresses() const {
  const std::string& rank0 = members_.at(0)->process()->address;
  for (const auto& [rank, worker] : members_) {
    const bool same_machine = worker->process()->address == rank0;
    const auto reaches = [&](const std::string& literal) {
      const std::string host = SplitAddress(literal).value().host;
      return IsLoopbackAddress(literal) ? same_machine : host == rank0;
    };
    const std::vector<std::string>& told = worker->coordinator();
    if (std::none_of(told.begin(), told.end(), reaches)) {
      site_.universe.Wrong("rank " + std::to_string(rank) + " of generation " +
                           std::to_string(number_) + " cannot reach rank 0");
    }
  }
}

void SimGeneration::Submit(uint32_t rank,
                           worker::Submission submission,
                           std::shared_ptr<Operation> operation) {
  std::string bytes(static_cast<const char*>(submission.in.data), BytesOf(submission.in));
  const std::string name =
      std::to_string(static_cast<int>(submission.kind)) + " " + submission.name;
  Part part{std::move(submission), std::move(bytes), std::move(operation), members_.at(rank)};
  if (!meetings_[name].emplace(rank, std::move(part)).second) {
    site_.universe.Wrong("rank " + std::to_string(rank) + " submits " + name + " twice");
  }
  if (meetings_[name].size() == size_) {
    TryExecute(name);
  }
}

void SimGeneration::TryExecute(const std::string& name) {
  const auto it = meetings_.find(name);
  if (broken_ || it == meetings_.end() || it->second.size() < size_) {
    return;
  }
  if (!CanWork()) {
    Retry([self = shared_from_this(), name] { self->TryExecute(name); });
    return;
  }
  Execute(std::move(meetings_.extract(it).mapped()));
}

void SimGeneration::Execute(Meeting meeting) {
  const worker::Submission& first = meeting.begin()->second.submission;
  std::string result;
  bool vote = false;
  std::vector<const std::string*> parts;
  for (const auto& [rank, part] : meeting) {
    parts.push_back(&part.bytes);
    vote |= part.submission.vote;
  }
  switch (first.kind) {
    case OpKind::kAllgather:
      for (const std::string* part : parts) {
        result += *part;
      }
      break;
    case OpKind::kBroadcast:
      result = meeting.at(static_cast<uint32_t>(first.root)).bytes;
      break;
    case OpKind::kAllreduce:
      result = SumOfDoubles(parts);
      break;
    case OpKind::kBarrier:
    case OpKind::kAgreement:
      break;
    default:
      site_.universe.Wrong("a collective that the simulation does not know");
  }
  for (auto& [rank, part] : meeting) {
    part.worker->CompleteSoon(number_,
                              std::move(part.submission),
                              std::move(part.operation),
                              result,
                              vote ? 1 : 0,
                              site_.universe.Between(microseconds(20), milliseconds(3)));
  }
}

}  // namespace muster::sim
