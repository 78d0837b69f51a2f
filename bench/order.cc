#include "bench/order.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace muster::bench {
namespace {

// A report of kIterationsMax times, and room to spare.
constexpr size_t kMessageBytesMax = 128 << 10;

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Status::Failed("the path of a socket is too long: " + path + "; set TMPDIR");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Status SystemError(const std::string& what) {
  return Status::Failed(what + ": " + std::strerror(errno));
}

// Reads `text` as JSON and hands it on; what is missing or of another type is one error.
template <class T, class Read>
Result<T> Parse(const std::string& text, Read read) {
  try {
    return read(nlohmann::json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    return Status::Invalid(std::string("not a message of the bench: ") + error.what());
  }
}

}  // namespace

const std::vector<std::string>& OperationNames() {
  static const std::vector<std::string> names = {
      "allreduce", "allgather", "broadcast", "alltoall", "reducescatter"};
  return names;
}

const std::string& Name(Operation operation) {
  return OperationNames().at(static_cast<size_t>(operation));
}

Result<Operation> ParseOperation(const std::string& text) {
  const std::vector<std::string>& names = OperationNames();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) {
    return Status::Invalid("no operation is called '" + text + "'");
  }
  return static_cast<Operation>(found - names.begin());
}

std::string ToText(const Order& order) {
  return nlohmann::json{{"operation", Name(order.operation)},
                        {"bytes", order.bytes},
                        {"tensors", order.tensors},
                        {"iterations", order.iterations},
                        {"warmups", order.warmups},
                        {"back_to_back", order.pace == Pace::kBackToBack},
                        {"algorithm", order.algorithm},
                        {"offset", order.offset}}
      .dump();
}

std::string ToText(const Report& report) {
  // Whatever a library says in an error is printable afterwards.
  return nlohmann::json{{"error", report.error}, {"times_ns", report.times_ns}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ToText(const Hello& hello) {
  return nlohmann::json{{"rank", hello.rank}, {"size", hello.size}}.dump();
}

Result<Order> ParseOrder(const std::string& text) {
  return Parse<Order>(text, [](const nlohmann::json& json) -> Result<Order> {
    const Result<Operation> operation = ParseOperation(json.at("operation").get<std::string>());
    if (!operation.ok()) {
      return operation.status();
    }
    Order order;
    order.operation = operation.value();
    order.bytes = json.at("bytes").get<size_t>();
    order.tensors = json.at("tensors").get<int>();
    order.iterations = json.at("iterations").get<int>();
    order.warmups = json.at("warmups").get<int>();
    order.pace = json.at("back_to_back").get<bool>() ? Pace::kBackToBack : Pace::kBarrier;
    order.algorithm = json.at("algorithm").get<std::string>();
    order.offset = json.at("offset").get<size_t>();
    if (order.iterations < 1 || order.iterations > kIterationsMax || order.warmups < 1 ||
        order.tensors < 1) {
      return Status::Invalid("an order without tensors, warm-ups or iterations, or with too many");
    }
    return order;
  });
}

Result<Report> ParseReport(const std::string& text) {
  return Parse<Report>(text, [](const nlohmann::json& json) -> Result<Report> {
    return Report{.error = json.at("error").get<std::string>(),
                  .times_ns = json.at("times_ns").get<std::vector<int64_t>>()};
  });
}

Result<Hello> ParseHello(const std::string& text) {
  return Parse<Hello>(text, [](const nlohmann::json& json) -> Result<Hello> {
    return Hello{.rank = json.at("rank").get<int>(), .size = json.at("size").get<int>()};
  });
}

std::string Describe(const Order& order) {
  const std::string count = order.tensors == 1 ? "" : std::to_string(order.tensors) + " times ";
  const std::string how = order.algorithm.empty() ? "" : " (" + order.algorithm + ")";
  return count + Name(order.operation) + how + " of " + std::to_string(order.bytes) + " bytes";
}

Result<UniqueFd> ListenAt(const std::string& path) {
  const Result<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) {
    return address.status();
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) !=
          0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return SystemError("cannot listen at " + path);
  }
  return fd;
}

Result<UniqueFd> ConnectTo(const std::string& path) {
  const Result<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) {
    return address.status();
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::connect(fd.get(),
                               reinterpret_cast<const sockaddr*>(&address.value()),
                               sizeof(sockaddr_un)) != 0) {
    return SystemError("cannot connect to the bench at " + path);
  }
  return fd;
}

Status Send(int fd, const std::string& message) {
  ssize_t sent = 0;
  do {
    sent = ::send(fd, message.data(), message.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? SystemError("cannot send to the other side") : Status::Ok();
}

Result<std::string> Receive(int fd) {
  std::string message(kMessageBytesMax, '\0');
  ssize_t got = 0;
  do {
    got = ::recv(fd, message.data(), message.size(), MSG_TRUNC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    return Status(StatusCode::kUnavailable, "the other side is gone");
  }
  if (static_cast<size_t>(got) > message.size()) {
    return Status::Failed("a message of " + std::to_string(got) + " bytes is too long");
  }
  message.resize(static_cast<size_t>(got));
  return message;
}

}  // namespace muster::bench
