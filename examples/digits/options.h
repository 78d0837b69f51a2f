#pragma once

// The command line of the digits example.

#include <cstdint>
#include <optional>
#include <string>

struct Options {
  int64_t epochs = 20;
  int64_t batch = 32;  // Of all ranks together.
  int64_t hidden = 64;
  int64_t state_mb = 0;  // Extra state, to see what its size costs.
  int64_t step_ms = 0;   // Extra time per step, as a larger network would take.
  int64_t commit_every = 1;
  std::optional<int64_t> stop_after;  // Steps.
  std::string model_out;
  std::string data;  // Empty: the file that comes with the source.
};

/// Prints the help and exits with 0 if it is asked for; prints what is wrong and exits with 2 if
/// the arguments do not parse.
Options ParseOptions(int argc, char** argv);
