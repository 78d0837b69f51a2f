// The data links: two peers that send whatever the input says, to a rank that posts receives.

#include <sys/socket.h>

#include <array>
#include <list>

#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "worker/collective/peer_mesh.h"

namespace muster::worker {
namespace {

constexpr int kSize = 3;
constexpr int kStepsMax = 64;
constexpr size_t kReceiveBytesMax = 256;
constexpr char kUntouched = 0x55;

/// A receive's memory: a wall on both sides, since the writer has only a pointer.
struct Target {
  static constexpr size_t kWall = 16;
  explicit Target(size_t size) : bytes(size + 2 * kWall, kUntouched) {}
  char* data() { return bytes.data() + kWall; }
  void Check() const {
    const std::string wall(kWall, kUntouched);
    MUSTER_CHECK(bytes.starts_with(wall) && bytes.ends_with(wall), "a write beyond the buffer");
  }
  std::string bytes;
};

class Play {
 public:
  Play() : mesh_(0, Connect()) {}
  ~Play() { mesh_.Cancel(completions_); }

  bool Step(fuzz::FuzzInput& input) {
    switch (input.Below(4)) {
      case 0:
        Speak(input, input.Text());
        break;
      case 1:
        SendMessage(input);
        break;
      case 2:
        Receive(input);
        break;
      default:
        peers_[1 + input.Below(kSize - 1)].Reset();
    }
    for (const Target& target : targets_) {
      target.Check();
    }
    return mesh_.Check().ok();
  }

  /// All receives that can complete do so without a wait.
  void Finish() {
    for (PrivateFd& peer : peers_) {
      peer.Reset();
    }
    while (mesh_.Check().ok() && posted_ > taken_) {
      const Status status = mesh_.Wait(completions_.received,
                                       std::chrono::steady_clock::now() + std::chrono::seconds(10));
      MUSTER_CHECK(status.code() != StatusCode::kTimeout, "a closed peer is noticed");
      if (status.ok()) {
        completions_.received.pop_front();
        ++taken_;
      }
    }
  }

 private:
  std::vector<PrivateFd> Connect() {
    std::vector<PrivateFd> ours(kSize);
    for (int peer = 1; peer < kSize; ++peer) {
      int fds[2] = {-1, -1};
      MUSTER_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0,
                   "a pair of sockets");
      ours[static_cast<size_t>(peer)] = PrivateFd(fds[0]);
      peers_[static_cast<size_t>(peer)] = PrivateFd(fds[1]);
    }
    return ours;
  }

  void Speak(fuzz::FuzzInput& input, std::string_view bytes) {
    const PrivateFd& peer = peers_[1 + input.Below(kSize - 1)];
    if (peer.valid()) {
      [[maybe_unused]] const ssize_t sent = WriteSome(peer.get(), bytes.data(), bytes.size());
    }
  }

  void SendMessage(fuzz::FuzzInput& input) {
    const uint64_t slot = input.Below(4);
    const std::string_view body = input.Piece(input.Number<uint8_t>());
    const uint64_t bytes = body.size();
    std::string message(reinterpret_cast<const char*>(&slot), sizeof slot);
    message.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    message.append(body);
    Speak(input, message);
  }

  void Receive(fuzz::FuzzInput& input) {
    const std::array<std::vector<int>, 3> sources{{{1}, {2}, {1, 2}}};
    const std::vector<int>& from = sources[input.Below(3)];
    const uint64_t slot = input.Below(4);
    Target& target = targets_.emplace_back(input.Number<uint8_t>() % kReceiveBytesMax);
    const size_t size = target.bytes.size() - 2 * Target::kWall;
    if (mesh_.Receive(from, slot, target.data(), size, completions_).ok()) {
      ++posted_;
    }
  }

  std::array<PrivateFd, kSize> peers_;
  std::list<Target> targets_;  // Addresses stay.
  PeerMesh::Completions completions_;
  PeerMesh mesh_;
  size_t posted_ = 0;
  size_t taken_ = 0;
};

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::FuzzInput input(data, size);
  muster::worker::Play play;
  for (int step = 0; step < muster::worker::kStepsMax && !input.at_end(); ++step) {
    if (!play.Step(input)) {
      return 0;
    }
  }
  play.Finish();
  return 0;
}
