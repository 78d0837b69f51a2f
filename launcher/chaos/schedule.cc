#include "launcher/chaos/schedule.h"

#include <algorithm>
#include <cmath>

namespace muster::launcher {
namespace {

constexpr double kLongestWait = 4;
// Cutting off at four times `every` takes away so much of the mean: 1 - exp(-4).
const double kMeanLeft = 1 - std::exp(-kLongestWait);
constexpr int kFractionBits = 53;

bool MayCome(const ChaosKind& kind, bool with_hooks) {
  return with_hooks || IsBuiltInChaos(kind.name);
}

}  // namespace

double Schedule::Share() {
  return std::ldexp(static_cast<double>(random_.Next() >> (64 - kFractionBits)), -kFractionBits);
}

Draw Schedule::Next() {
  const double wait = std::min(-std::log(1 - Share()), kLongestWait) / kMeanLeft;
  now_ += Duration(std::llround(wait * static_cast<double>(every_.count())));
  Draw draw;
  draw.at = now_;
  draw.kind = random_.Next();
  draw.victim = random_.Next();
  draw.share = Share();
  return draw;
}

int PickKind(const std::vector<ChaosKind>& kinds, uint64_t draw, bool with_hooks) {
  uint64_t all = 0;
  for (const ChaosKind& kind : kinds) {
    all += MayCome(kind, with_hooks) ? kind.weight : 0;
  }
  if (all == 0) {
    return -1;
  }
  uint64_t left = draw % all;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const uint64_t weight = MayCome(kinds[i], with_hooks) ? kinds[i].weight : 0;
    if (left < weight) {
      return static_cast<int>(i);
    }
    left -= weight;
  }
  return -1;
}

}  // namespace muster::launcher
