// The effects in words, one line each.

#include <sstream>

#include "test/launcher/core/scenario.h"

namespace muster::launcher {
namespace {

template <class Ids>
std::string Listed(const Ids& ids) {
  std::ostringstream out;
  for (const auto& id : ids) {
    out << ' ' << id.value;
  }
  return out.str();
}

struct ToText {
  using Text = std::optional<std::string>;

  Text operator()(const StartAgent& e) const { return "StartAgent " + e.host.value; }
  Text operator()(const StopAgent& e) const { return "StopAgent " + e.host.value; }
  Text operator()(const SpawnWorker& e) const {
    std::ostringstream out;
    out << "SpawnWorker " << e.worker.value << " on " << e.slot << " as " << e.provisional.rank
        << " of " << e.provisional.size;
    return out.str();
  }
  Text operator()(const KillWorker& e) const {
    return "KillWorker " + std::to_string(e.worker.value) + (e.force ? " force" : " term");
  }
  Text operator()(const AskAgent& e) const {
    return "AskAgent g" + std::to_string(e.generation.value) + " about" + Listed(e.suspects);
  }
  Text operator()(const Refuse& e) const { return "Refuse " + std::to_string(e.worker.value); }
  Text operator()(const Drain& e) const { return "Drain" + Listed(e.workers); }
  Text operator()(const FormWorld& e) const {
    std::ostringstream out;
    out << "FormWorld " << e.generation << " of";
    for (const Member& member : e.members) {
      out << ' ' << member.worker.value;
    }
    out << (e.counts_as_reset ? ", a reset" : "");
    return out.str();
  }
  Text operator()(const Revoke& e) const {
    return "Revoke g" + std::to_string(e.generation.value) + " for" + Listed(e.members);
  }
  Text operator()(const NotifyPending& e) const {
    return std::string(e.pending ? "NotifyPending g" : "NotifyUnchanged g") +
           std::to_string(e.generation.value) + " to" + Listed(e.members);
  }
  Text operator()(const Release& e) const { return "Release" + Listed(e.workers); }
  Text operator()(const Admit& e) const {
    std::ostringstream out;
    out << "Admit " << e.worker.value << " as " << e.provisional.rank << " of "
        << e.provisional.size;
    return out.str();
  }
  Text operator()(const ArmTimer&) const { return std::nullopt; }
  Text operator()(const CancelTimer&) const { return std::nullopt; }
  Text operator()(const FinishJob& e) const {
    return "FinishJob " + std::to_string(e.code) + ": " + e.cause;
  }
  Text operator()(const Warn& e) const { return "Warn " + e.message; }
};

}  // namespace

std::optional<std::string> EffectText(const Effect& effect) {
  return std::visit(ToText{}, effect);
}

}  // namespace muster::launcher
