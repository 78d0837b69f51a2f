#include "launcher/driver/remote_shell.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string_view>

namespace muster::launcher {
namespace {

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) {
    words.push_back(word);
  }
  return words;
}

// A remote shell hands the command to the user's shell over there, so the path is quoted for it.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

bool IsPlainName(const std::string& name) {
  return !name.empty() && name.front() != '-' && std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<uint8_t>(c) > ' ' && c != '\x7f';
  });
}

void Add(std::vector<std::string>& argv, std::initializer_list<std::string> words) {
  argv.insert(argv.end(), words);
}

std::vector<std::string> SshWords(const RemoteShellOptions& options, Duration timeout) {
  std::vector<std::string> argv{"ssh", "-T", "-o", "BatchMode=yes"};
  Add(argv, {"-o", "PasswordAuthentication=no"});
  if (!options.strict_host_key_checking.empty()) {
    Add(argv, {"-o", "StrictHostKeyChecking=" + options.strict_host_key_checking});
  }
  if (options.ssh_port) {
    Add(argv, {"-p", std::to_string(*options.ssh_port)});
  }
  if (!options.ssh_identity_file.empty()) {
    Add(argv, {"-i", options.ssh_identity_file});
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(timeout).count();
  Add(argv, {"-o", "ConnectTimeout=" + std::to_string(std::max<int64_t>(seconds, 1)), "--"});
  return argv;
}

}  // namespace

Result<std::vector<std::string>> RemoteShellCommand(const RemoteShellOptions& options,
                                                    const HostId& host,
                                                    Duration timeout,
                                                    const std::string& own_program,
                                                    const std::string& kubernetes_shell) {
  if (!IsPlainName(host.value)) {
    return Status::Invalid(
        "a name that begins with '-' or holds blanks is not given to a remote shell");
  }
  std::vector<std::string> argv = Words(options.rsh_agent);
  if (argv.empty() && ::access(kubernetes_shell.c_str(), X_OK) == 0) {
    argv = {kubernetes_shell};
  }
  if (argv.empty()) {
    argv = SshWords(options, timeout);
  }
  const std::string& program = options.remote_muster.empty() ? own_program : options.remote_muster;
  Add(argv, {host.value, Quoted(program) + " agent"});
  return argv;
}

Result<std::string> OwnProgram() {
  std::error_code error;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) {
    return Status::Failed("cannot find muster's own executable: " + error.message());
  }
  // The kernel says so after an update in mid-job; the new file has the same path.
  static constexpr std::string_view kDeleted = " (deleted)";
  if (path.ends_with(kDeleted)) {
    path.resize(path.size() - kDeleted.size());
  }
  return path;
}

}  // namespace muster::launcher
