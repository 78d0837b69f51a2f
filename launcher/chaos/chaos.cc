#include "launcher/chaos/chaos.h"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/incident/record_store.h"

namespace muster::launcher {
namespace {

using Outcome = ChaosEvent::Outcome;

constexpr Duration kLookEvery = std::chrono::seconds(2);
// Without a record that tells of the driver: a job may be without a process here for a while, as
// when its agent was killed and the host sits out its back-off.
constexpr Duration kGoneAfter = std::chrono::seconds(60);
// A worker that can open nothing holds up each change of world, as it would in earnest; one that
// lasts is told by the formation's deadline, and not what is asked here.
constexpr Duration kExhaustedMax = std::chrono::seconds(1);
// What comes later than this does not come: draws that are made up for would come all at once.
constexpr Duration kLateMax = std::chrono::milliseconds(100);

int64_t MillisecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Duration Part(double share, Duration whole) {
  return Duration(static_cast<int64_t>(share * static_cast<double>(whole.count())));
}

}  // namespace

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGALRM}) {
    sigaddset(&set, signal);
  }
  return set;
}

Chaos::Chaos(ChaosOptions options, uint64_t seed)
    : options_(std::move(options)), schedule_(seed, options_.every) {
  const sigset_t set = EndSignals();
  signals_.Reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Chaos::~Chaos() {
  loop_.Unwatch(signals_.get());
}

int Chaos::Run() {
  began_ = loop_.Now();
  present_ = began_;
  loop_.Watch(signals_.get(), EPOLLIN, [this](uint32_t) {
    signalfd_siginfo info{};
    [[maybe_unused]] const ssize_t size = ::read(signals_.get(), &info, sizeof info);
    StopEvents("a signal came");
  });
  ArmNext();
  Look();
  loop_.Run();
  ContinueAll();
  SayChaos(report_.Summary(loop_.Now() - began_));
  return report_.failed() ? 1 : 0;
}

void Chaos::ArmNext() {
  do {
    draw_ = schedule_.Next();
  } while (began_ + draw_.at + kLateMax < loop_.Now());
  if (number_ >= options_.count || draw_.at > options_.length) {
    const Instant over = began_ + std::min(draw_.at, options_.length);
    next_ = loop_.After(number_ >= options_.count ? Duration::zero() : over - loop_.Now(),
                        [this] { StopEvents("that was all"); });
    return;
  }
  next_ = loop_.After(std::max(began_ + draw_.at - loop_.Now(), Duration::zero()),
                      [this] { OnDraw(); });
}

void Chaos::OnDraw() {
  // A hook that begins has yet to say which host it takes: until then nobody may be met.
  const bool hook_begins =
      std::any_of(underway_.begin(), underway_.end(), [](const Underway& underway) {
        return underway.hook_begins;
      });
  const int kind = PickKind(options_.kinds, draw_.kind, !HookIsUnderWay());
  if (kind >= 0 && !hook_begins) {
    Begin(options_.kinds[static_cast<size_t>(kind)]);
  }
  ArmNext();
}

void Chaos::Begin(const ChaosKind& kind) {
  ChaosEvent event;
  event.number = ++number_;
  event.kind = kind.name;
  if (IsBuiltInChaos(kind.name)) {
    BeginOnProcess(std::move(event));
  } else {
    BeginHook(std::move(event));
  }
}

void Chaos::BeginOnProcess(ChaosEvent event) {
  bool present = false;
  const std::vector<JobProcess> processes = ScanJob(options_.job, present);
  event.victim = PickVictim(event.kind, processes, Rules(), draw_.victim);
  event.begin = loop_.Now();
  event.begin_ms = MillisecondsSince1970();
  if (!event.victim) {
    event.outcome = Outcome::kSkipped;
    event.note = "nobody is there whom it may meet";
    return Tell(event);
  }
  event.host = event.victim->host;
  if (options_.dry_run) {
    return Tell(event);
  }
  Underway underway;
  underway.pidfd = OpenVictim(*event.victim);
  if (!underway.pidfd.valid()) {
    event.outcome = Outcome::kSkipped;
    event.note = "it has ended by itself";
    return Tell(event);
  }
  underway.event = std::move(event);
  underway_.push_back(std::move(underway));
  const Place place = std::prev(underway_.end());
  const Status acted = Act(*place);
  if (!acted.ok()) {
    place->event.outcome = HasEnded(place->pidfd) ? Outcome::kSkipped : Outcome::kFailed;
    place->event.note = acted.message();
    return Finish(place);
  }
  const std::string& kind = place->event.kind;
  if (kind == "pause") {
    UndoAfter(place, Part(draw_.share, options_.pause_max));
  } else if (kind == "descriptors") {
    UndoAfter(place, Part(draw_.share, std::min(options_.hook_max, kExhaustedMax)));
  } else {
    for (const JobProcess& process : EndingWith(*place->event.victim, processes)) {
      hurt_[process.pid] = OpenVictim(process);
    }
    Finish(place);
  }
}

Status Chaos::Act(Underway& underway) {
  const std::string& kind = underway.event.kind;
  if (kind == "descriptors") {
    const Result<rlimit> before =
        ExhaustDescriptors(*underway.event.victim, underway.pidfd, underway.lowered);
    if (before.ok()) {
      underway.before = before.value();
    }
    return before.ok() ? Status::Ok() : before.status();
  }
  return SendSignal(underway.pidfd, kind == "pause" || kind == "stop" ? SIGSTOP : SIGKILL);
}

void Chaos::BeginHook(ChaosEvent event) {
  event.begin = loop_.Now();
  event.begin_ms = MillisecondsSince1970();
  if (options_.dry_run) {
    return Tell(event);
  }
  underway_.emplace_back();
  const Place place = std::prev(underway_.end());
  place->event = std::move(event);
  place->lasts = Part(draw_.share, options_.hook_max);
  place->environment = HookEnvironment(
      CurrentEnvironment(), {options_.job, place->event.number, draw_.victim, place->lasts});
  place->hook_begins = true;
  place->hook = std::make_unique<Hook>(
      loop_,
      options_.hook_directory + "/" + place->event.kind,
      "begin",
      place->environment,
      [this, place](const HookAnswer& answer) { OnHookBegun(place, answer); });
}

void Chaos::OnHookBegun(Place place, const HookAnswer& answer) {
  place->hook_begins = false;
  place->event.host = answer.host;
  place->event.note = answer.note;
  if (!answer.error.empty()) {
    place->event.outcome = Outcome::kFailed;
    place->event.note = "begin: " + answer.error;
  }
  // What has failed half-way is to be undone as well.
  EndHookAfter(place, stopping_ || !answer.error.empty() ? Duration::zero() : place->lasts);
}

// The loop lets `place` be until the Undoer has posted.
void Chaos::UndoAfter(Place place, Duration lasts) {
  undoer_.At(place->event.begin + lasts, [this, place] {
    Undo(*place);
    const Instant end = SteadyClock().Now();
    loop_.Post([this, place, end] {
      place->event.end = end;
      Finish(place);
    });
  });
}

void Chaos::Undo(const Underway& underway) {
  if (underway.event.kind == "descriptors") {
    RestoreDescriptors(*underway.event.victim, underway.pidfd, underway.before, underway.lowered);
  } else if (!HasEnded(underway.pidfd)) {
    // It may end in this moment: that is no failure.
    const Status ignored = SendSignal(underway.pidfd, SIGCONT);
    static_cast<void>(ignored);
  }
}

void Chaos::EndHookAfter(Place place, Duration lasts) {
  place->ends = loop_.After(lasts, [this, place] {
    place->ends = {};
    EndHook(place);
  });
}

void Chaos::EndHook(Place place) {
  place->hook = std::make_unique<Hook>(loop_,
                                       options_.hook_directory + "/" + place->event.kind,
                                       "end",
                                       place->environment,
                                       [this, place](const HookAnswer& answer) {
                                         if (!answer.error.empty()) {
                                           place->event.outcome = Outcome::kFailed;
                                           place->event.note = "end: " + answer.error;
                                         }
                                         place->event.end = loop_.Now();
                                         Finish(place);
                                       });
}

void Chaos::Finish(Place place) {
  Tell(place->event);
  underway_.erase(place);
  StopIfNothingIsLeft();
}

void Chaos::Tell(const ChaosEvent& event) {
  report_.Tell(event, began_, options_.dry_run);
}

VictimRules Chaos::Rules() const {
  VictimRules rules;
  rules.kept = options_.kept;
  for (const Underway& underway : underway_) {
    if (underway.event.victim) {
      rules.taken.insert(underway.event.victim->pid);
    } else if (!underway.event.host.empty()) {
      rules.hosts_taken.insert(underway.event.host);
    }
  }
  for (const auto& [pid, pidfd] : hurt_) {
    if (!HasEnded(pidfd)) {
      rules.taken.insert(pid);
    }
  }
  return rules;
}

bool Chaos::HookIsUnderWay() const {
  return std::any_of(underway_.begin(), underway_.end(), [](const Underway& underway) {
    return !IsBuiltInChaos(underway.event.kind);
  });
}

void Chaos::Look() {
  bool present = false;
  ScanJob(options_.job, present);
  std::erase_if(hurt_, [](const auto& entry) { return HasEnded(entry.second); });
  const Instant now = loop_.Now();
  present_ = present ? now : present_;
  if (DriverIsGone() || now - present_ >= kGoneAfter) {
    return StopEvents("the job has ended");
  }
  loop_.After(kLookEvery, [this] {
    if (!stopping_) {
      Look();
    }
  });
}

bool Chaos::DriverIsGone() const {
  const Result<std::string> record = FindRecord(options_.incident_directory, options_.job);
  return record.ok() && DriverOf(record.value()) == DriverState::kGone;
}

void Chaos::StopEvents(const std::string& why) {
  if (stopping_) {
    return;
  }
  stopping_ = true;
  SayChaos("no more events: " + why);
  loop_.Cancel(next_);
  for (Place place = underway_.begin(); place != underway_.end(); ++place) {
    if (place->ends.value != 0) {
      loop_.Cancel(place->ends);
      EndHookAfter(place, Duration::zero());
    }
  }
  undoer_.UndoAll();
  StopIfNothingIsLeft();
}

void Chaos::StopIfNothingIsLeft() {
  if (stopping_ && underway_.empty()) {
    loop_.Stop();
  }
}

void Chaos::ContinueAll() {
  for (const auto& [pid, pidfd] : hurt_) {
    if (!HasEnded(pidfd)) {
      const Status ignored = SendSignal(pidfd, SIGCONT);
      static_cast<void>(ignored);
    }
  }
}

}  // namespace muster::launcher
