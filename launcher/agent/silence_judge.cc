#include "launcher/agent/silence_judge.h"

namespace muster::launcher {

Activity ActivityOf(std::string_view states) {
  if (states.find('t') != std::string_view::npos) {
    return Activity::kTraced;
  }
  if (states.find('T') != std::string_view::npos) {
    return Activity::kStopped;
  }
  if (states.find('R') != std::string_view::npos) {
    return Activity::kRunnable;
  }
  return states.find_first_of("SDI") == std::string_view::npos ? Activity::kUnknown
                                                               : Activity::kAsleep;
}

SilenceVerdict SilenceJudge::Judge(const SilenceSample& sample, Instant now) {
  const bool anew = !last_ || now - sampled_ > kSampleGapMax;
  const bool ticked = anew || HasTicked(sample.ticks);
  if (ticked || sample.activity != last_->activity) {
    since_ = now;
  }
  last_ = sample;
  sampled_ = now;
  if (ticked) {
    ticked_ = now;
    return SilenceVerdict::kWell;
  }
  switch (sample.activity) {
    case Activity::kRunnable:
      return SilenceVerdict::kStarved;
    case Activity::kStopped:
      return quiet() >= kFrozenAfter ? SilenceVerdict::kFrozen : SilenceVerdict::kWell;
    case Activity::kAsleep:
      return quiet() >= kSilentAfter ? SilenceVerdict::kSilent : SilenceVerdict::kWell;
    case Activity::kUnknown:
    case Activity::kTraced:
      break;
  }
  return SilenceVerdict::kWell;
}

}  // namespace muster::launcher
