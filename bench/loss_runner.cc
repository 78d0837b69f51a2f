#include "bench/loss_runner.h"

#include <signal.h>

#include <set>
#include <vector>

#include "bench/process_waits.h"
#include "common/process.h"

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Between full size and the next loss: long enough that a spare which has called init() is warm.
constexpr std::chrono::milliseconds kPauseMin{100};
constexpr uint64_t kPauseSpreadUs = 100'000;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

std::string ListOf(const std::set<uint64_t>& incarnations) {
  std::string text;
  for (const uint64_t incarnation : incarnations) {
    text += " " + std::to_string(incarnation);
  }
  return text;
}

}  // namespace

const std::string& Name(LossKind kind) {
  static const std::array<std::string, 2> names = {"SIGKILL", "SIGSTOP"};
  return names.at(static_cast<size_t>(kind));
}

Result<std::unique_ptr<LossRunner>> LossRunner::Start(const ElasticJobOptions& options,
                                                      std::chrono::seconds timeout,
                                                      uint64_t seed) {
  Result<std::unique_ptr<ElasticJob>> job = ElasticJob::Start(options);
  if (!job.ok()) {
    return job.status();
  }
  std::unique_ptr<LossRunner> runner(
      new LossRunner(std::move(job).value(), options, timeout, seed));
  Status status = runner->WaitForFullSize();
  if (!status.ok()) {
    return runner->job_->Failure(status.message());
  }
  return runner;
}

Status LossRunner::WaitUntil(const std::function<bool()>& done,
                             const std::function<std::string()>& missing) {
  const Deadline deadline = Clock::now() + timeout_;
  while (!done()) {
    if (Clock::now() >= deadline) {
      return Status::Failed("not within " + std::to_string(timeout_.count()) + " s: " + missing());
    }
    const Result<std::vector<TraceEvent>> events = job_->Next();
    if (!events.ok()) {
      return events.status();
    }
    for (const TraceEvent& event : events.value()) {
      view_.Add(event);
      if (Status status = recovery_ ? recovery_->Add(event) : Status::Ok(); !status.ok()) {
        return status;
      }
    }
  }
  return Status::Ok();
}

Status LossRunner::WaitForFullSize() {
  return WaitUntil(
      [this] {
        return view_.Trains(options_.workers) &&
               view_.waiting() >= static_cast<size_t>(options_.spares);
      },
      [this] {
        return "a world of " + std::to_string(options_.workers) + " that trains, with " +
               std::to_string(options_.spares) + " spares";
      });
}

Status LossRunner::WaitForRandomMoment() {
  const Deadline moment =
      Clock::now() + kPauseMin + std::chrono::microseconds(random_.Below(kPauseSpreadUs));
  return WaitUntil([moment] { return Clock::now() >= moment; },
                   [] { return std::string("a random moment"); });
}

Status LossRunner::Lose(LossKind kind, LossTimes& times) {
  if (Status status = WaitForRandomMoment(); !status.ok()) {
    return job_->Failure(status.message());
  }
  const std::vector<WorldView::Member> members = view_.members();
  if (!view_.Trains(options_.workers)) {
    return job_->Failure("the world changed although nobody was lost");
  }
  const WorldView::Member& victim = members[random_.Below(members.size())];
  Loss loss{.generation = view_.generation(), .victim = victim.incarnation};
  for (const WorldView::Member& member : members) {
    if (member.incarnation != victim.incarnation) {
      loss.survivors.insert(member.incarnation);
    }
  }
  const std::string what = Name(kind) + " of rank " + std::to_string(victim.rank) + ", worker " +
                           std::to_string(victim.incarnation);
  // Opened while it lives: the signal cannot meet another process.
  const UniqueFd pidfd = OpenPidfd(victim.pid);
  loss.t_ns = NowNs();
  SignalPidfd(pidfd, kind == LossKind::kKill ? SIGKILL : SIGSTOP);
  recovery_.emplace(std::move(loss));
  if (Status status = Recover(what, times); !status.ok()) {
    return job_->Failure(what + ": " + status.message());
  }
  return Status::Ok();
}

Status LossRunner::Recover(const std::string& what, LossTimes& times) {
  const int64_t t_ns = recovery_->t_ns();
  Status status =
      WaitUntil([this] { return recovery_->stepped(); },
                [this] { return "a step of the survivors" + ListOf(recovery_->missing()); });
  if (status.ok()) {
    status = WaitUntil([this] { return recovery_->reaped(); },
                       [&what] { return "the end of the process after " + what; });
  }
  if (status.ok()) {
    status = WaitForFullSize();
  }
  if (!status.ok()) {
    return status;
  }
  times.to_step.Add(recovery_->to_step_ns());
  times.to_form.Add(recovery_->to_form_ns());
  const std::array<int64_t, kMilestones> phases = recovery_->PhasesNs();
  for (size_t i = 0; i < kMilestones; ++i) {
    times.phases[i].Add(phases[i]);
  }
  times.to_full.Add(view_.trains_since_ns() - t_ns);
  times.detours += recovery_->generations() > 1 ? 1 : 0;
  return Status::Ok();
}

}  // namespace muster::bench
