// Reports of an agent that lies: whatever it says about the workers of its host is either no event
// or one that Membership takes, invariants held. Two hosts with two workers each.

#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "launcher/core/membership.h"
#include "launcher/driver/convert.h"

namespace muster::launcher {
namespace {

const HostId kHost{"a"};
const HostId kOther{"b"};
constexpr int kReportsMax = 64;

MembershipOptions Options() {
  MembershipOptions options;
  options.elastic = true;
  options.np_start = 4;
  options.np_min = 2;
  return options;
}

class Play {
 public:
  Play() : membership_(Options()) {
    Step(HostsDiscovered{{{kHost, 2}, {kOther, 2}}});
    Step(AgentAttached{kHost});
    Step(AgentAttached{kOther});
  }

  void Report(const v1::AgentReport& report) {
    // The driver's own checks: an agent speaks for the workers of its host.
    const std::optional<Incarnation> subject = SubjectOf(report);
    if (subject) {
      const std::optional<SlotId> slot = membership_.SlotOf(*subject);
      if (!slot || slot->host != kHost) {
        return;
      }
    }
    if (const std::optional<Event> event = ToEvent(report, kHost)) {
      Step(*event);
    }
  }

  void Step(const Event& event) {
    now_ += std::chrono::milliseconds(1);
    const Transition transition = membership_.Step(event, now_);
    membership_.CheckInvariants();
    for (const Effect& effect : transition.effects) {
      if (const auto* world = std::get_if<FormWorld>(&effect)) {
        // Becomes one message per host; a driver that cannot encode its world is lost.
        MUSTER_CHECK(!SplitByHost(*world, "key", "why").empty(), "somebody is told");
      }
    }
  }

 private:
  Membership membership_;
  Instant now_;
};

}  // namespace
}  // namespace muster::launcher

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::FuzzInput input(data, size);
  launcher::Play play;
  for (int i = 0; i < launcher::kReportsMax && !input.at_end(); ++i) {
    const std::string_view bytes = input.Piece(input.Number<uint8_t>());
    v1::AgentReport report;
    if (report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      play.Report(report);
    }
  }
  return 0;
}
