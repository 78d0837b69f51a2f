#include "launcher/incident/advice.h"

#include <algorithm>
#include <csignal>

namespace muster::launcher {
namespace {

constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
// What a shell makes of a signal.
constexpr int kSignalCode = 128;
constexpr int kSignalMax = 64;

std::string ForSignal(int signal, const std::string& host) {
  switch (signal) {
    case SIGKILL:
      return "Muster did not send signal 9. When memory runs out the kernel's OOM killer does: "
             "look "
             "for \"Out of memory\" in `dmesg -T` on host " +
             host + ". Otherwise somebody, or a scheduler, has killed it.";
    case SIGSEGV:
    case SIGILL:
    case SIGFPE:
      return "The program crashed. A core dump (`ulimit -c unlimited`) or a debugger shows where.";
    case SIGBUS:
      return "A signal 7 often means that a file that is mapped was cut short, or that /dev/shm or "
             "a disk is full: `df` on host " +
             host + ".";
    case SIGABRT:
      return "The program ended itself with abort(): a failed check or an exception that nobody "
             "caught. Its last lines on standard error say which.";
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
      return "Muster did not send this signal: a scheduler, a user or the program's own launcher "
             "on host " +
             host + " has.";
    default:
      return "Muster did not send signal " + std::to_string(signal) + ".";
  }
}

std::string ForCode(int code, const std::string& host) {
  if (code == 0) {
    return "Code 0 before the training was done: somewhere the program calls exit(), or catches "
           "WorkersLost itself. Return from the training function instead.";
  }
  if (code == kNotFound || code == kNotExecutable) {
    return "The command was not found or cannot be run on host " + host +
           ": check path, permissions and libraries there.";
  }
  if (code > kSignalCode && code <= kSignalCode + kSignalMax) {
    return "Code " + std::to_string(code) + " is how a shell tells of signal " +
           std::to_string(code - kSignalCode) + ". " + ForSignal(code - kSignalCode, host);
  }
  return "Exit code " + std::to_string(code) +
         " is the program's own (1 is often an exception that nobody caught): its last lines of "
         "output say why. --output-filename keeps them in files.";
}

std::string ForHost(const std::string& host) {
  return "Look at host " + host +
         ": was it switched off, started anew, out of memory, or cut off from the network?";
}

std::string ForFate(const Victim& victim) {
  const std::string& host = victim.slot.host.value;
  switch (victim.fate) {
    case Fate::kKilled:
      return victim.ended_by_us ? "" : ForSignal(victim.signal, host);
    case Fate::kExited:
      return victim.ended_by_us ? "" : ForCode(victim.code.value_or(0), host);
    case Fate::kGone:
      return "How its process ended is not known: look at its last lines of output, and at "
             "`dmesg -T` on host " +
             host + ".";
    case Fate::kFrozen:
      return "Somebody stopped its process: SIGSTOP, Ctrl-Z, a debugger, or a scheduler that "
             "suspends jobs. Muster ended it, since the others waited for it.";
    case Fate::kSilent:
      return "Its process slept and did not react: often a device, a driver or a network file "
             "system that hangs on host " +
             host + ".";
    case Fate::kStalled:
      return "It did not call a collective that the others had called: look for a place where the "
             "ranks go different ways, or where one of them waits.";
    case Fate::kAgentLost:
    case Fate::kAgentSilent:
    case Fate::kUnanswered:
      return ForHost(host);
    case Fate::kExpelled:
      return "Both ends of the link live, and it breaks again and again: look at the network of "
             "host " +
             host + " (firewall, cable, MTU).";
    case Fate::kUnformed:
      return "It could not reach the others in time, or it hung: look at firewall, --port-range "
             "and "
             "--network-interface of host " +
             host + ".";
    case Fate::kOverstayed:
      return "It did not come to a commit before it had to go: commit more often, or give it more "
             "time with --grace.";
    case Fate::kNotStarted:
      return "The program could not be started on host " + host +
             ": check path, permissions and libraries there.";
    case Fate::kSetAside:
    case Fate::kDrained:
    case Fate::kDone:
    case Fate::kSpare:
      return "";
  }
  return "";
}

}  // namespace

std::vector<std::string> AdviceFor(const Incident& incident) {
  std::vector<std::string> advice;
  for (const Victim& victim : incident.victims) {
    std::string one = ForFate(victim);
    if (!one.empty() && std::find(advice.begin(), advice.end(), one) == advice.end()) {
      advice.push_back(std::move(one));
    }
  }
  if (incident.kind == IncidentKind::kLink) {
    advice.emplace_back(
        "Once is no harm. If it comes again between the same hosts, look at the network there.");
  }
  if (incident.kind == IncidentKind::kFormation) {
    advice.emplace_back("If it comes again, look at the network between the hosts of the world.");
  }
  if (incident.outcome == Outcome::kHolds) {
    advice.emplace_back(
        "The job waits for workers until --elastic-timeout is over: add hosts, or look at why "
        "slots stay empty (--verbose says which rest after failures).");
  }
  return advice;
}

}  // namespace muster::launcher
