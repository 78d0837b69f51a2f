#include "launcher/incident/incident_text.h"

#include <catch2/catch.hpp>
#include <csignal>

#include "launcher/incident/advice.h"

namespace muster::launcher {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

Victim MakeVictim(Fate fate, std::optional<int> code = std::nullopt, int signal = 0) {
  return {Incarnation{4}, SlotId{HostId{"b"}, 1}, 3, 123, fate, code, signal, false};
}

Incident MakeLoss(const Victim& victim) {
  Incident incident;
  incident.number = 2;
  incident.kind = IncidentKind::kLoss;
  incident.generation_before = {4};
  incident.size_before = 8;
  incident.generation_after = {5};
  incident.size_after = 7;
  incident.victims = {victim};
  incident.evidence = {{milliseconds(61000), "agent of host b", "pid 123 is dying"}};
  incident.decisions = {{milliseconds(61003), "membership", "world 5 of 7"}};
  incident.phases = {milliseconds(61000),
                     milliseconds(61001),
                     milliseconds(61003),
                     milliseconds(61010),
                     milliseconds(61500)};
  incident.newest_known = CommitId{4, 9};
  incident.resumed = CommitId{4, 7};
  return incident;
}

std::string Clock(int64_t ms) {
  return "<" + std::to_string(ms) + ">";
}

TEST_CASE("an incident is told in full") {
  const JobRecord job{"ab", "./train", "1", "h", 1, 1000, true};
  CHECK(TellIncident(MakeLoss(MakeVictim(Fate::kExited, 3)), job, &Clock) ==
        "#2, <62000>, 1 min 1 s after the start: rank 3 on host b exited with code 3.\n"
        "  Who: rank 3 on host b was worker 4, slot 1, pid 123.\n"
        "  How we know:\n"
        "    at 61.000 s, agent of host b: pid 123 is dying\n"
        "  What was decided: world 4 of 8 workers was followed by world 5 of 7 workers.\n"
        "    at 61.003 s: world 5 of 7\n"
        "  How long it took, from the first evidence: 1.0 ms until the members were told to stop, "
        "then 2.0 ms until the next world was ordered, then 7.0 ms until all had formed it, then "
        "490.0 ms until all had synced, the last that the driver sees; 500.0 ms in all.\n"
        "  What was lost: 2 commits: somebody held 4.9, and all went on from commit 4.7; the steps "
        "since then were done again (how many, the driver does not see).\n"
        "  What to do: Exit code 3 is the program's own (1 is often an exception that nobody "
        "caught): its last lines of output say why. --output-filename keeps them in files.\n");
}

TEST_CASE("the number of lost commits is unknown across generations") {
  Incident incident = MakeLoss(MakeVictim(Fate::kKilled, 137, SIGKILL));
  incident.newest_known = CommitId{5, 1};
  const std::string told = TellIncident(incident, {}, &Clock);
  CHECK(told.find("an unknown number of commits") != std::string::npos);
}

TEST_CASE("of many victims the first are named and the others counted") {
  Incident incident = MakeLoss(MakeVictim(Fate::kAgentLost));
  incident.victims.assign(6, MakeVictim(Fate::kAgentLost));
  CHECK(Headline(incident).ends_with("; and 2 more"));
  // Six of a kind have one remedy.
  CHECK(AdviceFor(incident).size() == 1);
}

TEST_CASE("times are as exact as one cares to know") {
  CHECK(TimeText(microseconds(1240)) == "1.2 ms");
  CHECK(TimeText(milliseconds(999)) == "999.0 ms");
  CHECK(TimeText(milliseconds(12345)) == "12.3 s");
  CHECK(TimeText(seconds(125)) == "2 min 5 s");
  CHECK(TimeText(hours(3) + minutes(20)) == "3 h 20 min");
}

std::string AdviceOf(const Victim& victim) {
  const auto advice = AdviceFor(MakeLoss(victim));
  return advice.empty() ? "" : advice.front();
}

TEST_CASE("advice names what usually stands behind a signal or a code") {
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
  };
  CHECK(has(AdviceOf(MakeVictim(Fate::kKilled, 137, SIGKILL)), "dmesg -T` on host b"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kKilled, 139, SIGSEGV)), "core dump"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kKilled, 134, SIGABRT)), "abort()"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kKilled, 135, SIGBUS)), "/dev/shm"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kExited, 127)), "not found"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kExited, 0)), "exit()"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kExited, 137)), "how a shell tells of signal 9"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kExited, 1)), "the program's own"));
  CHECK(has(AdviceOf(MakeVictim(Fate::kFrozen)), "SIGSTOP"));
}

TEST_CASE("a signal that Muster sent is nobody's fault") {
  Victim victim = MakeVictim(Fate::kKilled, 137, SIGKILL);
  victim.ended_by_us = true;
  CHECK(AdviceOf(victim).empty());
  CHECK(Headline(MakeLoss(victim)).ends_with("as Muster had told it to end"));
  CHECK(AdviceOf(MakeVictim(Fate::kDrained)).empty());
}

}  // namespace
}  // namespace muster::launcher
