#include "launcher/chaos/victims.h"

#include <catch2/catch.hpp>
#include <set>

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

JobProcess Worker(pid_t pid, const std::string& host, Duration age = seconds(60)) {
  JobProcess process;
  process.role = JobRole::kWorker;
  process.pid = pid;
  process.host = host;
  process.slot = std::to_string(pid % 2);
  process.incarnation = std::to_string(pid);
  process.age = age;
  return process;
}

JobProcess Server(JobRole role, pid_t pid, const std::string& host) {
  JobProcess process;
  process.role = role;
  process.pid = pid;
  process.host = host;
  process.age = seconds(60);
  return process;
}

// Two hosts of two workers each.
std::vector<JobProcess> TwoHosts() {
  return {Worker(10, "a"),
          Worker(11, "a"),
          Worker(20, "b"),
          Worker(21, "b"),
          Server(JobRole::kAgent, 1, "a"),
          Server(JobRole::kReaper, 2, "a"),
          Server(JobRole::kAgent, 3, "b"),
          Server(JobRole::kReaper, 4, "b")};
}

std::set<pid_t> AllPicked(const std::string& kind,
                          const std::vector<JobProcess>& processes,
                          const VictimRules& rules) {
  std::set<pid_t> picked;
  for (uint64_t draw = 0; draw < 100; ++draw) {
    if (const auto victim = PickVictim(kind, processes, rules, draw)) {
      picked.insert(victim->pid);
    }
  }
  return picked;
}

TEST_CASE("each kind meets its own victims, and every one of them") {
  const std::vector<JobProcess> all = TwoHosts();
  CHECK(AllPicked("kill", all, {}) == std::set<pid_t>{10, 11, 20, 21});
  CHECK(AllPicked("stop", all, {}) == std::set<pid_t>{10, 11, 20, 21});
  CHECK(AllPicked("pause", all, {}) == std::set<pid_t>{10, 11, 20, 21});
  CHECK(AllPicked("agent", all, {}) == std::set<pid_t>{1, 3});
  CHECK(AllPicked("reaper", all, {}) == std::set<pid_t>{2, 4});
  CHECK(AllPicked("descriptors", all, {}) == std::set<pid_t>{10, 11, 20, 21, 1, 3});
}

TEST_CASE("what is under way, and what a hook holds, is left alone") {
  VictimRules rules;
  rules.taken = {10};
  CHECK(AllPicked("kill", TwoHosts(), rules) == std::set<pid_t>{11, 20, 21});
  rules.hosts_taken = {"b"};
  CHECK(AllPicked("pause", TwoHosts(), rules) == std::set<pid_t>{11});
  CHECK(AllPicked("descriptors", TwoHosts(), rules) == std::set<pid_t>{11, 1});
}

TEST_CASE("workers that may hold the state are kept") {
  VictimRules rules;
  rules.kept = 3;
  CHECK(AllPicked("kill", TwoHosts(), rules).size() == 4);
  CHECK(AllPicked("agent", TwoHosts(), rules).empty());
  rules.kept = 4;
  CHECK(AllPicked("kill", TwoHosts(), rules).empty());
  CHECK(AllPicked("stop", TwoHosts(), rules).empty());
  // These end nobody.
  CHECK(AllPicked("pause", TwoHosts(), rules).size() == 4);
  CHECK(AllPicked("descriptors", TwoHosts(), rules).size() == 6);
}

TEST_CASE("a worker that has just started keeps no state, but may be met") {
  const std::vector<JobProcess> young{Worker(10, "a"), Worker(20, "b", milliseconds(2999))};
  VictimRules rules;
  rules.kept = 1;
  CHECK(AllPicked("kill", young, rules) == std::set<pid_t>{20});
  const std::vector<JobProcess> grown{Worker(10, "a"), Worker(20, "b", seconds(3))};
  CHECK(AllPicked("kill", grown, rules) == std::set<pid_t>{10, 20});
}

TEST_CASE("one that is stopped or cut off does not count as kept") {
  VictimRules rules;
  rules.kept = 2;
  rules.taken = {20};
  CHECK(AllPicked("kill", TwoHosts(), rules) == std::set<pid_t>{10, 11, 21});
  CHECK(AllPicked("agent", TwoHosts(), rules) == std::set<pid_t>{3});
  rules.kept = 1;
  CHECK(AllPicked("agent", TwoHosts(), rules) == std::set<pid_t>{1, 3});
}

TEST_CASE("a worker ends alone, and with a server of a host all that is there") {
  const auto ending = [](const JobProcess& victim) {
    std::set<pid_t> pids;
    for (const JobProcess& process : EndingWith(victim, TwoHosts())) {
      pids.insert(process.pid);
    }
    return pids;
  };
  CHECK(ending(Worker(10, "a")) == std::set<pid_t>{10});
  CHECK(ending(Server(JobRole::kAgent, 1, "a")) == std::set<pid_t>{1, 2, 10, 11});
  CHECK(ending(Server(JobRole::kReaper, 4, "b")) == std::set<pid_t>{3, 4, 20, 21});
}

TEST_CASE("a draw means the same place whatever the order of the processes") {
  std::vector<JobProcess> all = TwoHosts();
  std::vector<JobProcess> reversed(all.rbegin(), all.rend());
  for (uint64_t draw = 0; draw < 20; ++draw) {
    CHECK(PickVictim("kill", all, {}, draw)->pid == PickVictim("kill", reversed, {}, draw)->pid);
  }
}

TEST_CASE("nobody there means nobody met") {
  CHECK_FALSE(PickVictim("kill", {}, {}, 1));
  CHECK_FALSE(PickVictim("agent", {Worker(10, "a")}, {}, 1));
}

}  // namespace
}  // namespace muster::launcher
