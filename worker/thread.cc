#include "worker/thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace muster::worker {

std::jthread StartThread(const char* name, std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // The new thread inherits the mask.
  std::jthread thread([name, body = std::move(body)] {
    pthread_setname_np(pthread_self(), name);
    body();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace muster::worker
