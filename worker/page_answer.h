#pragma once

// ReceiveAnswer: the agent's answer on its `page.sock` (common/worker_page.h), with the descriptor
// that may come along: a page's or a segment's.
//
// Thread-safe: no state.

#include <sys/types.h>

#include "common/unique_fd.h"
#include "common/worker_page.h"

namespace muster::worker {

struct ReceivedAnswer {
  ssize_t size = -1;     // -1: errno says why.
  PageAnswer answer;     // The error is terminated.
  UniqueFd memory;       // Not valid: none came, or this process has no room for it.
  bool surplus = false;  // More descriptors, or more bytes, than belong to an answer.

  bool well_formed() const { return size == static_cast<ssize_t>(sizeof answer) && !surplus; }
};

/// Waits as the socket does.
ReceivedAnswer ReceiveAnswer(int socket);

}  // namespace muster::worker
