// muster-bench rank: one rank of a contestant, started by the bench or by `muster run`.

#include <CLI/CLI.hpp>
#include <exception>
#include <memory>

#include "bench/commands.h"
#include "bench/contestants.h"
#include "bench/rank_engines.h"

namespace muster::bench {
namespace {

struct Flags {
  std::string contestant;
  std::string socket;
  std::string store;
  int rank = 0;
  int size = 1;
  int segment = -1;
};

std::unique_ptr<RankEngine> Make(const Flags& flags) {
  switch (ParseContestant(flags.contestant).value()) {
    case Contestant::kMuster:
      return MakeMusterRank();
    case Contestant::kGloo:
      return MakeGlooRank(flags.rank, flags.size, flags.store);
    case Contestant::kShm:
      return MakeShmRank(flags.rank, flags.size, flags.segment);
    case Contestant::kMpi:
      break;
  }
  throw std::invalid_argument("Open MPI's ranks are muster-bench-mpi");
}

Status Run(const Flags& flags) {
  try {
    const std::unique_ptr<RankEngine> engine = Make(flags);
    return Serve(*engine, flags.socket);
  } catch (const std::exception& error) {
    return Status::Failed(error.what());
  }
}

}  // namespace

Command AddRank(CLI::App& app) {
  auto flags = std::make_shared<Flags>();  // The command line and the command both need it.
  CLI::App* command = app.add_subcommand("rank", "One rank of a contestant.");
  command->group("");  // Hidden: the bench starts it.
  command->add_option("--contestant", flags->contestant)
      ->required()
      ->check(CLI::IsMember(ContestantNames()));
  command->add_option("--socket", flags->socket)->required();
  command->add_option("--store", flags->store);
  command->add_option("--rank", flags->rank);
  command->add_option("--size", flags->size);
  command->add_option("--segment", flags->segment);
  return [flags] { return Run(*flags); };
}

}  // namespace muster::bench
