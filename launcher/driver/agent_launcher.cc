#include "launcher/driver/agent_launcher.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

namespace muster::launcher {
namespace {

// As it would print in numbers; nothing if the name is no literal.
std::optional<std::string> NormalLiteral(const std::string& name) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) {
    return std::nullopt;
  }
  std::array<char, NI_MAXHOST> text{};
  const int rc = ::getnameinfo(
      found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(found);
  if (rc != 0) {
    return std::nullopt;
  }
  return std::string(text.data());
}

bool IsInterfaceAddress(const std::string& literal) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return false;
  }
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr && !found; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) {
      continue;
    }
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) {
      continue;
    }
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    found = ::getnameinfo(
                entry->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 &&
            literal == text.data();
  }
  ::freeifaddrs(list);
  return found;
}

Status WriteAll(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (size < 0 && errno != EINTR) {
      return Status::Failed(std::string("cannot hand the agent its bootstrap: ") + strerror(errno));
    }
    done += size < 0 ? 0 : static_cast<size_t>(size);
  }
  return Status::Ok();
}

}  // namespace

bool IsLocalHost(const HostId& host) {
  const std::string& name = host.value;
  std::array<char, 256> own{};
  ::gethostname(own.data(), own.size() - 1);
  if (::strcasecmp(name.c_str(), "localhost") == 0 || name == own.data()) {
    return true;
  }
  const std::optional<std::string> literal = NormalLiteral(name);
  return literal &&
         (literal->rfind("127.", 0) == 0 || *literal == "::1" || IsInterfaceAddress(*literal));
}

Result<LaunchedAgent> LocalAgentLauncher::Start(const v1::AgentBootstrap& bootstrap) {
  Result<Pipe> pipe = MakePipe();
  if (!pipe.ok()) {
    return pipe.status();
  }
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return Status::Failed("cannot find muster's own executable: " + error.message());
  }
  SpawnOptions options;
  options.argv = {self.string(), "agent"};
  options.environment = CurrentEnvironment();
  options.stdin_fd = pipe.value().read.get();
  Result<SpawnedProcess> process = Spawn(options);
  if (!process.ok()) {
    return process.status();
  }
  const std::string body = bootstrap.SerializeAsString();
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) {
    bytes.push_back(static_cast<char>(body.size() >> shift));
  }
  bytes += body;
  // A bootstrap is far smaller than a pipe's buffer, so this does not block.
  if (Status written = WriteAll(pipe.value().write.get(), bytes); !written.ok()) {
    return written;
  }
  return LaunchedAgent{std::move(process).value(), std::move(pipe.value().write)};
}

}  // namespace muster::launcher
