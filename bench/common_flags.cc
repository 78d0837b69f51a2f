#include "bench/common_flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

namespace muster::bench {
namespace {

constexpr size_t kProgressWidth = 78;

}  // namespace

void CommonFlags::Add(CLI::App& app) {
  app.add_option("--ranks", ranks, "Numbers of ranks, each measured by itself")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--contestants", contestants, "Who takes part: muster, gloo, mpi, shm")
      ->delimiter(',')
      ->check(CLI::IsMember(ContestantNames()))
      ->capture_default_str();
  app.add_option("--rounds", rounds, "Rounds; in each one every contestant has its turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--iterations",
                 iterations,
                 "Iterations per round and contestant; 0: by size, more of what is short")
      ->check(CLI::Range(0, kIterationsMax))
      ->capture_default_str();
  app.add_option(
         "--timeout", timeout_s, "Seconds until a contestant that does not answer is given up")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app.add_option("--muster-arg",
                 muster_arguments,
                 "One more argument of `muster run`, such as --muster-arg=--verbose; repeatable")
      ->allow_extra_args(false);
  app.add_option("--json", json, "Write the results to this file as well");
}

Plan CommonFlags::ToPlan() const {
  return {.rounds = rounds, .iterations = iterations, .timeout = std::chrono::seconds(timeout_s)};
}

Launch CommonFlags::ToLaunch(int rank_count, int hosts) const {
  return {
      .ranks = rank_count, .hosts = hosts, .directory = {}, .muster_arguments = muster_arguments};
}

std::vector<Contestant> CommonFlags::ToContestants() const {
  std::vector<Contestant> all;
  for (const std::string& name : contestants) {
    all.push_back(ParseContestant(name).value());
  }
  return all;
}

ProgressLine::ProgressLine() : shown_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(const std::string& text) {
  if (shown_) {
    std::fprintf(stderr, "\r\033[K%.*s", static_cast<int>(kProgressWidth), text.c_str());
    std::fflush(stderr);
  }
}

void ProgressLine::Clear() {
  if (shown_) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
}

Progress ProgressLine::Callback() {
  return [this](const std::string& text) { Show(text); };
}

void Print(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}

void PrintAbsent(const Field& field) {
  for (const std::string& reason : field.absent()) {
    Print("without " + reason);
  }
}

}  // namespace muster::bench
