// `muster agent` alone, for tests that kill its processes.

#include "launcher/agent/agent_main.h"

int main() {
  return muster::launcher::RunAgent();
}
