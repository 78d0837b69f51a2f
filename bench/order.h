#pragma once

// What the bench asks of a rank, what the rank answers, and the socket between them: one JSON
// message per packet of a Unix SEQPACKET socket, on which an idle rank sleeps in the kernel.
//
// Not in here: how the order is carried out (rank_loop.h), who starts the ranks (rank_group.h).
// Values and functions without state; any thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace muster::bench {

enum class Operation : uint8_t { kAllreduce, kAllgather, kBroadcast, kAlltoall, kReducescatter };
/// In the order of the enum.
const std::vector<std::string>& OperationNames();
const std::string& Name(Operation operation);
Result<Operation> ParseOperation(const std::string& text);

enum class Pace : uint8_t {
  kBarrier,     // Fresh data and a barrier before each iteration, neither of them in its time.
  kBackToBack,  // One iteration straight after the other, on the same data.
};

/// The most iterations in one order: the report has to fit into a packet.
inline constexpr int kIterationsMax = 5000;

struct Order {
  Operation operation = Operation::kAllreduce;
  size_t bytes = 4;  // Per tensor: of the larger one of input and result.
  int tensors = 1;   // All of them are one iteration.
  int iterations = 1;
  int warmups = 1;
  Pace pace = Pace::kBarrier;
  std::string algorithm;  // Of the contestant's own; empty: its only one.
  size_t offset = 16;     // Of each tensor from the start of a page. malloc gives 16.
};

struct Report {
  std::string error;              // Empty: carried out, results right.
  std::vector<int64_t> times_ns;  // One per iteration.
};

/// The first message on a connection.
struct Hello {
  int rank = 0;
  int size = 0;
};

std::string ToText(const Order& order);
std::string ToText(const Report& report);
std::string ToText(const Hello& hello);
Result<Order> ParseOrder(const std::string& text);
Result<Report> ParseReport(const std::string& text);
Result<Hello> ParseHello(const std::string& text);

/// "allreduce of 4096 bytes": for messages.
std::string Describe(const Order& order);

using Deadline = std::chrono::steady_clock::time_point;

Result<UniqueFd> ListenAt(const std::string& path);
Result<UniqueFd> ConnectTo(const std::string& path);
/// Fails where the other side is gone.
Status Send(int fd, const std::string& message);
/// Blocks, without a deadline: a rank that waits for orders. kUnavailable: the other side is gone.
Result<std::string> Receive(int fd);

}  // namespace muster::bench
