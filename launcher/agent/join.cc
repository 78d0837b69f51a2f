#include "launcher/agent/join.h"

#include <unistd.h>

#include <array>

#include "common/secret.h"
#include "common/version.h"
#include "discovery/host_list.h"
#include "launcher/security/secret_file.h"

namespace muster::launcher {
namespace {

constexpr size_t kJobIdBytes = 8;

Result<std::string> HostName(const JoinOptions& options) {
  if (!options.host.empty()) {
    return options.host;
  }
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name.front() == '\0') {
    return Status::Invalid("this machine has no name; give it one with --host");
  }
  if (!discovery::IsHost(name.data())) {
    return Status::Invalid("this machine's name, '" +
                           discovery::Printable(name.data(), name.size()) +
                           "', will not do for a host; give it another one with --host");
  }
  return std::string(name.data());
}

}  // namespace

Result<v1::AgentBootstrap> MakeJoinBootstrap(const JoinOptions& options) {
  Result<std::string> secret = ReadSecretFile(options.secret_file);
  if (!secret.ok()) {
    return secret.status();
  }
  Result<std::string> host = HostName(options);
  if (!host.ok()) {
    return host.status();
  }
  v1::AgentBootstrap bootstrap;
  bootstrap.set_host(host.value());
  bootstrap.set_job_id(RandomHex(kJobIdBytes));
  bootstrap.set_secret(secret.value());
  for (const std::string& address : options.drivers) {
    bootstrap.add_driver()->set_literal(address);
  }
  for (const std::string& interface : options.interfaces) {
    bootstrap.add_network_interfaces(interface);
  }
  bootstrap.set_log_level(options.log_level);
  bootstrap.set_protocol(kProtocolVersion);
  bootstrap.set_remote(true);
  return bootstrap;
}

}  // namespace muster::launcher
