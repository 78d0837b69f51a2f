#include "discovery/group_guard.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <utility>

namespace muster::discovery {
namespace {

constexpr const char* kHelper =
    "groups=' '; "
    "while read -r what group; do "
    "case $what in "
    "add) groups=\"$groups$group \" ;; "
    "drop) case $groups in *\" $group \"*) "
    "groups=\"${groups%% $group *} ${groups#* $group }\" ;; esac ;; "
    "esac; done; "
    "for group in $groups; do kill -s KILL -- \"-$group\"; done";

constexpr int kDeathWaitMilliseconds = 1000;

}  // namespace

GroupGuard::GroupGuard() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return;
  }
  lifeline_.Reset(ends[0]);
  const UniqueFd its_end(ends[1]);
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", kHelper};
  options.environment = {"PATH=/usr/bin:/bin"};
  options.stdin_fd = its_end.get();
  Result<SpawnedProcess> helper = Spawn(options);
  if (helper.ok()) {
    helper_ = std::move(helper).value();
  }
}

GroupGuard::~GroupGuard() {
  if (helper_.pid > 0) {
    ::kill(helper_.pid, SIGKILL);
    pollfd ended{helper_.pidfd.get(), POLLIN, 0};
    ::poll(&ended, 1, kDeathWaitMilliseconds);
    [[maybe_unused]] const Result<ExitStatus> reaped = Reap(helper_.pid);
  }
}

// A socket, not a pipe: a helper that somebody killed must not cost us a SIGPIPE.
void GroupGuard::Tell(const std::string& line) {
  if (helper_.pid > 0) {
    const std::string text = line + "\n";
    ::send(lifeline_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace muster::discovery
