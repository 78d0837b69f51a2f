#include "launcher/agent/page_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <future>
#include <thread>

#include "common/worker_page.h"

namespace muster::launcher {
namespace {

std::string MakeDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "page-test-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  return name;
}

// Answers a page with an error that shows what it was asked; a segment as `AskSegment` says.
class RunningServer {
 public:
  explicit RunningServer(PageServer::AskSegment ask_segment = {})
      : directory_(MakeDirectory()),
        server_(
            loop_,
            [this](Incarnation worker, std::string_view key, PageClient client) {
              last_ = std::move(client);
              return Status::Invalid(
                  "#" + std::to_string(worker.value) + " " + std::string(key.substr(0, 3)) +
                  " of this process: " + std::to_string(last_.pid == ::getpid()));
            },
            std::move(ask_segment)) {
    REQUIRE(server_.Start(path()).ok());
    thread_ = std::jthread([this] { loop_.Run(); });
  }
  ~RunningServer() {
    loop_.Stop();
    thread_.join();
    std::filesystem::remove_all(directory_);
  }

  Loop& loop() { return loop_; }
  /// What TellOver gives for the last one that asked.
  bool TellOver(uint64_t generation, const std::string& reason) {
    std::promise<bool> told;
    loop_.Post([&] { told.set_value(last_.TellOver(generation, reason)); });
    return told.get_future().get();
  }
  std::string path() const { return directory_ + "/" + kPageSocketName; }
  UniqueFd Connect() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const timeval limit{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof address.sun_path - 1);
    REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return fd;
  }
  template <class Request>
  UniqueFd Send(const Request& request) const {
    UniqueFd fd = Connect();
    REQUIRE(::send(fd.get(), &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    return fd;
  }
  UniqueFd Ask(const std::string& key) const {
    PageRequest request;
    request.incarnation = 7;
    std::memcpy(request.key, key.data(), std::min(key.size(), sizeof request.key));
    return Send(request);
  }
  std::chrono::nanoseconds CpuTime() {
    clockid_t clock{};
    timespec time{};
    REQUIRE(::pthread_getcpuclockid(thread_.native_handle(), &clock) == 0);
    REQUIRE(::clock_gettime(clock, &time) == 0);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

 private:
  const std::string directory_;
  Loop loop_;
  PageClient last_;  // The loop's.
  PageServer server_;
  std::jthread thread_;
};

SegmentRequest RequestFor(uint64_t generation) {
  SegmentRequest request;
  request.incarnation = 7;
  request.generation = generation;
  std::memcpy(request.key, "abc", 3);
  return request;
}

struct Answered {
  std::string error = "no answer";
  UniqueFd memory;
};

Answered AnswerFrom(const UniqueFd& fd) {
  PageAnswer answer;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  Answered answered;
  if (::recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC) == sizeof answer) {
    answered.error = answer.error;
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      int memory = -1;
      std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
      answered.memory = UniqueFd(memory);
    }
  }
  return answered;
}

std::string ErrorFrom(const UniqueFd& fd) {
  PageAnswer answer;
  return ::recv(fd.get(), &answer, sizeof answer, 0) == sizeof answer ? answer.error : "no answer";
}

}  // namespace

TEST_CASE("page server says who asked, and gives the reason of a refusal to the worker") {
  const RunningServer server;
  CHECK(ErrorFrom(server.Ask("abc")) == "#7 abc of this process: 1");
}

TEST_CASE("page server leaves the connection to the agent, which tells what is over") {
  RunningServer server;
  UniqueFd worker = server.Ask("abc");
  CHECK(ErrorFrom(worker) != "no answer");
  CHECK(server.TellOver(5, "rank 3 died"));
  CHECK(server.TellOver(6, std::string(1000, 'x')));
  GenerationOver over;
  REQUIRE(::recv(worker.get(), &over, sizeof over, 0) == sizeof over);
  CHECK(over.generation == 5);
  CHECK(std::string(over.reason) == "rank 3 died");
  REQUIRE(::recv(worker.get(), &over, sizeof over, 0) == sizeof over);
  CHECK(std::string(over.reason) == std::string(sizeof over.reason - 1, 'x'));
  // A worker that reads nothing costs the agent no wait, and neither does one that has gone.
  int told = 0;
  while (server.TellOver(7, "unread")) {
    REQUIRE(++told < 100'000);
  }
  worker.Reset();
  CHECK_FALSE(server.TellOver(8, "gone"));
}

TEST_CASE("page server tells a request for a segment from one for a page") {
  std::string seen;
  const RunningServer server([&seen](const SegmentAsk& ask, const PageServer::SegmentReply& reply) {
    seen = std::to_string(ask.worker.value) + " " + std::string(ask.key.substr(0, 3)) + " g" +
           std::to_string(ask.generation) + " " + std::to_string(ask.key.size()) +
           " of this process: " + std::to_string(ask.pid == ::getpid());
    reply(Status::Invalid("none for you"));
  });
  const Answered answered = AnswerFrom(server.Send(RequestFor(1ULL << 40)));
  CHECK(answered.error == "none for you");
  CHECK_FALSE(answered.memory.valid());
  CHECK(seen == "7 abc g1099511627776 64 of this process: 1");
}

TEST_CASE("page server hands out a segment and keeps its own descriptor") {
  const UniqueFd memory(::memfd_create("page-test", MFD_CLOEXEC));
  REQUIRE(::pwrite(memory.get(), "hello", 5, 0) == 5);
  const RunningServer server(
      [&memory](const SegmentAsk& /*ask*/, const PageServer::SegmentReply& reply) {
        reply(memory.get());
      });
  for (int i = 0; i < 2; ++i) {
    const Answered answered = AnswerFrom(server.Send(RequestFor(1)));
    CHECK(answered.error.empty());
    char text[6] = {};
    CHECK(::pread(answered.memory.get(), text, 5, 0) == 5);
    CHECK(std::string(text) == "hello");
  }
}

TEST_CASE("page server answers what is no request with an error, and no one else's") {
  const RunningServer server([](const SegmentAsk&, const PageServer::SegmentReply& reply) {
    reply(Status::Invalid("never"));
  });
  SegmentRequest wrong = RequestFor(1);
  wrong.magic[7] = '2';
  struct Longer {
    SegmentRequest request = RequestFor(1);
    char more = 0;
  };
  CHECK(AnswerFrom(server.Send(wrong)).error.find("this is no request") == 0);
  CHECK(AnswerFrom(server.Send(Longer())).error.find("this is no request") == 0);
  CHECK(AnswerFrom(server.Send('x')).error.find("this is no request") == 0);
}

TEST_CASE("page server waits with its answer for the segment, and for no worker") {
  std::promise<PageServer::SegmentReply> promise;
  RunningServer server([&promise](const SegmentAsk&, PageServer::SegmentReply reply) {
    promise.set_value(std::move(reply));
  });
  UniqueFd waiting = server.Send(RequestFor(1));
  std::future<PageServer::SegmentReply> future = promise.get_future();
  REQUIRE(future.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  const PageServer::SegmentReply reply = future.get();
  CHECK(AnswerFrom(server.Ask("abc")).error == "#7 abc of this process: 1");  // Meanwhile.
  enum class Meanwhile { kWaits, kGoes, kTalks };
  const auto meanwhile = GENERATE(Meanwhile::kWaits, Meanwhile::kGoes, Meanwhile::kTalks);
  if (meanwhile == Meanwhile::kGoes) {
    waiting.Reset();
  } else if (meanwhile == Meanwhile::kTalks) {
    const SegmentRequest again = RequestFor(1);
    REQUIRE(::send(waiting.get(), &again, sizeof again, MSG_NOSIGNAL) == sizeof again);
  }
  // Another one takes the number of the descriptor that was given up.
  CHECK(AnswerFrom(server.Ask("def")).error == "#7 def of this process: 1");
  const UniqueFd silent = server.Connect();
  CHECK(AnswerFrom(server.Ask("ghi")).error == "#7 ghi of this process: 1");
  server.loop().Post([&reply] { reply(Status::Invalid("late")); });
  server.loop().Post([&reply] { reply(Status::Invalid("twice")); });
  if (meanwhile != Meanwhile::kGoes) {
    const std::string expected = meanwhile == Meanwhile::kWaits ? "late" : "no answer";
    CHECK(AnswerFrom(waiting).error == expected);
  }
  CHECK(AnswerFrom(server.Ask("jkl")).error == "#7 jkl of this process: 1");
  char byte = 0;
  CHECK(::recv(silent.get(), &byte, 1, MSG_DONTWAIT) == -1);  // Nobody answered it.
}

TEST_CASE("page server without descriptors neither spins nor forgets who waits") {
  RunningServer server;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The request's own descriptor is the last one that is free.
  UniqueFd next(::dup(0));
  const rlimit low{static_cast<rlim_t>(next.get()) + 1, before.rlim_max};
  next.Reset();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  const UniqueFd request = server.Ask("xyz");
  const auto used = server.CpuTime();
  pollfd entry{request.get(), POLLIN, 0};
  const int answered = ::poll(&entry, 1, 300);
  const auto more = server.CpuTime() - used;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(answered == 0);
  CHECK(more < std::chrono::milliseconds(50));
  CHECK(ErrorFrom(request) == "#7 xyz of this process: 1");
}

}  // namespace muster::launcher
