// The flags about other hosts and the network, through the command line that carries them.

#include "launcher/cli/network_flags.h"

#include <catch2/catch.hpp>

#include "launcher/cli/options.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Words = std::vector<std::string>;

Parsed Parse(Words words, const Words& environment) {
  words.insert(words.begin(), {"muster", "run", "-np", "2"});
  words.push_back("w");
  return ParseCommandLine(words, environment);
}

RunOptions Run(const Words& words, const Words& environment = {}) {
  const Parsed parsed = Parse(words, environment);
  if (const auto* text = std::get_if<PrintAndExit>(&parsed)) {
    FAIL(text->text);
  }
  return std::get<RunOptions>(parsed);
}

std::string Error(const Words& words, const Words& environment = {}) {
  const Parsed parsed = Parse(words, environment);
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK(std::get<PrintAndExit>(parsed).code == 2);
  const std::string& text = std::get<PrintAndExit>(parsed).text;
  return text.substr(text.find("\nmuster: ") + 9);
}

}  // namespace

TEST_CASE("network options are open by default") {
  const RunOptions options = Run({});
  CHECK(options.network.interfaces.empty());
  CHECK(options.network.family == AddressFamily::kAny);
  CHECK(options.network.ports.any());
  CHECK_FALSE(options.remote_shell.ssh_port);
  CHECK(options.remote_shell.ssh_identity_file.empty());
  CHECK(options.remote_shell.strict_host_key_checking.empty());
  CHECK(options.remote_shell.rsh_agent.empty());
  CHECK(options.remote_shell.remote_muster.empty());
  CHECK(options.forward_environment.empty());
  CHECK_FALSE(options.accept_agents_port);
  CHECK(options.secret_file.empty());
}

TEST_CASE("interfaces are names and addresses in order, each written as the kernel does") {
  CHECK(Run({"--network-interface", "ib0, 10.0.0.2,[FD00::0:2],eth0.100"}).network.interfaces ==
        Words{"ib0", "10.0.0.2", "fd00::2", "eth0.100"});
  CHECK(Run({"--network-interface", "a", "--network-interfaces", "b,c"}).network.interfaces ==
        Words{"a", "b", "c"});
  CHECK(Run({}, {"MUSTER_NETWORK_INTERFACE=eth0,lo"}).network.interfaces == Words{"eth0", "lo"});
  for (const char* bad : {"a b", "/dev/eth0", "fe80::1%eth0", "far-too-long-a-name"}) {
    CAPTURE(bad);
    CHECK_THAT(Error({"--network-interface", bad}), StartsWith("--network-interface "));
  }
}

TEST_CASE("interfaces reach the workers' libraries by name only") {
  const RunOptions both = Run({"--network-interface", "10.0.0.2,eth0,eth1"});
  CHECK(both.worker_environment.at("NCCL_SOCKET_IFNAME") == "eth0,eth1");
  CHECK(both.worker_environment.at("HOROVOD_GLOO_IFACE") == "eth0");
  CHECK(both.warnings.empty());
  CHECK(Run({"--network-interface", "127.0.0.9"}).worker_environment.empty());
}

TEST_CASE("port range is one port or two in order") {
  CHECK(Run({"--port-range", "41000-41009"}).network.ports == PortRange{41000, 41009});
  CHECK(Run({"--port-range", "41000"}).network.ports == PortRange{41000, 41000});
  CHECK(Run({}, {"MUSTER_PORT_RANGE=1-65535"}).network.ports == PortRange{1, 65535});
  CHECK_THAT(Error({"--port-range", "41009-41000"}),
             StartsWith("--port-range 41009-41000: the first port"));
  for (const char* bad : {"0", "0-5", "1-65536", "a", "1-", "-", "1-2-3", "1,2", "+1"}) {
    CAPTURE(bad);
    CHECK_THAT(Error({std::string("--port-range=") + bad}), Contains("41000-41009"));
  }
}

TEST_CASE("address family is any, ipv4 or ipv6") {
  CHECK(Run({"--address-family", "ipv4"}).network.family == AddressFamily::kIpv4);
  CHECK(Run({"--address-family", "ipv6"}).network.family == AddressFamily::kIpv6);
  CHECK_THAT(Error({"--address-family", "inet"}), Contains("any, ipv4 or ipv6"));
}

TEST_CASE("ssh takes port, key and the strictness of its check") {
  const RunOptions options =
      Run({"-p", "2222", "-i", "key", "--strict-host-key-checking", "accept-new"});
  CHECK(options.remote_shell.ssh_port == 2222);
  CHECK(options.remote_shell.ssh_identity_file == "key");
  CHECK(options.remote_shell.strict_host_key_checking == "accept-new");
  CHECK(options.warnings.empty());
  CHECK_THAT(Error({"-p", "0"}), Contains("from 1 to 65535"));
  CHECK_THAT(Error({"-p", "65536"}), Contains("from 1 to 65535"));
  CHECK_THAT(Error({"--strict-host-key-checking", "ask"}), Contains("yes, no or accept-new"));
}

TEST_CASE("remote shell is that of the flag, of Muster's variable, or of Open MPI's") {
  const char* const kOpenMpi = "OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh";
  CHECK(Run({"--rsh-agent", "kubexec -n x"}).remote_shell.rsh_agent == "kubexec -n x");
  CHECK(Run({}, {kOpenMpi}).remote_shell.rsh_agent == "/etc/mpi/kubexec.sh");
  CHECK(Run({}, {kOpenMpi, "MUSTER_RSH_AGENT=mine"}).remote_shell.rsh_agent == "mine");
  CHECK(Run({}, {kOpenMpi, "MUSTER_RSH_AGENT="}).remote_shell.rsh_agent == "/etc/mpi/kubexec.sh");
  CHECK(Run({"--rsh-agent", "a"}, {kOpenMpi}).remote_shell.rsh_agent == "a");
  // Open MPI's own default.
  CHECK(Run({}, {"OMPI_MCA_plm_rsh_agent=ssh : rsh"}).remote_shell.rsh_agent.empty());
  CHECK(Run({}, {"OMPI_MCA_plm_rsh_agent=/a/b : ssh"}).remote_shell.rsh_agent == "/a/b");
}

TEST_CASE("options of ssh are pointless with another remote shell, and that is said") {
  const RunOptions options = Run({"--rsh-agent", "kubexec", "-p", "22", "-i", "key"});
  REQUIRE(options.warnings.size() == 2);
  CHECK_THAT(options.warnings[0], Contains("no effect") && Contains("kubexec"));
}

TEST_CASE("muster of other hosts is named by an absolute path") {
  CHECK(Run({"--remote-muster", "/opt/muster"}).remote_shell.remote_muster == "/opt/muster");
  CHECK_THAT(Error({"--remote-muster", "bin/muster"}), Contains("absolute"));
}

TEST_CASE("variables to forward are a list of names") {
  CHECK(Run({"--forward-environment", "CUDA_VISIBLE_DEVICES, A", "--forward-environment", "B"})
            .forward_environment == Words{"CUDA_VISIBLE_DEVICES", "A", "B"});
  CHECK(Run({}, {"MUSTER_FORWARD_ENVIRONMENT=A"}).forward_environment == Words{"A"});
  CHECK_THAT(Error({"--forward-environment", "A=1"}), Contains("without values"));
  CHECK_THAT(Error({}, {"MUSTER_FORWARD_ENVIRONMENT=,"}), Contains("separated by commas"));
  CHECK_THAT(Error({}, {"MUSTER_NETWORK_INTERFACE= , "}), Contains("separated by commas"));
}

TEST_CASE("agents that dial in are the hosts of an elastic job") {
  const RunOptions options = Run({"--accept-agents", "41000", "--secret-file", "/s"});
  CHECK(options.accept_agents_port == 41000);
  CHECK(options.secret_file == "/s");
  CHECK(options.membership.elastic);
  CHECK(options.hosts.empty());
  CHECK(options.membership.np_min == 2);
  CHECK(Run({"--accept-agents", "0"}, {"MUSTER_SECRET_FILE=/s"}).accept_agents_port == 0);
  CHECK(Run({}, {"MUSTER_ACCEPT_AGENTS=1", "MUSTER_SECRET_FILE=/s"}).accept_agents_port == 1);
}

TEST_CASE("agents that dial in need a secret and exclude other sources of hosts") {
  CHECK_THAT(Error({"--accept-agents", "41000"}), Contains("--secret-file"));
  CHECK_THAT(Error({"--accept-agents", "65536", "--secret-file", "/s"}), Contains("65535"));
  for (const Words& other :
       {Words{"-H", "a:2"}, Words{"--hostfile", "f"}, Words{"--host-discovery-script", "s"}}) {
    Words words{"--accept-agents", "1", "--secret-file", "/s"};
    words.insert(words.end(), other.begin(), other.end());
    CHECK_THAT(Error(words), Contains("--accept-agents exclude each other"));
  }
  // A flag for the hosts counts more than the variable of another.
  CHECK_FALSE(Run({"-H", "a:2"}, {"MUSTER_ACCEPT_AGENTS=1"}).accept_agents_port);
}

TEST_CASE("secret file without agents that dial in is not used") {
  const RunOptions options = Run({"--secret-file", "/s"});
  CHECK(options.secret_file.empty());
  REQUIRE(options.warnings.size() == 1);
  CHECK_THAT(options.warnings[0], Contains("--accept-agents"));
  CHECK(Run({}, {"MUSTER_SECRET_FILE=/s"}).warnings.empty());
}

TEST_CASE("lists are split at commas and freed of blanks") {
  CHECK(SplitList("a") == Words{"a"});
  CHECK(SplitList(" a ,\tb") == Words{"a", "b"});
  CHECK(SplitList(",a,, b ,") == Words{"a", "b"});
  CHECK(SplitList("").empty());
  CHECK(SplitList(" , ").empty());
}

}  // namespace muster::launcher
