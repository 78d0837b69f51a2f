#include "bench/contestants.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "bench/process_waits.h"
#include "bench/rank_engines.h"

namespace muster::bench {
namespace {

Status Unavailable(const std::string& why) {
  return {StatusCode::kUnavailable, why};
}

bool InPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "" : path;
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    if (::access((folders.substr(begin, end - begin) + "/" + program).c_str(), X_OK) == 0) {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

std::vector<std::string> RankCommand(Contestant contestant, const GroupSpec& spec, int rank) {
  return {Beside("muster-bench"),
          "rank",
          "--contestant",
          Name(contestant),
          "--socket",
          spec.socket,
          "--rank",
          std::to_string(rank),
          "--size",
          std::to_string(spec.ranks)};
}

Result<GroupSpec> Muster(GroupSpec spec, const Launch& launch) {
  const std::string program = Beside("muster");
  if (::access(program.c_str(), X_OK) != 0) {
    return Unavailable("there is no " + program + "; build the target muster_bin");
  }
  if (launch.hosts > launch.ranks) {
    return Unavailable("two hosts take two ranks");
  }
  const int there = launch.hosts == 1 ? 0 : launch.ranks / 2;
  const std::string hosts = "localhost:" + std::to_string(launch.ranks - there) +
                            (there == 0 ? "" : ",127.0.0.1:" + std::to_string(there));
  std::vector<std::string> command = {
      program, "run", "-np", std::to_string(launch.ranks), "-H", hosts};
  command.insert(command.end(), launch.muster_arguments.begin(), launch.muster_arguments.end());
  command.insert(
      command.end(),
      {Beside("muster-bench"), "rank", "--contestant", "muster", "--socket", spec.socket});
  spec.commands = {command};
  return spec;
}

Result<GroupSpec> Gloo(GroupSpec spec, const Launch& launch) {
  const std::string store = launch.directory + "/" + spec.name + "-store";
  std::error_code error;
  std::filesystem::create_directory(store, error);
  if (error) {
    return Status::Failed("cannot make " + store + ": " + error.message());
  }
  for (int rank = 0; rank < spec.ranks; ++rank) {
    spec.commands.push_back(RankCommand(Contestant::kGloo, spec, rank));
    spec.commands.back().insert(spec.commands.back().end(), {"--store", store});
  }
  return spec;
}

Result<GroupSpec> Mpi(GroupSpec spec, const Launch& launch) {
  const std::string program = Beside("muster-bench-mpi");
  if (launch.hosts > 1) {
    return Unavailable("left out over two hosts: on one machine it would use shared memory");
  }
  if (::access(program.c_str(), X_OK) != 0 || !InPath("mpirun")) {
    return Unavailable("not built, or no mpirun: scripts/setup --bench, then build again");
  }
  std::vector<std::string> command = {"mpirun"};
  if (::geteuid() == 0) {
    command.emplace_back("--allow-run-as-root");
  }
  // Without the last, ranks that wait would keep the others off cores they share.
  command.insert(command.end(), {"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"});
  command.insert(command.end(), {"-np", std::to_string(spec.ranks), program, spec.socket});
  spec.commands = {command};
  return spec;
}

Result<GroupSpec> Shm(GroupSpec spec, const Launch& launch) {
  if (launch.hosts > 1) {
    return Unavailable("left out over two hosts");
  }
  spec.inherited = UniqueFd(::memfd_create("muster-bench", MFD_CLOEXEC));
  if (!spec.inherited.valid() ||
      ::ftruncate(spec.inherited.get(), static_cast<off_t>(SegmentBytes(spec.ranks))) != 0) {
    return Status::Failed(std::string("cannot make a shared segment: ") + std::strerror(errno));
  }
  for (int rank = 0; rank < spec.ranks; ++rank) {
    spec.commands.push_back(RankCommand(Contestant::kShm, spec, rank));
    spec.commands.back().insert(spec.commands.back().end(),
                                {"--segment", std::to_string(spec.inherited.get())});
  }
  return spec;
}

}  // namespace

const std::vector<std::string>& ContestantNames() {
  static const std::vector<std::string> names = {"muster", "gloo", "mpi", "shm"};
  return names;
}

const std::string& Name(Contestant contestant) {
  return ContestantNames().at(static_cast<size_t>(contestant));
}

Result<Contestant> ParseContestant(const std::string& text) {
  const std::vector<std::string>& names = ContestantNames();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    return Status::Invalid("no contestant is called '" + text + "'");
  }
  return static_cast<Contestant>(found - names.begin());
}

std::vector<std::string> Algorithms(Contestant contestant, Operation operation, Pace pace) {
  const bool back_to_back = pace == Pace::kBackToBack;
  if (contestant == Contestant::kShm && operation != Operation::kAllreduce) {
    return {};
  }
  if (contestant != Contestant::kGloo) {
    return {""};
  }
  if (operation == Operation::kAllreduce) {
    return back_to_back ? std::vector<std::string>{"ring", "bcube"}
                        : std::vector<std::string>{"ring", "bcube", "halving_doubling"};
  }
  if (operation == Operation::kReducescatter) {
    return back_to_back ? std::vector<std::string>{} : std::vector<std::string>{""};
  }
  return {""};
}

Result<GroupSpec> SpecOf(Contestant contestant, const Launch& launch) {
  GroupSpec spec;
  spec.name = Name(contestant);
  spec.ranks = launch.ranks;
  spec.socket = launch.directory + "/" + spec.name + ".sock";
  spec.log = launch.directory + "/" + spec.name + ".log";
  switch (contestant) {
    case Contestant::kMuster:
      return Muster(std::move(spec), launch);
    case Contestant::kGloo:
      return Gloo(std::move(spec), launch);
    case Contestant::kMpi:
      return Mpi(std::move(spec), launch);
    case Contestant::kShm:
      return Shm(std::move(spec), launch);
  }
  return Status::Invalid("no such contestant");
}

}  // namespace muster::bench
