// A worker without a runtime, for the tests of the agent. The first argument is what it does:
//   join         take the page, lock it, tick it from a thread, join, then obey (below)
//   join-twice   the same, then try a second handshake and Join and print how they are refused
//   segments     join, and at each World print what requests for segments give
//   bad-key      print how a handshake and a Join with a wrong key are refused
//   nested       start children that ignore SIGTERM, one of them in a session of its own; then join
//   print TEXT   print TEXT as it is, with \n and \r in C's notation
//   flood        print lines without end
//   exit CODE
// A joined worker prints each order as one line. It answers World with Formed, Draining with Left
// and a pending change that has vanished with Done; Released makes it say Done and Bye, unlock and
// exit 0; the reason of a Revoked order is a command: `exit CODE` (without unlocking), `unlock`,
// `suspect RANK`, `mute` (tick no more), `spin` (the same, and run for ever), `busy` (the same, but
// it is another thread that runs).

#include <grpcpp/create_channel.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "common/version.h"
#include "common/worker_page.h"
#include "common/worker_segment.h"
#include "muster/v1/workers.grpc.pb.h"

namespace muster {
namespace {

using Stream = grpc::ClientReaderWriter<v1::WorkerReport, v1::WorkerOrder>;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void Print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

struct Handshake {
  std::string error;
  WorkerPage* page = nullptr;
};

struct Received {
  std::string error;
  int memory = -1;
};

template <class Request>
Received AskAgent(Request request, const std::string& key) {
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = Variable(kEnvAgentDirectory) + "/" + kPageSocketName;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return {std::string("connect: ") + strerror(errno)};
  }
  request.incarnation = std::stoull(Variable(kEnvIncarnation));
  std::memcpy(request.key, key.data(), std::min(key.size(), sizeof request.key));
  if (::send(fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
    return {"send"};
  }
  PageAnswer answer;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(fd, &message, 0);
  ::close(fd);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (got != sizeof answer || answer.error[0] != '\0' || header == nullptr) {
    return {answer.error[0] != '\0' ? answer.error : "no answer"};
  }
  int memory = -1;
  std::memcpy(&memory, CMSG_DATA(header), sizeof memory);
  return {"", memory};
}

Handshake AskForPage(const std::string& key) {
  const Received received = AskAgent(PageRequest(), key);
  if (received.memory < 0) {
    return {received.error};
  }
  void* memory =
      ::mmap(nullptr, kWorkerPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, received.memory, 0);
  ::close(received.memory);
  return {"", static_cast<WorkerPage*>(memory)};
}

bool segments_asked = false;  // In the mode `segments`.

// As "segment g2: 4726784 bytes", or with the agent's error.
void AskForSegment(uint64_t generation, const std::string& key) {
  SegmentRequest request;
  request.generation = generation;
  const Received received = AskAgent(request, key);
  struct stat status {};
  const bool given = received.memory >= 0 && ::fstat(received.memory, &status) == 0;
  Print("segment g" + std::to_string(generation) + ": " +
        (given ? std::to_string(status.st_size) + " bytes" : received.error));
  ::close(received.memory);
}

void AskForSegments(uint64_t generation, const std::string& key) {
  AskForSegment(generation, key);
  AskForSegment(generation - 1, key);
  AskForSegment(generation + 1, key);
  AskForSegment(generation, std::string(64, '0'));
}

v1::WorkerReport JoinReport(const std::string& key) {
  v1::WorkerReport report;
  v1::WorkerReport::Join& join = *report.mutable_join();
  join.set_incarnation(std::stoull(Variable(kEnvIncarnation)));
  join.set_key(key);
  join.set_pid(static_cast<uint64_t>(::getpid()));
  join.set_protocol(kProtocolVersion);
  join.add_addresses()->set_literal("127.0.0.1:4711");
  return report;
}

class Connection {
 public:
  Connection()
      : stub_(v1::Workers::NewStub(
            grpc::CreateChannel("unix:" + Variable(kEnvAgentDirectory) + "/" + kGrpcSocketName,
                                grpc::InsecureChannelCredentials()))),
        stream_(stub_->Join(&context_)) {}

  Stream& stream() { return *stream_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::Workers::Stub> stub_;
  std::unique_ptr<Stream> stream_;
};

void PrintRefusal(const std::string& key) {
  Print("page: " + AskForPage(key).error);
  Connection connection;
  connection.stream().Write(JoinReport(key));
  v1::WorkerOrder order;
  while (connection.stream().Read(&order)) {
  }
  const grpc::Status status = connection.stream().Finish();
  Print("join: " + std::to_string(status.error_code()) + " " + status.error_message());
}

std::atomic<bool> muted{false};

// Twenty times a second, as an engine would; the process ends with this thread running.
void StartTicking(WorkerPage* page) {
  std::thread([page] {
    while (!muted.load()) {
      page->ticks.fetch_add(1);
      ::poll(nullptr, 0, 50);
    }
  }).detach();
}

[[noreturn]] void RunForEver() {
  while (true) {
    muted = true;  // A side effect: a loop without one may be left out.
  }
}

void Obey(const std::string& command, WorkerPage* page, Stream& stream) {
  if (command.starts_with("exit ")) {
    ::_exit(std::stoi(command.substr(5)));
  }
  if (command == "unlock") {
    ::pthread_mutex_unlock(&page->alive);
  }
  if (command == "mute" || command == "spin" || command == "busy") {
    muted = true;
  }
  if (command == "busy") {
    std::thread(RunForEver).detach();
  }
  if (command == "spin") {
    RunForEver();
  }
  if (command.starts_with("suspect ")) {
    v1::WorkerReport report;
    report.mutable_broken_peers()->set_generation(1);
    report.mutable_broken_peers()->add_suspect_ranks(
        static_cast<uint32_t>(std::stoul(command.substr(8))));
    report.mutable_broken_peers()->set_evidence("test");
    stream.Write(report);
  }
}

void AnswerWorld(const v1::WorkerOrder::World& world, Stream& stream) {
  const v1::Placement& p = world.placement();
  char text[256];
  std::snprintf(text,
                sizeof text,
                "world g%lu rank %u/%u local %u/%u cross %u/%u coordinator %s key %s",
                static_cast<unsigned long>(world.generation()),
                p.rank(),
                p.size(),
                p.local_rank(),
                p.local_size(),
                p.cross_rank(),
                p.cross_size(),
                world.coordinator(0).literal().c_str(),
                world.link_key().c_str());
  Print(text);
  if (segments_asked) {
    AskForSegments(world.generation(), Variable(kEnvWorkerKey));
  }
  v1::WorkerReport report;
  report.mutable_formed()->set_generation(world.generation());
  stream.Write(report);
}

[[noreturn]] void Leave(WorkerPage* page, Stream& stream) {
  v1::WorkerReport done;
  done.mutable_done()->set_generation(1);
  stream.Write(done);
  v1::WorkerReport bye;
  bye.mutable_bye();
  stream.Write(bye);
  ::pthread_mutex_unlock(&page->alive);
  ::_exit(0);
}

void Handle(const v1::WorkerOrder& order, WorkerPage* page, Stream& stream) {
  if (order.has_joined()) {
    Print("joined " + order.joined().host() + " slot " + std::to_string(order.joined().slot()) +
          " first_start " + std::to_string(order.joined().first_start()));
  } else if (order.has_world()) {
    AnswerWorld(order.world(), stream);
  } else if (order.has_revoked()) {
    Print("revoked g" + std::to_string(order.revoked().generation()));
    if (segments_asked) {
      AskForSegment(order.revoked().generation(), Variable(kEnvWorkerKey));
    }
    Obey(order.revoked().reason(), page, stream);
  } else if (order.has_pending()) {
    Print("pending " + std::to_string(order.pending().pending()));
    if (!order.pending().pending()) {
      v1::WorkerReport report;
      report.mutable_done()->set_generation(order.pending().generation());
      stream.Write(report);
    }
  } else if (order.has_admitted()) {
    Print("admitted rank " + std::to_string(order.admitted().provisional().rank()));
  } else if (order.has_draining()) {
    Print("draining");
    v1::WorkerReport report;
    report.mutable_left()->set_generation(1);
    report.mutable_left()->mutable_held()->set_sequence(7);
    stream.Write(report);
  } else if (order.has_released()) {
    Leave(page, stream);
  } else if (order.has_refused()) {
    Print("refused " + order.refused().reason());
    if (segments_asked) {
      AskForSegment(1, Variable(kEnvWorkerKey));
    }
    ::_exit(9);
  }
}

int JoinAndObey(bool twice) {
  const std::string key = Variable(kEnvWorkerKey);
  const Handshake handshake = AskForPage(key);
  if (handshake.page == nullptr) {
    Print("page: " + handshake.error);
    return 3;
  }
  ::pthread_mutex_lock(&handshake.page->alive);
  StartTicking(handshake.page);
  Connection connection;
  connection.stream().Write(JoinReport(key));
  v1::WorkerOrder order;
  bool first = true;
  while (connection.stream().Read(&order)) {
    Handle(order, handshake.page, connection.stream());
    if (twice && std::exchange(first, false)) {
      PrintRefusal(key);
    }
  }
  ::_exit(4);
}

[[noreturn]] void BeStubborn(int ready_fd) {
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  [[maybe_unused]] const ssize_t size = ::write(ready_fd, "x", 1);
  while (true) {
    ::pause();
  }
}

// Three children that only SIGKILL ends: one in the group, one in a session of its own, and one
// that is an orphan too. Returns when all three are as they shall be.
void StartStubbornChildren() {
  int ready[2];
  if (::pipe(ready) != 0) {
    ::_exit(5);
  }
  for (int kind = 0; kind < 3; ++kind) {
    const pid_t child = ::fork();
    if (child != 0) {
      if (kind == 2) {
        ::waitpid(child, nullptr, 0);
      }
      continue;
    }
    if (kind > 0) {
      ::setsid();
    }
    if (kind == 2 && ::fork() != 0) {
      ::_exit(0);
    }
    BeStubborn(ready[1]);
  }
  char byte = 0;
  for (int i = 0; i < 3; ++i) {
    if (::read(ready[0], &byte, 1) != 1) {
      ::_exit(5);
    }
  }
}

std::string Unescape(std::string text) {
  for (const auto& [from, to] : {std::pair("\\n", "\n"), std::pair("\\r", "\r")}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from)) {
      text.replace(at, 2, to);
    }
  }
  return text;
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const std::string argument = argc > 2 ? argv[2] : "";
  segments_asked = what == "segments";
  if (what == "join" || what == "join-twice" || what == "segments") {
    return JoinAndObey(what == "join-twice");
  }
  if (what == "nested") {
    StartStubbornChildren();
    return JoinAndObey(false);
  }
  if (what == "bad-key") {
    PrintRefusal(std::string(64, '0'));
    return 0;
  }
  if (what == "print") {
    std::fputs(Unescape(argument).c_str(), stdout);
    return 0;
  }
  if (what == "exit") {
    return std::stoi(argument);
  }
  for (uint64_t line = 0; what == "flood"; ++line) {
    std::printf("line %lu of a flood that goes on and on and on and on and on\n", line);
  }
  return 64;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  return muster::Main(argc, argv);
}
