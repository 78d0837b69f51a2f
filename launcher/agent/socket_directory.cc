#include "launcher/agent/socket_directory.h"

#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/worker_page.h"

namespace muster::launcher {
namespace {

std::string FromEnvironment(const char* name) {
  const char* value = ::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread.
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<std::string> MakeSocketDirectory() {
  std::string tried;
  for (const std::string& parent :
       {FromEnvironment("XDG_RUNTIME_DIR"), FromEnvironment("TMPDIR"), std::string("/tmp")}) {
    std::string name = parent + "/muster-XXXXXX";
    if (parent.empty() ||
        name.size() + 1 + strlen(kGrpcSocketName) >= sizeof(sockaddr_un::sun_path)) {
      continue;
    }
    if (::mkdtemp(name.data()) != nullptr) {
      return name;
    }
    tried += " " + parent + " (" + strerror(errno) + ")";
  }
  return Status::Failed("no directory for the sockets can be made in" + tried);
}

void RemoveSocketDirectory(const std::string& directory) {
  for (const char* name : {kGrpcSocketName, kPageSocketName}) {
    ::unlink((directory + "/" + name).c_str());
  }
  ::rmdir(directory.c_str());
}

}  // namespace muster::launcher
