// The file that holds the job's secret: what comes out of it can travel as a header.

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/check.h"
#include "common/unique_fd.h"
#include "fuzz/fuzz_input.h"
#include "launcher/security/secret_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const UniqueFd file(::memfd_create("secret", MFD_CLOEXEC));
  MUSTER_CHECK(file.valid() && ::fchmod(file.get(), 0600) == 0, "a file");
  MUSTER_CHECK_EQ(::write(file.get(), data, size), static_cast<ssize_t>(size));
  const Result<std::string> secret =
      launcher::ReadSecretFile("/proc/self/fd/" + std::to_string(file.get()));
  if (secret.ok()) {
    MUSTER_CHECK(secret.value().size() >= launcher::kSecretCharactersMin,
                 "a secret of some length");
    MUSTER_CHECK(std::all_of(secret.value().begin(),
                             secret.value().end(),
                             [](char c) { return c > ' ' && c < '\x7f'; }),
                 "printable, without blanks");
    MUSTER_CHECK(fuzz::View(data, size).find(secret.value()) == 0, "what stands in the file");
  }
  return 0;
}
