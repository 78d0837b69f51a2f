// Packets to page.sock: only the request of a worker that is known, with its key, gets a page, and
// only a request with the right magic is one for a segment, whose answer comes at once or late.

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "common/worker_page.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/loop_turns.h"
#include "launcher/agent/page_server.h"

namespace muster::launcher {
namespace {

constexpr int kPacketsMax = 8;
constexpr Incarnation kKnown{7};
const std::string kKey(sizeof(PageRequest::key), 'k');

class Bench {
 public:
  Bench()
      : server_(
            loop_,
            [this](Incarnation worker, std::string_view key, PageClient client) {
              return OnAsk(worker, key, client);
            },
            [this](const SegmentAsk& ask, PageServer::SegmentReply reply) {
              MUSTER_CHECK_EQ(ask.pid, ::getpid());
              asked_ = true;
              reply_ = std::move(reply);
            }) {
    char directory[] = "/tmp/muster-fuzz-XXXXXX";
    MUSTER_CHECK(::mkdtemp(directory) != nullptr, "a directory");
    path_ = std::string(directory) + "/" + kPageSocketName;
    MUSTER_CHECK(server_.Start(path_).ok(), "a listener");
  }
  ~Bench() {
    ::unlink(path_.c_str());
    ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }

  void Run(fuzz::FuzzInput input) {
    const UniqueFd client = Connect();
    given_ = false;
    asked_ = false;
    bool may_have_one = false;
    bool may_ask = false;
    // The first packet decides; those behind it find the connection closed.
    for (int packet = 0; packet < kPacketsMax && !input.at_end(); ++packet) {
      const std::string bytes(input.Text());
      PageRequest request;
      if (packet == 0 && bytes.size() == sizeof request) {
        std::memcpy(&request, bytes.data(), sizeof request);
        may_have_one = request.incarnation == kKnown.value &&
                       std::string_view(request.key, sizeof request.key) == kKey;
      }
      if (packet == 0 && bytes.size() == sizeof(SegmentRequest)) {
        const SegmentRequest right;
        may_ask = std::memcmp(bytes.data(), right.magic, sizeof right.magic) == 0;
      }
      ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (input.Below(2) == 0) {
        fuzz::TakeTurns(loop_, 1);
        Reply();
      }
    }
    fuzz::TakeTurns(loop_, 2);
    MUSTER_CHECK_EQ(given_, may_have_one);
    MUSTER_CHECK_EQ(asked_, may_ask);
    const bool late = input.Below(2) == 0;
    if (!late) {
      Reply();
    }
    CheckAnswer(client.get());
    ::shutdown(client.get(), SHUT_RDWR);
    fuzz::TakeTurns(loop_, 2);
    Reply();
  }

 private:
  UniqueFd Connect() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    MUSTER_CHECK(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
                 "a connection");
    return fd;
  }

  Result<std::shared_ptr<SharedPage>> OnAsk(Incarnation worker,
                                            std::string_view key,
                                            const PageClient& client) {
    MUSTER_CHECK_EQ(client.pid, ::getpid());
    given_ = worker == kKnown && key == kKey;
    return Status::Failed(given_ ? "known" : "unknown");
  }

  void Reply() {
    if (const PageServer::SegmentReply reply = std::exchange(reply_, nullptr)) {
      reply(Status::Failed("no memory"));
    }
  }

  static void CheckAnswer(int fd) {
    PageAnswer answer;
    const ssize_t got = ::recv(fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_TRUNC);
    MUSTER_CHECK(
        got <= 0 || (got == sizeof answer && answer.error[sizeof answer.error - 1] == '\0' &&
                     answer.error[0] != '\0'),
        "an answer that a worker can read");
  }

  Loop loop_;
  std::string path_;
  bool given_ = false;
  bool asked_ = false;
  PageServer::SegmentReply reply_;
  PageServer server_;
};

}  // namespace
}  // namespace muster::launcher

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static muster::launcher::Bench bench;
  bench.Run({data, size});
  return 0;
}
