#include "test/support/fake_agent.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>

#include "common/mutex.h"
#include "common/unique_fd.h"
#include "common/worker_page.h"
#include "common/worker_segment.h"
#include "muster/v1/workers.grpc.pb.h"

namespace muster::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{10};
constexpr const char* kKey = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

WorkerPage* NewPage(UniqueFd& memory) {
  memory.Reset(::memfd_create("page", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), kWorkerPageBytes) == 0);
  void* address =
      ::mmap(nullptr, kWorkerPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  REQUIRE(address != MAP_FAILED);
  auto* page = new (address) WorkerPage;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&page->alive, &attributes);
  pthread_mutexattr_destroy(&attributes);
  return page;
}

void SendPage(int connection, const std::string& error, int memory) {
  PageAnswer answer;
  std::strncpy(answer.error, error.c_str(), sizeof answer.error - 1);
  iovec part{&answer, sizeof answer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (error.empty()) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof memory);
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  ::sendmsg(connection, &message, MSG_NOSIGNAL);
}

}  // namespace

class FakeAgent::Impl final : public v1::Workers::CallbackService {
 public:
  /// The agent's end of one worker's stream. Deletes itself in OnDone.
  class Stream;

  struct Worker {
    UniqueFd memory;
    WorkerPage* page = nullptr;
    UniqueFd connection;  // By which it got the page.
    Stream* stream = nullptr;
    std::vector<std::string> addresses;
    std::deque<v1::WorkerReport> reports;
  };

  Impl() {
    char path[] = "/tmp/muster-test-XXXXXX";
    REQUIRE(::mkdtemp(path) != nullptr);
    directory = path;
    Listen();
    page_thread_ = std::jthread([this] { ServePages(); });
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + directory + "/" + kGrpcSocketName,
                             grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }

  ~Impl() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t size = ::write(stop_.get(), &one, sizeof one);
    page_thread_.join();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    server_.reset();
    for (auto& [incarnation, worker] : workers) {
      if (worker.page != nullptr) {
        ::munmap(worker.page, kWorkerPageBytes);
      }
    }
    std::filesystem::remove_all(directory);
  }

  grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerOrder>* Join(
      grpc::CallbackServerContext*) override;

  std::string directory;
  Mutex mutex;
  CondVar changed;
  std::map<uint64_t, Worker> workers MUSTER_GUARDED_BY(mutex);
  bool first_start MUSTER_GUARDED_BY(mutex) = true;
  uint64_t stall_warning_ms MUSTER_GUARDED_BY(mutex) = 0;
  uint64_t stall_shutdown_ms MUSTER_GUARDED_BY(mutex) = 0;
  std::vector<std::string> listen MUSTER_GUARDED_BY(mutex);
  bool shares_memory MUSTER_GUARDED_BY(mutex) = true;
  std::map<uint64_t, UniqueFd> segments MUSTER_GUARDED_BY(mutex);  // By generation.

 private:
  void Listen() {
    listener_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(
        address.sun_path, (directory + "/" + kPageSocketName).c_str(), sizeof address.sun_path - 1);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_.get(), 64) == 0);
  }

  void ServePages() {
    for (;;) {
      pollfd polled[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      ::poll(polled, 2, -1);
      if (polled[1].revents != 0) {
        return;
      }
      UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      union {
        PageRequest page;
        SegmentRequest segment;
      } received = {};
      const ssize_t size = ::recv(connection.get(), &received, sizeof received, 0);
      if (size == sizeof(SegmentRequest)) {
        ServeSegment(connection.get(), received.segment);
        continue;
      }
      if (size != sizeof(PageRequest)) {
        continue;
      }
      const PageRequest& request = received.page;
      if (std::string(request.key, sizeof request.key) != kKey) {
        SendPage(connection.get(), "the key is wrong", -1);
        continue;
      }
      const MutexLock lock(mutex);
      Worker& worker = workers[request.incarnation];
      worker.page = NewPage(worker.memory);
      SendPage(connection.get(), "", worker.memory.get());
      worker.connection = std::move(connection);
    }
  }

  void ServeSegment(int connection, const SegmentRequest& request) {
    const MutexLock lock(mutex);
    const auto it = segments.find(request.generation);
    SendPage(connection,
             it == segments.end() ? "there is no such memory" : "",
             it == segments.end() ? -1 : it->second.get());
  }

  UniqueFd listener_;
  UniqueFd stop_{::eventfd(0, EFD_CLOEXEC)};
  std::jthread page_thread_;
  std::unique_ptr<grpc::Server> server_;
};

class FakeAgent::Impl::Stream final
    : public grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerOrder> {
 public:
  explicit Stream(Impl& agent) : agent_(agent) { StartRead(&report_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      return End();
    }
    {
      const MutexLock lock(agent_.mutex);
      if (report_.has_join()) {
        OnJoin();
      } else {
        OnReport(agent_.workers[incarnation_]);
      }
      agent_.changed.NotifyAll();
    }
    StartRead(&report_);
  }

  /// Under the agent's mutex.
  void Send(v1::WorkerOrder order) {
    orders_.push_back(std::move(order));
    if (orders_.size() == 1 && !ended_) {
      StartWrite(&orders_.front());
    }
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(agent_.mutex);
    orders_.pop_front();
    if (ok && !orders_.empty() && !ended_) {
      StartWrite(&orders_.front());
    }
  }

  void End() {
    {
      const MutexLock lock(agent_.mutex);
      if (std::exchange(ended_, true)) {
        return;
      }
    }
    Finish(grpc::Status::OK);
  }

  void OnDone() override {
    {
      const MutexLock lock(agent_.mutex);
      auto& worker = agent_.workers[incarnation_];
      if (worker.stream == this) {
        worker.stream = nullptr;
      }
      agent_.changed.NotifyAll();
    }
    delete this;
  }

 private:
  void OnReport(Worker& worker) {
    if (report_.has_listening()) {
      worker.addresses.clear();
      for (const auto& address : report_.listening().addresses()) {
        worker.addresses.push_back(address.literal());
      }
    }
    worker.reports.push_back(report_);
  }

  void OnJoin() MUSTER_REQUIRES(agent_.mutex) {
    incarnation_ = report_.join().incarnation();
    Worker& worker = agent_.workers[incarnation_];
    worker.stream = this;
    worker.addresses.clear();
    for (const auto& address : report_.join().addresses()) {
      worker.addresses.push_back(address.literal());
    }
    worker.reports.push_back(report_);
    v1::WorkerOrder order;
    order.mutable_joined()->set_host("host-" + std::to_string(incarnation_));
    order.mutable_joined()->set_slot(static_cast<uint32_t>(incarnation_));
    order.mutable_joined()->set_first_start(agent_.first_start);
    order.mutable_joined()->set_stall_warning_ms(agent_.stall_warning_ms);
    order.mutable_joined()->set_stall_shutdown_ms(agent_.stall_shutdown_ms);
    for (const std::string& address : agent_.listen) {
      order.mutable_joined()->add_listen()->set_literal(address);
    }
    Send(std::move(order));
  }

  Impl& agent_;
  uint64_t incarnation_ = 0;
  v1::WorkerReport report_;
  std::deque<v1::WorkerOrder> orders_;
  bool ended_ = false;
};

grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerOrder>* FakeAgent::Impl::Join(
    grpc::CallbackServerContext*) {
  return new Stream(*this);
}

FakeAgent::FakeAgent() : impl_(std::make_unique<Impl>()) {}

FakeAgent::~FakeAgent() = default;

worker::RuntimeOptions FakeAgent::OptionsFor(uint64_t incarnation) const {
  worker::RuntimeOptions options;
  options.engine.agent = worker::AgentAccess{impl_->directory, kKey, incarnation};
  return options;
}

void FakeAgent::SetFirstStart(bool first_start) {
  const MutexLock lock(impl_->mutex);
  impl_->first_start = first_start;
}

void FakeAgent::SetStallTimes(uint64_t warning_ms, uint64_t shutdown_ms) {
  const MutexLock lock(impl_->mutex);
  impl_->stall_warning_ms = warning_ms;
  impl_->stall_shutdown_ms = shutdown_ms;
}

void FakeAgent::SetListen(std::vector<std::string> addresses) {
  const MutexLock lock(impl_->mutex);
  impl_->listen = std::move(addresses);
}

// Exceptions, because Catch's assertions are not for other threads than the test's.
v1::WorkerReport FakeAgent::Await(uint64_t incarnation, v1::WorkerReport::ReportCase kind) {
  const auto deadline = Clock::now() + kPatience;
  const MutexLock lock(impl_->mutex);
  for (;;) {
    auto& reports = impl_->workers[incarnation].reports;
    while (!reports.empty()) {
      v1::WorkerReport report = std::move(reports.front());
      reports.pop_front();
      if (report.report_case() == kind) {
        return report;
      }
    }
    if (Clock::now() > deadline) {
      throw std::runtime_error("worker " + std::to_string(incarnation) + " sent no report " +
                               std::to_string(kind) + " within 10 s");
    }
    impl_->changed.WaitFor(impl_->mutex, std::chrono::milliseconds(100));
  }
}

bool FakeAgent::Has(uint64_t incarnation, v1::WorkerReport::ReportCase kind) {
  const MutexLock lock(impl_->mutex);
  for (const auto& report : impl_->workers[incarnation].reports) {
    if (report.report_case() == kind) {
      return true;
    }
  }
  return false;
}

void FakeAgent::Send(uint64_t incarnation, v1::WorkerOrder order) {
  const MutexLock lock(impl_->mutex);
  const auto& worker = impl_->workers[incarnation];
  if (worker.stream != nullptr) {
    worker.stream->Send(std::move(order));
  }
}

void FakeAgent::ShareMemory(bool share) {
  const MutexLock lock(impl_->mutex);
  impl_->shares_memory = share;
}

void FakeAgent::Form(uint64_t generation,
                     const std::vector<uint64_t>& members,
                     const std::string& reason) {
  std::vector<std::string> coordinator;
  {
    const MutexLock lock(impl_->mutex);
    coordinator = impl_->workers[members.front()].addresses;
    impl_->segments.clear();
    if (impl_->shares_memory) {
      UniqueFd& memory = impl_->segments[generation];
      memory.Reset(::memfd_create("segment", MFD_CLOEXEC));
      REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(SegmentBytes(members.size()))) == 0);
    }
  }
  for (size_t rank = 0; rank < members.size(); ++rank) {
    v1::WorkerOrder order;
    auto* world = order.mutable_world();
    world->set_generation(generation);
    world->set_link_key("key of generation " + std::to_string(generation));
    world->set_reason(reason);
    auto* placement = world->mutable_placement();
    placement->set_rank(static_cast<uint32_t>(rank));
    placement->set_size(static_cast<uint32_t>(members.size()));
    placement->set_local_rank(static_cast<uint32_t>(rank));
    placement->set_local_size(static_cast<uint32_t>(members.size()));
    placement->set_cross_size(1);
    for (const std::string& address : coordinator) {
      world->add_coordinator()->set_literal(address);
    }
    world->mutable_layout()->add_host_sizes(static_cast<uint32_t>(members.size()));
    Send(members[rank], std::move(order));
  }
}

void FakeAgent::Revoke(uint64_t generation,
                       const std::vector<uint64_t>& members,
                       const std::string& reason) {
  // Every second one hears it by the page's connection, as all do of a real agent.
  bool by_page = false;
  for (const uint64_t member : members) {
    by_page = !by_page;
    if (by_page) {
      GenerationOver over{generation};
      std::strncpy(over.reason, reason.c_str(), sizeof over.reason - 1);
      const MutexLock lock(impl_->mutex);
      const int connection = impl_->workers[member].connection.get();
      REQUIRE(::send(connection, &over, sizeof over, MSG_NOSIGNAL) == sizeof over);
      continue;
    }
    v1::WorkerOrder order;
    order.mutable_revoked()->set_generation(generation);
    order.mutable_revoked()->set_reason(reason);
    Send(member, std::move(order));
  }
}

void FakeAgent::Admit(uint64_t incarnation, uint32_t rank, uint32_t size) {
  v1::WorkerOrder order;
  order.mutable_admitted()->mutable_provisional()->set_rank(rank);
  order.mutable_admitted()->mutable_provisional()->set_size(size);
  Send(incarnation, std::move(order));
}

void FakeAgent::Release(uint64_t incarnation) {
  v1::WorkerOrder order;
  order.mutable_released();
  Send(incarnation, std::move(order));
}

void FakeAgent::NotifyPending(uint64_t generation,
                              const std::vector<uint64_t>& members,
                              bool pending) {
  for (const uint64_t member : members) {
    v1::WorkerOrder order;
    order.mutable_pending()->set_generation(generation);
    order.mutable_pending()->set_pending(pending);
    Send(member, std::move(order));
  }
}

void FakeAgent::Break(uint64_t incarnation) {
  Impl::Stream* stream = nullptr;
  {
    const MutexLock lock(impl_->mutex);
    stream = impl_->workers[incarnation].stream;
  }
  if (stream != nullptr) {
    stream->End();
  }
}

uint64_t FakeAgent::Ticks(uint64_t incarnation) {
  const MutexLock lock(impl_->mutex);
  const WorkerPage* page = impl_->workers[incarnation].page;
  return page == nullptr ? 0 : page->ticks.load();
}

bool FakeAgent::HoldsMutex(uint64_t incarnation) {
  const MutexLock lock(impl_->mutex);
  WorkerPage* page = impl_->workers[incarnation].page;
  if (page == nullptr) {
    return false;
  }
  const int error = ::pthread_mutex_trylock(&page->alive);
  if (error == 0) {
    ::pthread_mutex_unlock(&page->alive);
  }
  return error == EBUSY;
}

}  // namespace muster::test
