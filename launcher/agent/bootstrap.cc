#include "launcher/agent/bootstrap.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "common/clock.h"
#include "common/version.h"

namespace muster::launcher {
namespace {

constexpr size_t kLengthBytes = 4;
// Whoever reads this has most likely given --rsh-agent a command that keeps its input to itself.
constexpr const char* kForwarding =
    "; `muster run` starts this program through a remote shell that must forward its standard "
    "input: ssh does, `kubectl exec` does with -i; see --rsh-agent";

Status WaitReadable(int fd, Instant deadline) {
  while (true) {
    const Duration left = deadline - SteadyClock().Now();
    if (left <= Duration::zero()) {
      return {StatusCode::kTimeout, std::string("nothing came on standard input") + kForwarding};
    }
    pollfd entry{fd, POLLIN, 0};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(wait));
    if (ready > 0) {
      return Status::Ok();
    }
    if (ready < 0 && errno != EINTR) {
      return Status::Failed(std::string("poll on standard input: ") + strerror(errno));
    }
  }
}

Status ReadExactly(int fd, char* bytes, size_t size, Instant deadline) {
  while (size > 0) {
    if (Status status = WaitReadable(fd, deadline); !status.ok()) {
      return status;
    }
    const ssize_t got = ::read(fd, bytes, size);
    if (got == 0) {
      return Status::Invalid(std::string("standard input ended before the bootstrap was complete") +
                             kForwarding);
    }
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      return Status::Failed(std::string("read of standard input: ") + strerror(errno));
    }
    if (got > 0) {
      bytes += got;
      size -= static_cast<size_t>(got);
    }
  }
  return Status::Ok();
}

Status CheckFields(const v1::AgentBootstrap& bootstrap) {
  if (bootstrap.protocol() != kProtocolVersion) {
    return Status::Invalid("the driver speaks protocol " + std::to_string(bootstrap.protocol()) +
                           ", this agent " + std::to_string(kProtocolVersion) +
                           "; install the same version of muster on every host");
  }
  if (bootstrap.host().empty() || bootstrap.job_id().empty() || bootstrap.driver().empty()) {
    return Status::Invalid("the bootstrap lacks the host, the job or the driver's address");
  }
  return Status::Ok();
}

}  // namespace

Result<v1::AgentBootstrap> ReadBootstrap(int fd, std::chrono::milliseconds timeout) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) {
    // A plain file has no end that tells of the driver's death, and cannot be waited for.
    return Status::Invalid("standard input must be a pipe or a socket that the driver holds open");
  }
  if (::isatty(fd) == 1) {
    return Status::Invalid(std::string("standard input is a terminal") + kForwarding +
                           ", without a terminal of its own (no -t)");
  }
  const Instant deadline = SteadyClock().Now() + timeout;
  std::array<char, kLengthBytes> head{};
  if (Status status = ReadExactly(fd, head.data(), head.size(), deadline); !status.ok()) {
    return status;
  }
  size_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= static_cast<size_t>(static_cast<uint8_t>(head[i])) << (8 * i);
  }
  if (size > kBootstrapBytesMax) {
    return Status::Invalid("a bootstrap of " + std::to_string(size) + " bytes is too long");
  }
  std::string bytes(size, '\0');
  if (Status status = ReadExactly(fd, bytes.data(), size, deadline); !status.ok()) {
    return status;
  }
  v1::AgentBootstrap bootstrap;
  if (!bootstrap.ParseFromString(bytes)) {
    return Status::Invalid("the bootstrap on standard input cannot be parsed");
  }
  if (Status status = CheckFields(bootstrap); !status.ok()) {
    return status;
  }
  return bootstrap;
}

std::string EncodeBootstrap(const v1::AgentBootstrap& bootstrap) {
  const std::string body = bootstrap.SerializeAsString();
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>((body.size() >> (8 * i)) & 0xFF));
  }
  return bytes + body;
}

}  // namespace muster::launcher
