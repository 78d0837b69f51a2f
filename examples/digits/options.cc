#include "options.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

constexpr const char* kHelp =
    "digits: trains a classifier of handwritten digits, elastically\n"
    "\n"
    "  --epochs N         passes over the training data (20)\n"
    "  --batch B          samples per step, of all ranks together (32)\n"
    "  --hidden H         hidden units (64)\n"
    "  --state-mb M       extra state in MiB, committed and synced like the weights (0)\n"
    "  --step-ms MS       extra milliseconds per step (0)\n"
    "  --commit-every K   steps between commits (1)\n"
    "  --stop-after STEPS ends after that many steps\n"
    "  --model-out FILE   rank 0 writes the trained parameters there\n"
    "  --data FILE        digits.csv.gz, if not at its place in the source\n"
    "\n"
    "Started alone it is a world of one. As an elastic job:\n"
    "  horovodrun -np 4 --min-np 2 --max-np 4 --host-discovery-script discover.sh digits\n";

[[noreturn]] void Refuse(const std::string& what) {
  std::fprintf(stderr, "digits: %s (see --help)\n", what.c_str());
  std::exit(2);
}

int64_t ParseNumber(std::string_view flag, std::string_view text, int64_t least) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least) {
    Refuse(std::string(flag) + " needs a whole number of at least " + std::to_string(least) +
           ", not \"" + std::string(text) + "\"");
  }
  return number;
}

void Set(Options& options, std::string_view flag, std::string_view value) {
  if (flag == "--epochs") {
    options.epochs = ParseNumber(flag, value, 0);
  } else if (flag == "--batch") {
    options.batch = ParseNumber(flag, value, 1);
  } else if (flag == "--hidden") {
    options.hidden = ParseNumber(flag, value, 1);
  } else if (flag == "--state-mb") {
    options.state_mb = ParseNumber(flag, value, 0);
  } else if (flag == "--step-ms") {
    options.step_ms = ParseNumber(flag, value, 0);
  } else if (flag == "--commit-every") {
    options.commit_every = ParseNumber(flag, value, 1);
  } else if (flag == "--stop-after") {
    options.stop_after = ParseNumber(flag, value, 0);
  } else if (flag == "--model-out") {
    options.model_out = value;
  } else if (flag == "--data") {
    options.data = value;
  } else {
    Refuse("no such option: " + std::string(flag));
  }
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(kHelp, stdout);
      std::exit(0);
    }
    const size_t equals = argument.find('=');  // --epochs=3 is --epochs 3.
    if (equals != std::string_view::npos) {
      Set(options, argument.substr(0, equals), argument.substr(equals + 1));
    } else if (i + 1 < argc) {
      Set(options, argument, argv[++i]);
    } else {
      Refuse(std::string(argument) + " needs a value");
    }
  }
  return options;
}
