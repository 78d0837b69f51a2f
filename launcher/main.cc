// The one binary: `muster run`, `muster agent`, `muster why`, `muster chaos`, and, under the name
// horovodrun, `run`.

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "common/log.h"
#include "common/open_files.h"
#include "common/process.h"
#include "common/secret.h"
#include "launcher/agent/agent_main.h"
#include "launcher/chaos/run_chaos.h"
#include "launcher/cli/options.h"
#include "launcher/driver/driver.h"
#include "launcher/driver/job_signals.h"
#include "launcher/incident/why.h"
#include "launcher/security/secret_file.h"
#include "launcher/session/grpc_log.h"

namespace muster::launcher {
namespace {

constexpr size_t kSecretBytes = 32;

int Start(const PrintAndExit& text) {
  std::FILE* where = text.code == 0 ? stdout : stderr;
  std::fwrite(text.text.data(), 1, text.text.size(), where);
  return text.code;
}

int Start(const AgentCommand& command) {
  return command.join ? RunJoinedAgent(*command.join) : RunAgent();
}

int Start(const WhyCommand& command) {
  return RunWhy(command);
}

int Start(const ChaosOptions& options) {
  return RunChaos(options);
}

int Start(const RunOptions& options) {
  JobSignals::Block();
  if (const Status log = InitLog("driver", options.log_level); !log.ok()) {
    return Start(PrintAndExit{"muster: " + log.message() + "\n", 2});
  }
  RedirectGrpcLog();
  if (const Status raised = RaiseOpenFiles(); !raised.ok()) {
    spdlog::warn("{}", raised.message());
  }
  std::string secret = RandomHex(kSecretBytes);
  if (!options.secret_file.empty()) {
    Result<std::string> given = ReadSecretFile(options.secret_file);
    if (!given.ok()) {
      return Start(PrintAndExit{"muster: " + given.status().message() + "\n", 2});
    }
    secret = std::move(given).value();
  }
  Driver driver(options, std::move(secret));
  return driver.Run();
}

}  // namespace

// `muster run ... >&-`: without this the first descriptors that the driver opens for itself would
// be numbers 0 to 2, and workers' lines would be written into them.
void OpenStandardFds() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) {
    ::close(fd);
  }
}

}  // namespace muster::launcher

int main(int argc, char** argv) {
  using muster::launcher::Parsed;
  muster::launcher::OpenStandardFds();
  const Parsed parsed = muster::launcher::ParseCommandLine(
      std::vector<std::string>(argv, argv + argc), muster::CurrentEnvironment());
  return std::visit([](const auto& command) { return muster::launcher::Start(command); }, parsed);
}
