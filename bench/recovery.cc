#include "bench/recovery.h"

#include <signal.h>

#include <algorithm>

#include "common/check.h"

namespace muster::bench {
namespace {

std::optional<Milestone> MilestoneOf(const std::string& kind) {
  static const std::map<std::string, Milestone> milestones = {
      {"lost", Milestone::kLost},
      {"restore", Milestone::kRestored},
      {"world", Milestone::kWorld},
      {"sync", Milestone::kSynced},
      {"step", Milestone::kStep},
  };
  const auto found = milestones.find(kind);
  return found == milestones.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

const std::string& PhaseName(Milestone end) {
  static const std::array<std::string, kMilestones> names = {
      "kill to lost", "lost to restored", "restored to world", "world to synced", "synced to step"};
  return names.at(static_cast<size_t>(end));
}

Recovery::Recovery(Loss loss) : loss_(std::move(loss)), missing_(loss_.survivors) {
  MUSTER_CHECK(!missing_.empty(), "a loss that nobody survives");
}

Status Recovery::Add(const TraceEvent& event) {
  if (event.kind == "finish") {
    return Status::Failed("the job ended: " + event.cause);
  }
  if (event.t_ns < loss_.t_ns) {
    return Status::Ok();
  }
  if (event.kind == "reaped") {
    if (event.incarnation != loss_.victim || event.signal != SIGKILL) {
      return Status::Failed(
          "worker " + std::to_string(event.incarnation) + " ended " +
          (event.signal == 0 ? "by itself" : "by signal " + std::to_string(event.signal)) +
          "; worker " + std::to_string(loss_.victim) + " was to end by signal 9");
    }
    reaped_ = true;
  } else if (event.kind == "form" && !to_form_ns_) {
    to_form_ns_ = event.t_ns - loss_.t_ns;
  } else if (missing_.contains(event.incarnation)) {
    Pass(event);
  }
  return Status::Ok();
}

void Recovery::Pass(const TraceEvent& event) {
  const std::optional<Milestone> milestone = MilestoneOf(event.kind);
  if (!milestone || (milestone == Milestone::kStep && event.generation <= loss_.generation)) {
    return;
  }
  Survivor& survivor = survivors_[event.incarnation];
  int64_t& at = survivor.at_ns[static_cast<size_t>(*milestone)];
  // When several worlds are tried, the first loss and the way into the last of them count.
  if (milestone != Milestone::kLost || at == 0) {
    at = event.t_ns - loss_.t_ns;
  }
  if (milestone != Milestone::kStep) {
    return;
  }
  survivor.generation = event.generation;
  missing_.erase(event.incarnation);
  const auto known = survivors_.find(last_);
  if (known == survivors_.end() ||
      known->second.at_ns[static_cast<size_t>(Milestone::kStep)] < at) {
    last_ = event.incarnation;
  }
}

std::array<int64_t, kMilestones> Recovery::PhasesNs() const {
  std::array<int64_t, kMilestones> phases{};
  int64_t before = 0;
  for (size_t i = 0; i < kMilestones; ++i) {
    // One that was not passed, or only in an earlier world, takes no time of its own.
    const int64_t at = std::max(last().at_ns[i], before);
    phases[i] = at - before;
    before = at;
  }
  return phases;
}

}  // namespace muster::bench
