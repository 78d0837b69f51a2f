// `muster agent` alone, for tests that kill its processes; with arguments
// `muster agent --join`: address, host, file of the secret, milliseconds to wait.

#include <cstdlib>
#include <string>

#include "launcher/agent/agent_main.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    return muster::launcher::RunAgent();
  }
  muster::launcher::JoinOptions options;
  options.drivers = {argv[1]};
  options.host = argv[2];
  options.secret_file = argv[3];
  options.timeout = std::chrono::milliseconds(std::atoi(argv[4]));
  options.log_level = "INFO";
  return muster::launcher::RunJoinedAgent(options);
}
