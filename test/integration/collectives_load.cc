// Modes that need memory, time or many calls; and what all modes report with.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include "collectives_modes.h"

namespace muster::test {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kFailuresPrinted = 10;

// The value of `field` in /proc/self/status, in kB.
int64_t StatusField(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      return std::stoll(line.substr(field.size() + 1));
    }
  }
  return -1;
}

// Gigabytes: not filled element by element, nor zeroed first.
class Block {
 public:
  explicit Block(int64_t bytes)
      : size_(bytes), bytes_(new unsigned char[static_cast<size_t>(bytes)]) {}
  unsigned char* data() { return bytes_.get(); }
  void Set(int value) { std::memset(data(), value, static_cast<size_t>(size_)); }
  // All of [begin, end) are this value.
  bool IsAll(int64_t begin, int64_t end, unsigned char value) const {
    const unsigned char* from = bytes_.get() + begin;
    return begin == end || (*from == value &&
                            std::memcmp(from, from + 1, static_cast<size_t>(end - begin - 1)) == 0);
  }
  bool IsAll(unsigned char value) const { return IsAll(0, size_, value); }

 private:
  int64_t size_;
  std::unique_ptr<unsigned char[]> bytes_;
};

Options Named(const char* name, Op op = Op::kSum) {
  Options options;
  options.name = name;
  options.op = op;
  return options;
}

}  // namespace

void Report::Check(bool right, const std::string& what) {
  ++checks_;
  if (!right) {
    Fail(what);
  }
}

void Report::Check(Running& running) {
  Check(running.Check());
}

void Report::Check(const std::optional<std::string>& wrong) {
  ++checks_;
  if (wrong) {
    Fail(*wrong);
  }
}

void Report::Fail(const std::string& what) {
  ++failures_;
  if (failures_ <= kFailuresPrinted) {
    log_.Write("wrong", {{"what", what}});
    std::cerr << "WRONG on rank " << rank() << " of " << size() << ": " << what << std::endl;
  }
}

std::string Report::Refused(const std::string& what, const std::function<void()>& call) {
  ++checks_;
  try {
    call();
    Fail(what + " was not refused");
  } catch (const InvalidCollective& refused) {
    return refused.what();
  } catch (const Error& other) {
    Fail(what + " gave another error: " + other.what());
    if (dynamic_cast<const WorkersLost*>(&other) != nullptr) {
      throw;
    }
  }
  return "";
}

void Report::Finish(const std::string& mode) {
  log_.Write("checked", {{"mode", mode}, {"checks", checks_}, {"failures", failures_}});
  if (rank() == 0) {
    std::cout << mode << ": " << checks_ << " checks at size " << size() << ", " << failures_
              << " wrong" << std::endl;
  }
}

void AwaitFile(const std::string& path) {
  const auto deadline = steady_clock::now() + std::chrono::minutes(1);
  while (::access(path.c_str(), F_OK) != 0 && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int64_t MemoryPeak() {
  return StatusField("VmHWM");
}

// Everything is submitted before anything is waited for, in another order on each rank.
void RunOutstanding(Context& context) {
  const int64_t count = context.arguments.Number("count", 10000);
  constexpr int64_t kElements = 256;
  barrier();
  std::vector<std::unique_ptr<Running>> running;
  for (int64_t i = 0; i < count; ++i) {
    Case of =
        Single(Kind::kAllreduce, DType::kF32, {kElements}, Op::kSum, static_cast<uint64_t>(i));
    of.name = "outstanding." + std::to_string(i);
    running.push_back(std::make_unique<Running>(of));
  }
  const int64_t before = MemoryPeak();
  Chance own(Mix(7, static_cast<uint64_t>(rank())));
  own.Shuffle(running);
  const auto start = steady_clock::now();
  for (const auto& one : running) {
    one->Submit();
  }
  const std::chrono::duration<double> submitted = steady_clock::now() - start;
  for (const auto& one : running) {
    one->Wait();
  }
  const std::chrono::duration<double> took = steady_clock::now() - start;
  const int64_t after = MemoryPeak();
  for (const auto& one : running) {
    context.report.Check(*one);
  }
  context.log.Write("memory",
                    {{"before_kb", before},
                     {"after_kb", after},
                     {"tensors_kb", count * kElements * 4 / 1024},
                     {"submitted_s", submitted.count()},
                     {"took_s", took.count()}});
}

// Counts beyond 2^31 bytes.
void RunBig(Context& context) {
  const int64_t bytes = context.arguments.Number("count", 2'200'000'001);
  Block block(bytes);
  const Tensor tensor{block.data(), DType::kU8, {bytes}, {}};
  block.Set(rank() + 1);
  broadcast(tensor, size() - 1, Named("big.broadcast"));
  context.report.Check(block.IsAll(static_cast<unsigned char>(size())), "the large broadcast");
  block.Set(rank() + 1);
  block.data()[bytes - 1] = 100;
  allreduce(tensor, tensor, Named("big.allreduce"));
  context.report.Check(
      block.IsAll(0, bytes - 1, static_cast<unsigned char>(size() * (size() + 1) / 2)),
      "the large allreduce");
  context.report.Check(block.data()[bytes - 1] == static_cast<unsigned char>(100 * size()),
                       "the last element of the large allreduce");
  context.log.Write("big", {{"bytes", bytes}, {"peak_kb", MemoryPeak()}});
}

// A gathered total and a part of an alltoall beyond 2^31 bytes.
void RunBigGather(Context& context) {
  const int64_t rows = context.arguments.Number("count", 1'500'000'000);
  std::unique_ptr<Block> out;
  int64_t allocated = 0;
  const Allocate into = [&](const Shape& shape, DType, const Device&) {
    allocated = CountOf(shape);
    out = std::make_unique<Block>(allocated);
    return static_cast<void*>(out->data());
  };
  {
    Block in(rows);
    in.Set(rank() + 1);
    allgather({in.data(), DType::kU8, {rows}, {}}, into, Named("big.gather"));
  }
  context.report.Check(allocated == rows * size(), "the size of the large allgather");
  for (int from = 0; from < size(); ++from) {
    context.report.Check(
        out->IsAll(from * rows, (from + 1) * rows, static_cast<unsigned char>(from + 1)),
        "the large allgather, from rank " + std::to_string(from));
  }
  out.reset();
  // Rank 0 sends nearly everything to rank 1.
  const int64_t large = rows / 2 * 3;
  std::vector<int64_t> splits(static_cast<size_t>(size()), 3);
  splits[1] = rank() == 0 ? large : 3;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    sum += split;
  }
  std::vector<int64_t> received;
  {
    Block in(sum);
    in.Set(rank() + 1);
    alltoall({in.data(), DType::kU8, {sum}, {}}, splits, into, &received, Named("big.alltoall"));
  }
  int64_t at = 0;
  for (int from = 0; from < size(); ++from) {
    const int64_t part = from == 0 && rank() == 1 ? large : 3;
    context.report.Check(received.at(static_cast<size_t>(from)) == part &&
                             out->IsAll(at, at + part, static_cast<unsigned char>(from + 1)),
                         "the large alltoall, from rank " + std::to_string(from));
    at += part;
  }
  context.log.Write("big", {{"bytes", rows * size()}, {"peak_kb", MemoryPeak()}});
}

// Sits idle until SIGUSR1, which the runtime's threads have blocked.
void RunIdle(Context& context) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  CheckUsable(context, "before idling");
  barrier();
  context.log.Write("idle");
  int signal = 0;
  sigwait(&set, &signal);
  CheckUsable(context, "after idling");
}

// Lone operations of 4 bytes, after a pause that lets everybody fall asleep.
void RunLatency(Context& context) {
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) {
    barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    float value = 1;
    const Tensor tensor{&value, DType::kF32, {}, {}};
    const auto start = steady_clock::now();
    allreduce(tensor, tensor, Named("lone"));
    const std::chrono::duration<double> took = steady_clock::now() - start;
    times.push_back(took.count());
    context.report.Check(value == static_cast<float>(size()), "a lone allreduce");
  }
  std::sort(times.begin(), times.end());
  context.log.Write("latency", {{"median_s", times[times.size() / 2]}, {"worst_s", times.back()}});
}

}  // namespace muster::test
