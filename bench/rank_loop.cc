#include "bench/rank_loop.h"

#include <chrono>
#include <exception>
#include <stdexcept>

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

int64_t NanosecondsOf(const std::function<void()>& iterate) {
  const Clock::time_point start = Clock::now();
  iterate();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

void Verify(const Buffers& buffers, size_t salt) {
  const std::string mistake = buffers.Mistake(salt);
  if (!mistake.empty()) {
    throw std::runtime_error(mistake);
  }
}

void RunWithBarriers(RankEngine& engine,
                     const Order& order,
                     Buffers& buffers,
                     const std::function<void()>& iterate,
                     std::vector<int64_t>& times) {
  for (int k = 0; k < order.warmups + order.iterations; ++k) {
    const auto salt = static_cast<size_t>(k);
    buffers.Fill(salt);
    engine.Barrier();
    const int64_t time = NanosecondsOf(iterate);
    if (k >= order.warmups) {
      times.push_back(time);
    }
    if (k < order.warmups || k + 1 == order.warmups + order.iterations) {
      Verify(buffers, salt);
    }
  }
}

void RunBackToBack(RankEngine& engine,
                   const Order& order,
                   Buffers& buffers,
                   const std::function<void()>& iterate,
                   std::vector<int64_t>& times) {
  buffers.Fill(0);
  engine.Barrier();
  for (int k = 0; k < order.warmups; ++k) {
    iterate();
  }
  for (int k = 0; k < order.iterations; ++k) {
    times.push_back(NanosecondsOf(iterate));
  }
  Verify(buffers, 0);
}

}  // namespace

Report Execute(RankEngine& engine, const Order& order) {
  Report report;
  report.times_ns.reserve(static_cast<size_t>(order.iterations));
  try {
    Buffers buffers(order, engine.rank(), engine.size());
    const std::function<void()> iterate = engine.Prepare(order, buffers);
    if (order.pace == Pace::kBackToBack) {
      RunBackToBack(engine, order, buffers, iterate, report.times_ns);
    } else {
      RunWithBarriers(engine, order, buffers, iterate, report.times_ns);
    }
    // No rank lets go of memory and registrations that another one still uses.
    engine.Barrier();
  } catch (const std::exception& error) {
    report.times_ns.clear();
    report.error = error.what();
  }
  return report;
}

Status Serve(RankEngine& engine, const std::string& path) {
  const Result<UniqueFd> socket = ConnectTo(path);
  if (!socket.ok()) {
    return socket.status();
  }
  Status sent =
      Send(socket.value().get(), ToText(Hello{.rank = engine.rank(), .size = engine.size()}));
  while (sent.ok()) {
    const Result<std::string> message = Receive(socket.value().get());
    if (!message.ok()) {
      return message.status().code() == StatusCode::kUnavailable ? Status::Ok() : message.status();
    }
    const Result<Order> order = ParseOrder(message.value());
    const Report report = order.ok() ? Execute(engine, order.value())
                                     : Report{.error = order.status().message(), .times_ns = {}};
    sent = Send(socket.value().get(), ToText(report));
  }
  return sent;
}

}  // namespace muster::bench
