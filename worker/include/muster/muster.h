#pragma once

// Muster's C++ API for training programs: who am I (rank, size, ...) and collectives over named
// tensors. Started by `muster run` the program is one worker of a job; started alone it is a world
// of one. For elastic training see muster/elastic.h.
//
// Threads: collectives may be called from any thread; rank() and the other places change only
// inside init(), a reset (in the thread that is inside elastic::run) and shutdown().
// In a forked child every call fails with Error: the runtime belongs to the process that called
// init().

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace muster {

enum class DType : uint8_t { kU8, kI8, kU16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kBool };

/// Reductions, with Horovod's numbers.
enum class Op : uint8_t { kAverage, kSum, kAdasum, kMin, kMax, kProduct };

struct Device {
  int32_t kind = 0;  // 0: CPU, 1: CUDA.
  int32_t index = 0;
  void* stream = nullptr;
};

/// Sizes per dimension, row-major; empty: a scalar (one element).
using Shape = std::vector<int64_t>;

/// Dense view of memory that the caller owns and keeps alive until the operation is complete.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Device device;
};

/// Gives memory for a result whose shape is known late. Called once, on the executor thread.
using Allocate = std::function<void*(const Shape&, DType, const Device&)>;

/// Which workers take part; 0 is all.
struct ProcessSet {
  int32_t id = 0;
};

struct Options {
  /// Ranks match operations by name; empty: named after the order of calls of this kind.
  std::string name;
  Op op = Op::kAverage;
  double prescale = 1;
  double postscale = 1;
  ProcessSet set;
};

/// Every exception of Muster is an Error.
struct Error : std::runtime_error {
  using runtime_error::runtime_error;
};
/// The generation was revoked: restore the last commit, then go on in the new world.
struct WorkersLost : Error {
  using Error::Error;
};
/// The world will change: go on from the live values.
struct HostsUpdated : Error {
  using Error::Error;
};
/// The call is wrong; every rank gets this; the world stays.
struct InvalidCollective : Error {
  using Error::Error;
};
/// The collective needs a member that has finished and shut down; there is no recovery.
struct WorkersFinished : Error {
  using Error::Error;
};

struct Operation;        // Internal.
struct OperationAccess;  // Internal.

/// An operation under way. Copyable; keeps no tensor alive after completion.
class Handle {
 public:
  Handle() = default;
  explicit Handle(std::shared_ptr<Operation> operation);

  /// True once the operation is complete, with or without an error.
  bool poll() const;
  /// Waits for completion; throws what the operation met (WorkersLost, InvalidCollective,
  /// WorkersFinished). May be called again.
  void wait();
  /// Calls back with the error or nullptr, on the executor thread (or at once, if the operation is
  /// already complete). Must not block.
  void then(std::function<void(std::exception_ptr)> callback);

 private:
  friend struct OperationAccess;  // Internal.
  std::shared_ptr<Operation> operation_;
};

/// Joins the job: returns when the first world has formed, or at once to a newcomer, whose place
/// is then provisional until its first sync. Does nothing if initialized. Throws Error if the
/// agent does not answer.
void init();
/// Leaves: says goodbye to every peer. On rank 0 waits until no peer needs it. Registered with
/// atexit by init().
void shutdown();
bool is_initialized();

/// Place in the world. All throw Error before init().
int rank();
int size();
int local_rank();
int local_size();
int cross_rank();  // Index of this host among the hosts that have this local rank.
int cross_size();  // Number of those hosts.
int slot();        // Index of the slot on its host; never changes.

/// Reduces `in` over all ranks into `out`, of the same dtype and shape; in.data == out.data is in
/// place. Every rank gets the same bits. Average divides by the number of ranks, integers
/// truncating toward zero; integer sums wrap.
Handle allreduce_async(Tensor in, Tensor out, Options options = {});
void allreduce(Tensor in, Tensor out, Options options = {});

/// Concatenates the `in` of all ranks along the first dimension, in rank order. First dimensions
/// may differ; the others and the dtype must not. `out` gives the memory of the result.
Handle allgather_async(Tensor in, Allocate out, Options options = {});
void allgather(Tensor in, Allocate out, Options options = {});

/// Copies `inout` of rank `root` to every rank; same dtype and shape everywhere.
Handle broadcast_async(Tensor inout, int root, Options options = {});
void broadcast(Tensor inout, int root, Options options = {});

/// Returns when every rank has called it.
Handle barrier_async(Options options = {});
void barrier(Options options = {});

/// The bytes of rank `root`, on every rank; the argument of the other ranks is ignored.
std::string broadcast_object(std::string bytes, int root, Options options = {});

/// Appends a `step` event to the trace (MUSTER_TRACE); call once per finished step.
void trace_step(int64_t n);

}  // namespace muster
