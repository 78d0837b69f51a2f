#pragma once

// Scenario: a text file that tells a story about Membership: events with their times, and under
// each the effects that it must have, all of them and in order. docs/scenarios.md has the language.
// Timers run on the story's clock: one that falls due without being told of is an error.
//
// Not a test by itself: scenario_test.cc runs the files of test/scenarios.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/core/membership.h"

namespace muster::launcher {

/// One effect as a scenario writes it; nothing for timers, which show by firing.
std::optional<std::string> EffectText(const Effect& effect);

class Scenario {
 public:
  /// `text` is the content of the file; mistakes in it are reported like failed expectations.
  explicit Scenario(const std::string& text);

  /// Called after each step, also those of `given`.
  using Observer = std::function<void(const Event&, const Transition&, const Membership&, Instant)>;
  void Watch(Observer observer) { observer_ = std::move(observer); }

  /// Runs the story. Empty if all is as told; else what differs, with the line.
  std::string Run() { return Tell(false); }

  /// The story with the effects that it really has, timers included. For writing scenarios: what
  /// comes out is to be read and judged before it is kept.
  std::string Rewrite() {
    const std::string problem = Tell(true);
    return problem.empty() ? rewritten_ : "# " + problem + "\n" + rewritten_;
  }

 private:
  struct Line {
    int number = 0;
    std::string text;
  };
  using Words = std::vector<std::string>;

  std::string Tell(bool rewriting);
  void RunStep(const Line& line);
  void RunSetting(const Words& words);
  void Given(const Words& words);
  void PassTo(Instant time, const Line& line);
  void Fire(const TimerKey& timer);
  void Take(const Event& event);
  void TakeAll(const Words& words);
  bool TakeHostEvent(const Words& words);
  bool TakeWorkerEvent(const Words& words);
  bool TakeGenerationEvent(const Words& words);
  void CheckEffects();
  void Fail(const std::string& what);

  std::vector<Line> lines_;
  size_t next_ = 0;
  MembershipOptions options_;
  std::unique_ptr<Membership> membership_;
  Observer observer_;
  Instant now_{};
  Instant zero_{};
  std::map<TimerKey, Instant> timers_;
  std::vector<std::string> effects_;
  Line step_;
  bool told_ = true;  // False while `given` runs: its effects are not part of the story.
  bool rewriting_ = false;
  std::string problem_;
  std::string rewritten_;
};

}  // namespace muster::launcher
