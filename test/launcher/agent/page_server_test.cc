#include "launcher/agent/page_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <thread>

#include "common/worker_page.h"

namespace muster::launcher {
namespace {

std::string MakeDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "page-test-XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  return name;
}

class RunningServer {
 public:
  RunningServer() : directory_(MakeDirectory()) {
    REQUIRE(server_.Start(path()).ok());
    thread_ = std::jthread([this] { loop_.Run(); });
  }
  ~RunningServer() {
    loop_.Stop();
    thread_.join();
    std::filesystem::remove_all(directory_);
  }

  std::string path() const { return directory_ + "/" + kPageSocketName; }
  UniqueFd Ask(const std::string& key) const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const timeval limit{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof address.sun_path - 1);
    REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    PageRequest request;
    request.incarnation = 7;
    std::memcpy(request.key, key.data(), std::min(key.size(), sizeof request.key));
    REQUIRE(::send(fd.get(), &request, sizeof request, MSG_NOSIGNAL) == sizeof request);
    return fd;
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
  PageServer server_{loop_, [](Incarnation worker, std::string_view key, const PageClient& client) {
                       return Status::Invalid("#" + std::to_string(worker.value) + " " +
                                              std::string(key.substr(0, 3)) + " of this process: " +
                                              std::to_string(client.pid == ::getpid()));
                     }};
  std::jthread thread_;
};

std::string ErrorFrom(const UniqueFd& fd) {
  PageAnswer answer;
  return ::recv(fd.get(), &answer, sizeof answer, 0) == sizeof answer ? answer.error : "no answer";
}

}  // namespace

TEST_CASE("page server says who asked, and gives the reason of a refusal to the worker") {
  const RunningServer server;
  CHECK(ErrorFrom(server.Ask("abc")) == "#7 abc of this process: 1");
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
