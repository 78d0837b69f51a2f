// A worker's listener among strangers and members. The input connects, speaks, closes, and lets the
// generations change; now and then an honest member dials in.

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "common/address.h"
#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/loop_turns.h"
#include "worker/link_acceptor.h"

namespace muster::worker {
namespace {

// A member that takes longer may be let go, and this process may get no CPU for that long.
constexpr Duration kInTime = std::chrono::milliseconds(100);
constexpr size_t kClientsMax = 16;
constexpr int kStepsMax = 64;
constexpr uint32_t kOwnRank = 0;

/// A client resets its connection when it goes: ports in TIME_WAIT would run out at this rate.
PrivateFd Connect(const std::string& address) {
  PrivateFd client = StartConnect(ParseAddress(address).value()).value();
  const linger reset{1, 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return client;
}

class Play {
 public:
  Play() : acceptor_(loop_) {
    const Status status = acceptor_.ListenAt("127.0.0.1", {});
    MUSTER_CHECK(status.ok(), status.message());
  }

  void Step(fuzz::FuzzInput& input) {
    switch (input.Below(6)) {
      case 0:
        if (clients_.size() < kClientsMax) {
          clients_.push_back(Connect(acceptor_.addresses()[0]));
        }
        break;
      case 1:
        Speak(input);
        break;
      case 2:
        if (!clients_.empty()) {
          clients_.erase(clients_.begin() +
                         static_cast<std::ptrdiff_t>(input.Number<uint8_t>() % clients_.size()));
        }
        break;
      case 3:
        Expect({input.Below(4)});
        break;
      case 4:
        acceptor_.Forget({input.Below(4)});
        generation_ = {};
        break;
      default:
        DialAsMember();
    }
    fuzz::TakeTurns(loop_, 2);
    MUSTER_CHECK(acceptor_.guest_count() <= kClientsMax + 1, "no more guests than connections");
  }

 private:
  void Speak(fuzz::FuzzInput& input) {
    const size_t client = input.Number<uint8_t>();
    const std::string_view bytes = input.Piece(input.Number<uint8_t>());
    if (!clients_.empty()) {
      [[maybe_unused]] const ssize_t sent =
          WriteSome(clients_[client % clients_.size()].get(), bytes.data(), bytes.size());
    }
  }

  void Expect(Generation generation) {
    if (generation < newest_) {
      return;  // The engine never goes back.
    }
    generation_ = newest_ = generation;
    acceptor_.Expect(generation, kOwnRank, "key", [this](LinkId id, PrivateFd fd) {
      MUSTER_CHECK(honest_ && id == *honest_, "a link for somebody without the key");
      links_.push_back(std::move(fd));
    });
  }

  void DialAsMember() {
    if (generation_.value == 0) {
      return;
    }
    honest_ = LinkId{generation_, 1, kOwnRank, LinkKind::kControl};
    const HandshakeInitiator initiator("key", *honest_, FreshNonce());
    const Instant began = loop_.Now();
    const PrivateFd fd = Connect(acceptor_.addresses()[0]);
    const std::string hello = initiator.Hello();
    WriteSome(fd.get(), hello.data(), hello.size());
    fuzz::TakeTurns(loop_, 2);
    std::string answer(HandshakeInitiator::kAnswerBytes, '\0');
    const ssize_t got = ReadSome(fd.get(), answer.data(), answer.size());
    if (loop_.Now() - began > kInTime) {
      return honest_.reset();
    }
    MUSTER_CHECK_EQ(got, static_cast<ssize_t>(answer.size()));
    const Result<std::string> proof = initiator.Finish(answer);
    MUSTER_CHECK(proof.ok(), proof.status().message());
    const size_t before = links_.size();
    WriteSome(fd.get(), proof.value().data(), proof.value().size());
    fuzz::TakeTurns(loop_, 2);
    const bool in_time = loop_.Now() - began < kInTime;
    MUSTER_CHECK(!in_time || links_.size() == before + 1, "whatever the strangers do");
    honest_.reset();
  }

  Loop loop_;
  LinkAcceptor acceptor_;
  std::vector<PrivateFd> clients_;
  std::vector<PrivateFd> links_;
  std::optional<LinkId> honest_;  // Who is dialling in now.
  Generation generation_;
  Generation newest_;
};

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::FuzzInput input(data, size);
  muster::worker::Play play;
  for (int step = 0; step < muster::worker::kStepsMax && !input.at_end(); ++step) {
    play.Step(input);
  }
  return 0;
}
