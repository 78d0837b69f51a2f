// The framing of a control link: bytes in pieces of any size, with pauses, against the plain
// reading of the whole.

#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/loop_turns.h"
#include "worker/control_link.h"

namespace muster::worker {
namespace {

struct Frames {
  std::vector<std::string> frames;
  bool broken = false;
};

Frames ReadPlainly(std::string_view bytes) {
  Frames plain;
  while (bytes.size() >= sizeof(uint32_t)) {
    uint32_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    if (size > ControlLink::kFrameBytesMax) {
      plain.broken = true;
      break;
    }
    if (bytes.size() - sizeof size < size) {
      break;
    }
    plain.frames.emplace_back(bytes.substr(sizeof size, size));
    bytes.remove_prefix(sizeof size + size);
  }
  return plain;
}

void Run(fuzz::FuzzInput input) {
  Loop loop;
  int fds[2] = {-1, -1};
  MUSTER_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0,
               "a pair of sockets");
  const PrivateFd peer(fds[0]);
  ControlLink link(loop, PrivateFd(fds[1]));
  Frames got;
  uint8_t pause_after = input.Number<uint8_t>();
  const ControlLink::Callbacks callbacks{[&](std::string_view frame) {
                                           got.frames.emplace_back(frame);
                                           if (pause_after-- == 0) {
                                             link.Pause();
                                           }
                                         },
                                         [&](const std::string& /*reason*/) { got.broken = true; }};
  link.Start(callbacks);
  std::string sent;
  while (!input.at_end() && !link.closed()) {
    const std::string_view piece = input.Piece(1 + input.Number<uint8_t>());
    const ssize_t count = WriteSome(peer.get(), piece.data(), piece.size());
    sent += piece.substr(0, static_cast<size_t>(std::max<ssize_t>(count, 0)));
    fuzz::TakeTurns(loop, 1);
    if (input.Below(4) == 0 && !link.closed()) {
      link.Start(callbacks);
    }
  }
  if (!link.closed()) {
    pause_after = UINT8_MAX;
    link.Start(callbacks);
    fuzz::TakeTurns(loop, 2);
  }
  const Frames plain = ReadPlainly(sent);
  MUSTER_CHECK(got.frames == plain.frames, "the frames that were sent");
  MUSTER_CHECK_EQ(got.broken, plain.broken);
}

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::worker::Run({data, size});
  return 0;
}
