#include "launcher/driver/remote_shell.h"

#include <catch2/catch.hpp>

#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using Words = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kNoKubernetes = "/nowhere/kubexec.sh";

Words Command(const RemoteShellOptions& options,
              const std::string& host = "host-a",
              Duration timeout = seconds(30)) {
  return RemoteShellCommand(options, {host}, timeout, "/opt/muster", kNoKubernetes).value();
}

TEST_CASE("remote shell is ssh, which may not ask for anything") {
  CHECK(Command({}) == Words{"ssh",
                             "-T",
                             "-o",
                             "BatchMode=yes",
                             "-o",
                             "PasswordAuthentication=no",
                             "-o",
                             "ConnectTimeout=30",
                             "--",
                             "host-a",
                             "'/opt/muster' agent"});
}

TEST_CASE("remote shell takes port, identity and the check of host keys from the options") {
  RemoteShellOptions options;
  options.ssh_port = 2222;
  options.ssh_identity_file = "/home/me/a key";
  options.strict_host_key_checking = "accept-new";
  CHECK(Command(options) == Words{"ssh",
                                  "-T",
                                  "-o",
                                  "BatchMode=yes",
                                  "-o",
                                  "PasswordAuthentication=no",
                                  "-o",
                                  "StrictHostKeyChecking=accept-new",
                                  "-p",
                                  "2222",
                                  "-i",
                                  "/home/me/a key",
                                  "-o",
                                  "ConnectTimeout=30",
                                  "--",
                                  "host-a",
                                  "'/opt/muster' agent"});
}

TEST_CASE("remote shell waits at least a second to connect, in whole seconds") {
  CHECK(Command({}, "a", milliseconds(10)).at(7) == "ConnectTimeout=1");
  CHECK(Command({}, "a", milliseconds(1001)).at(7) == "ConnectTimeout=2");
}

TEST_CASE("remote shell of the user's gets its own words, the host and one command") {
  RemoteShellOptions options;
  options.rsh_agent = " kubectl-sh  -v\t";
  options.ssh_port = 22;
  CHECK(Command(options, "[fd00::1]") ==
        Words{"kubectl-sh", "-v", "[fd00::1]", "'/opt/muster' agent"});
}

TEST_CASE("remote shell is Kubernetes' where there is one and none was named") {
  const TemporaryFolder folder;
  const std::string shell = folder.Write("kubexec.sh", "#!/bin/sh\n", 0755);
  CHECK(RemoteShellCommand({}, {"pod"}, seconds(1), "/m", shell).value() ==
        Words{shell, "pod", "'/m' agent"});
  RemoteShellOptions options;
  options.rsh_agent = "mine";
  CHECK(RemoteShellCommand(options, {"pod"}, seconds(1), "/m", shell).value().front() == "mine");
  const std::string not_executable = folder.Write("other.sh", "#!/bin/sh\n", 0644);
  CHECK(RemoteShellCommand({}, {"pod"}, seconds(1), "/m", not_executable).value().front() == "ssh");
}

TEST_CASE("remote shell runs the path that was named, quoted for the shell over there") {
  RemoteShellOptions options;
  options.remote_muster = "/opt/my $(tools)/it's/muster";
  CHECK(Command(options).back() == R"('/opt/my $(tools)/it'\''s/muster' agent)");
}

TEST_CASE("remote shell does not get a name that it could take for something else") {
  for (const std::string name :
       {"", "-oProxyCommand=reboot", "-", "a b", "a\tb", "a\nb", " a", "a\x7f"}) {
    INFO(name);
    const auto command = RemoteShellCommand({}, {name}, seconds(1), "/m", kNoKubernetes);
    CHECK(command.status().code() == StatusCode::kInvalid);
  }
  for (const std::string name : {"user@host", "fd00::1", "under_score", "10.0.0.1", "b\xc3\xa4r"}) {
    INFO(name);
    CHECK(RemoteShellCommand({}, {name}, seconds(1), "/m", kNoKubernetes).ok());
  }
}

TEST_CASE("own program is the path of this executable") {
  CHECK(OwnProgram().value().ends_with("/driver_test"));
}

}  // namespace
}  // namespace muster::launcher
