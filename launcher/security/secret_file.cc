#include "launcher/security/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/unique_fd.h"

namespace muster::launcher {
namespace {

Status Refused(const std::string& path, const std::string& why) {
  return Status::Invalid("the secret file " + path + " " + why);
}

std::string MakeOne(const std::string& path) {
  return "; for example: (umask 077; openssl rand -hex 32 > " + path + ")";
}

Status CheckKind(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return Refused(path, "is not a regular file");
  }
  const bool others = (info.st_mode & S_IRWXO) != 0;
  const bool group = (info.st_mode & S_IRWXG) != 0 && info.st_uid == ::geteuid();
  if (others || group) {
    return Refused(path, "can be read by other users; chmod 600 " + path);
  }
  return Status::Ok();
}

// One byte more than allowed is read, so that a file that is too long shows.
Result<std::string> ReadAll(const std::string& path, int fd) {
  std::string text(kSecretFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) {
      return Refused(path, std::string("cannot be read: ") + strerror(errno));
    }
    if (got == 0) {
      break;
    }
    size += got > 0 ? static_cast<size_t>(got) : 0;
  }
  text.resize(size);
  return text;
}

}  // namespace

Result<std::string> ReadSecretFile(const std::string& path) {
  // A named pipe without a writer must not hang the start.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    const std::string reason = strerror(errno);
    return Refused(path, "cannot be opened: " + reason + (fd.valid() ? "" : MakeOne(path)));
  }
  if (Status status = CheckKind(path, info); !status.ok()) {
    return status;
  }
  Result<std::string> read = ReadAll(path, fd.get());
  if (!read.ok()) {
    return read;
  }
  std::string secret = std::move(read).value();
  if (secret.size() > kSecretFileBytesMax) {
    return Refused(
        path, "is longer than " + std::to_string(kSecretFileBytesMax) + " bytes" + MakeOne(path));
  }
  for (const char end : {'\n', '\r'}) {
    if (!secret.empty() && secret.back() == end) {
      secret.pop_back();
    }
  }
  if (!std::all_of(secret.begin(), secret.end(), [](char c) { return c > ' ' && c <= '~'; })) {
    return Refused(path, "must hold one line of printable ASCII without blanks" + MakeOne(path));
  }
  if (secret.size() < kSecretCharactersMin) {
    return Refused(
        path,
        "holds fewer than " + std::to_string(kSecretCharactersMin) + " characters" + MakeOne(path));
  }
  return secret;
}

}  // namespace muster::launcher
