#include "worker/page_answer.h"

#include <sys/socket.h>

#include <cstring>

namespace muster::worker {
namespace {
// One more than is right, so that a surplus one is seen and closed.
constexpr size_t kDescriptorsMax = 2;
}  // namespace

ReceivedAnswer ReceiveAnswer(int socket) {
  ReceivedAnswer received;
  iovec part{&received.answer, sizeof received.answer};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  received.size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (received.size < 0) {
    return received;
  }
  received.surplus = (message.msg_flags & MSG_TRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      received.surplus |= received.memory.valid();
      received.memory.Reset(fd);
    }
  }
  received.answer.error[sizeof received.answer.error - 1] = '\0';
  return received;
}

}  // namespace muster::worker
