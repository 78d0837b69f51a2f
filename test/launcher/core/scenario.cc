#include "test/launcher/core/scenario.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace muster::launcher {
namespace {

using Words = std::vector<std::string>;

const std::map<std::string, TimerKind>& TimerNames() {
  static const std::map<std::string, TimerKind> names = {
      {"start", TimerKind::kStart},
      {"elastic", TimerKind::kElastic},
      {"loss-window", TimerKind::kLossWindow},
      {"settle", TimerKind::kSettle},
      {"formed", TimerKind::kFormed},
      {"suspect", TimerKind::kSuspect},
      {"backoff", TimerKind::kBackoff},
      {"grace", TimerKind::kGrace},
      {"finish", TimerKind::kFinish},
      {"removal", TimerKind::kRemoval},
      {"silence", TimerKind::kSilence},
  };
  return names;
}

// The subject stands only where it is a worker: the others follow from the story.
std::string TimerText(const TimerKey& timer) {
  for (const auto& [name, kind] : TimerNames()) {
    if (kind == timer.kind) {
      return kind == TimerKind::kGrace ? name + " " + std::to_string(timer.subject) : name;
    }
  }
  return "?";
}

Words Split(const std::string& text) {
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) {
    words.push_back(word);
  }
  return words;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  const size_t end = text.find_last_not_of(" \r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string Joined(const Words& words, size_t from) {
  std::string text;
  for (size_t i = from; i < words.size(); ++i) {
    text += (text.empty() ? "" : " ") + words[i];
  }
  return text;
}

Duration ParseTime(const std::string& text) {
  size_t used = 0;
  const double number = std::stod(text, &used);
  const std::string unit = text.substr(used);
  const double scale = unit == "ms" ? 1e3 : unit == "s" ? 1e6 : unit == "min" ? 60e6 : 0;
  return Duration(std::llround(number * scale));
}

std::string TimeText(Duration time) {
  std::ostringstream out;
  if (time.count() % 1000 != 0 || time < std::chrono::seconds(1)) {
    out << static_cast<double>(time.count()) / 1e3 << "ms";
  } else {
    out << static_cast<double>(time.count()) / 1e6 << 's';
  }
  return out.str();
}

uint64_t Number(const std::string& text) {
  return std::stoull(text);
}

CommitId ParseCommit(const std::string& text) {
  const size_t dot = text.find('.');
  return {Number(text.substr(0, dot)), Number(text.substr(dot + 1))};
}

std::vector<HostSlots> ParseHosts(const Words& words, size_t from) {
  std::vector<HostSlots> hosts;
  for (size_t i = from; i < words.size(); ++i) {
    const size_t colon = words[i].rfind(':');
    hosts.push_back({HostId{words[i].substr(0, colon)},
                     static_cast<uint32_t>(Number(words[i].substr(colon + 1)))});
  }
  return hosts;
}

bool IsStep(const std::string& text) {
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}
bool IsEffect(const std::string& text) {
  return !text.empty() && text[0] == ' ';
}
bool IsRemark(const std::string& text) {
  return Trimmed(text).empty() || text[0] == '#';
}

// Words before a marker such as "holds", and the word after it.
std::optional<std::string> TakeMarked(Words& words, const std::string& marker) {
  const auto found = std::find(words.begin(), words.end(), marker);
  if (found == words.end() || found + 1 == words.end()) {
    return std::nullopt;
  }
  std::string value = *(found + 1);
  words.erase(found, found + 2);
  return value;
}

bool TakeFlag(Words& words, const std::string& flag) {
  const auto found = std::find(words.begin(), words.end(), flag);
  if (found == words.end()) {
    return false;
  }
  words.erase(found);
  return true;
}

}  // namespace

Scenario::Scenario(const std::string& text) {
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    lines_.push_back({++number, line});
  }
}

std::string Scenario::Tell(bool rewriting) {
  rewriting_ = rewriting;
  try {
    while (next_ < lines_.size() && problem_.empty()) {
      const Line line = lines_[next_++];
      if (IsRemark(line.text)) {
        rewritten_ += line.text + "\n";
      } else if (IsStep(line.text)) {
        RunStep(line);
      } else if (IsEffect(line.text)) {
        step_ = line;
        Fail("an effect without an event");
      } else {
        step_ = line;
        rewritten_ += line.text + "\n";
        RunSetting(Split(line.text));
      }
    }
  } catch (const std::exception& error) {
    Fail(std::string("not understood: ") + error.what());
  }
  return problem_;
}

void Scenario::RunSetting(const Words& words) {
  if (words[0] == "given") {
    Given(words);
    return;
  }
  if (words[0] != "job") {
    Fail("not understood");
    return;
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : words[i].substr(equals + 1);
    const auto count = [&] { return static_cast<uint32_t>(Number(value)); };
    if (name == "elastic") {
      options_.elastic = true;
    } else if (name == "static") {
      options_.elastic = false;
    } else if (name == "np") {
      options_.np_start = count();
    } else if (name == "min") {
      options_.np_min = count();
    } else if (name == "max") {
      options_.np_max = count();
    } else if (name == "spares") {
      options_.spares = count();
    } else if (name == "start-timeout") {
      options_.start_timeout = ParseTime(value);
    } else if (name == "elastic-timeout") {
      options_.elastic_timeout = ParseTime(value);
    } else if (name == "grace") {
      options_.grace = ParseTime(value);
    } else if (name == "reset-limit") {
      options_.reset_limit = count();
    } else if (name == "failure-limit") {
      options_.failure_limit = count();
    } else if (name == "cooldown") {
      const size_t dots = value.find("..");
      options_.cooldown =
          CooldownRange{ParseTime(value.substr(0, dots)), ParseTime(value.substr(dots + 2))};
    } else if (name == "blame" && value == "host") {
      options_.blame_host = true;
    } else {
      Fail("no such option: " + words[i]);
    }
  }
}

// "given running a:2 b:2": the job has started on these hosts, and all members have synced commit
// 1.0. "given formed ...": they have formed the world, but none has entered elastic::run. The
// story's time begins here.
void Scenario::Given(const Words& words) {
  told_ = false;
  membership_ = std::make_unique<Membership>(options_);
  const std::vector<HostSlots> hosts = ParseHosts(words, 2);
  Take(HostsDiscovered{hosts});
  for (const HostSlots& host : hosts) {
    if (host.slots > 0) {
      Take(AgentAttached{host.host});
    }
  }
  for (uint64_t id = 1; membership_->SlotOf(Incarnation{id}).has_value(); ++id) {
    Take(WorkerStarted{Incarnation{id}, static_cast<int64_t>(id)});
    Take(WorkerJoined{Incarnation{id}, {"127.0.0.1:" + std::to_string(id)}});
  }
  const std::vector<Incarnation> members = membership_->members();
  for (const Incarnation id : members) {
    Take(WorkerFormed{id, Generation{1}, std::nullopt});
  }
  for (const Incarnation id : members) {
    if (words[1] == "running") {
      Take(WorkerSynced{id, Generation{1}, CommitId{1, 0}});
    }
  }
  if (members.empty() || (words[1] != "running" && words[1] != "formed")) {
    Fail("nothing was formed");
  }
  told_ = true;
}

void Scenario::RunStep(const Line& line) {
  if (membership_ == nullptr) {
    membership_ = std::make_unique<Membership>(options_);
  }
  Words words = Split(line.text);
  const Instant time = zero_ + ParseTime(words[0]);
  words.erase(words.begin());
  step_ = line;
  if (words.empty() || time < now_) {
    Fail(words.empty() ? "no event" : "time goes back");
    return;
  }
  PassTo(time, line);
  if (!problem_.empty()) {
    return;
  }
  step_ = line;
  rewritten_ += line.text + "\n";
  now_ = time;
  if (words[0] == "timer") {
    const std::string name = Joined(words, 1);
    for (const auto& [timer, due] : timers_) {
      if (due == now_ && TimerText(timer) == name) {
        Fire(TimerKey(timer));
        CheckEffects();
        return;
      }
    }
    Fail("no such timer is due now");
    return;
  }
  TakeAll(words);
  CheckEffects();
}

// Timers that fall due on the way belong into the story. A rewriting puts them there.
void Scenario::PassTo(Instant time, const Line& line) {
  while (true) {
    auto first = timers_.end();
    for (auto it = timers_.begin(); it != timers_.end(); ++it) {
      if (it->second < time && (first == timers_.end() || it->second < first->second)) {
        first = it;
      }
    }
    if (first == timers_.end()) {
      return;
    }
    const std::string text = TimeText(first->second - zero_) + " timer " + TimerText(first->first);
    step_ = {line.number, text};
    now_ = first->second;
    std::string at = TimeText(first->second - zero_);
    at.resize(std::max<size_t>(at.size() + 1, 8), ' ');
    rewritten_ += at + "timer " + TimerText(first->first) + "\n";
    Fire(TimerKey(first->first));
    for (const std::string& effect : effects_) {
      rewritten_ += "            " + effect + "\n";
    }
    effects_.clear();
    Fail("a timer that is not told of: " + text);
    if (rewriting_) {
      problem_.clear();
    }
    if (!problem_.empty()) {
      return;
    }
  }
}

void Scenario::Fire(const TimerKey& timer) {
  timers_.erase(timer);
  Take(TimerFired{timer});
}

void Scenario::Take(const Event& event) {
  const Transition transition = membership_->Step(event, now_);
  membership_->CheckInvariants();
  if (observer_) {
    observer_(event, transition, *membership_, now_);
  }
  for (const Effect& effect : transition.effects) {
    if (const auto* arm = std::get_if<ArmTimer>(&effect)) {
      timers_[arm->timer] = now_ + arm->delay;
    } else if (const auto* cancel = std::get_if<CancelTimer>(&effect)) {
      timers_.erase(cancel->timer);
    } else if (told_) {
      effects_.push_back(*EffectText(effect));
    }
  }
}

void Scenario::TakeAll(const Words& words) {
  if (!TakeHostEvent(words) && !TakeWorkerEvent(words) && !TakeGenerationEvent(words)) {
    Fail("no such event: " + words[0]);
  }
}

bool Scenario::TakeHostEvent(const Words& words) {
  const std::string& name = words[0];
  if (name == "hosts") {
    Take(HostsDiscovered{ParseHosts(words, 1)});
  } else if (name == "discovery-failed") {
    Take(DiscoveryFailed{Joined(words, 1)});
  } else if (name == "attached") {
    Take(AgentAttached{HostId{words.at(1)}});
  } else if (name == "reattached") {
    Take(AgentReattached{HostId{words.at(1)}});
  } else if (name == "suspected") {
    AgentSuspected suspected;
    for (size_t i = 1; i < words.size(); ++i) {
      suspected.hosts.push_back(HostId{words[i]});
    }
    Take(suspected);
  } else if (name == "agent-lost") {
    Take(AgentLost{HostId{words.at(1)}, Joined(words, 2)});
  } else if (name == "agent-failed") {
    Take(AgentStartFailed{HostId{words.at(1)}, Joined(words, 2), false});
  } else if (name == "unreachable") {
    Take(AgentStartFailed{HostId{words.at(1)}, Joined(words, 2), true});
  } else if (name == "drain-host") {
    Take(DrainRequested{HostId{words.at(1)}});
  } else if (name == "stop") {
    Take(StopRequested{static_cast<int>(Number(words.at(1)))});
  } else {
    return false;
  }
  return true;
}

// Events of workers outside any generation: "joined 3 4", "exited 2 code 7", "lost 1 frozen".
bool Scenario::TakeWorkerEvent(const Words& all) {
  Words words = all;
  const std::string name = words[0];
  const auto code = TakeMarked(words, "code");
  const auto signal = TakeMarked(words, "signal");
  const LossKind kind = TakeFlag(words, "frozen")    ? LossKind::kFrozen
                        : TakeFlag(words, "silent")  ? LossKind::kSilent
                        : TakeFlag(words, "stalled") ? LossKind::kStalled
                                                     : LossKind::kOwnerDied;
  if (name == "spawn-failed") {
    Take(SpawnFailed{Incarnation{Number(words.at(1))}, Joined(words, 2)});
    return true;
  }
  static const std::vector<std::string> kNames = {
      "started", "joined", "listening", "warm", "bye", "lost", "exited"};
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
    return false;
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const Incarnation id{Number(words[i])};
    if (name == "started") {
      Take(WorkerStarted{id, static_cast<int64_t>(1000 + id.value)});
    } else if (name == "joined") {
      Take(WorkerJoined{id, {"127.0.0.1:" + words[i]}});
    } else if (name == "listening") {
      Take(WorkerListening{id, {"127.0.0.1:" + words[i], "10.0.0.1:" + words[i]}});
    } else if (name == "warm") {
      Take(WorkerWarm{id});
    } else if (name == "bye") {
      Take(WorkerBye{id});
    } else if (name == "lost") {
      Take(WorkerLost{id, kind, ""});
    } else if (signal) {
      Take(WorkerExited{
          id, 128 + static_cast<int>(Number(*signal)), static_cast<int>(Number(*signal))});
    } else {
      Take(WorkerExited{id, static_cast<int>(Number(code.value())), 0});
    }
  }
  return true;
}

// Events of a generation: "left g1 1 2 holds 1.5", "synced g2 1 commit 1.5",
// "peer-lost g1 by 3 ranks 0 1", "answered g1 2 alive".
bool Scenario::TakeGenerationEvent(const Words& all) {
  Words words = all;
  const std::string name = words[0];
  if (words.size() < 2 || words[1][0] != 'g') {
    return false;
  }
  const Generation generation{Number(words[1].substr(1))};
  const auto holds = TakeMarked(words, "holds");
  const auto held = holds ? std::optional(ParseCommit(*holds)) : std::nullopt;
  const auto commit = TakeMarked(words, "commit");
  if (name == "peer-lost") {
    PeerLost lost{Incarnation{Number(*TakeMarked(words, "by"))}, generation, {}, false, "reset"};
    lost.stalled = TakeFlag(words, "stalled");
    TakeFlag(words, "ranks");
    for (size_t i = 2; i < words.size(); ++i) {
      lost.suspect_ranks.push_back(static_cast<uint32_t>(Number(words[i])));
    }
    Take(lost);
    return true;
  }
  const bool alive = TakeFlag(words, "alive");
  TakeFlag(words, "dead");
  for (size_t i = 2; i < words.size(); ++i) {
    const Incarnation id{Number(words[i])};
    if (name == "formed") {
      Take(WorkerFormed{id, generation, held});
    } else if (name == "left") {
      Take(WorkerLeft{id, generation, held});
    } else if (name == "synced") {
      Take(WorkerSynced{id, generation, ParseCommit(commit.value())});
    } else if (name == "done") {
      Take(WorkerDone{id, generation});
    } else if (name == "running") {
      Take(WorkerRunning{id, generation});
    } else if (name == "answered") {
      Take(SuspectAnswered{id, generation, alive});
    } else {
      return false;
    }
  }
  return true;
}

void Scenario::CheckEffects() {
  std::vector<std::string> expected;
  while (next_ < lines_.size() && IsEffect(lines_[next_].text)) {
    expected.push_back(Trimmed(lines_[next_++].text));
  }
  for (const std::string& effect : effects_) {
    rewritten_ += "            " + effect + "\n";
  }
  for (size_t i = 0; i < std::max(expected.size(), effects_.size()) && !rewriting_; ++i) {
    const std::string want = i < expected.size() ? expected[i] : "nothing more";
    const std::string have = i < effects_.size() ? effects_[i] : "nothing more";
    if (want != have) {
      Fail("expected: " + want + "\n     came: " + have);
      break;
    }
  }
  effects_.clear();
}

void Scenario::Fail(const std::string& what) {
  if (problem_.empty()) {
    problem_ = "line " + std::to_string(step_.number) + ": " + step_.text + "\n" + what;
  }
}

}  // namespace muster::launcher
