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

/// Gives memory for a result whose shape is known late. Called once per result, on the executor
/// thread or in a thread that waits for an operation; must not block.
using Allocate = std::function<void*(const Shape&, DType, const Device&)>;

/// Which workers take part; 0 is all. Over a reset a set follows its workers; one that has lost a
/// worker stays known, and its use is InvalidCollective.
struct ProcessSet {
  int32_t id = 0;
  bool operator==(const ProcessSet&) const = default;
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
  /// already complete). Must not block, and must not throw: that ends the process.
  void then(std::function<void(std::exception_ptr)> callback);

 private:
  friend struct OperationAccess;  // Internal.
  std::shared_ptr<Operation> operation_;
};

/// Joins the job: returns when the first world has formed, or at once to a newcomer, whose place
/// is then provisional until its first sync. Does nothing if initialized. Throws Error if the
/// agent does not answer.
void init();
/// The same, with process sets that exist from the start: ids 1, 2, ... in this order, ranks of the
/// first world, the same on every worker. A newcomer gets those of the running job instead.
void init(const std::vector<std::vector<int>>& process_sets);
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

/// Every function below has a form that returns a Handle and a blocking one. All ranks of the
/// process set have to call it, in any order, with the same name, dtype, reduction and factors,
/// the same number of members of a group, and the same shape unless said otherwise; else every rank
/// gets InvalidCollective. Calls with another name or process set, or of a group and a single
/// tensor, are different operations, each waiting for the rest of its ranks: the stall check names
/// them.
/// Other errors: WorkersLost, WorkersFinished.

/// Reduces `in` over all ranks into `out`, of the same dtype and shape; in.data == out.data is in
/// place. Every rank gets the same bits: postscale * op(prescale * in). Average divides by the size
/// of the process set, integers truncating toward zero; integer sums wrap; 16-bit floats are
/// computed in float. Of booleans, sum and max are OR, min and product AND. Adasum: floats only, no
/// process sets, no factors.
Handle allreduce_async(Tensor in, Tensor out, Options options = {});
void allreduce(Tensor in, Tensor out, Options options = {});

/// Several tensors, of any dtypes and shapes, reduced together or not at all: no member is executed
/// before every rank has submitted the whole group. `out[i]` is the result of `in[i]`. Members are
/// named after options.name. The result does not depend on what else is in flight.
Handle grouped_allreduce_async(std::vector<Tensor> in,
                               std::vector<Tensor> out,
                               Options options = {});
void grouped_allreduce(std::vector<Tensor> in, std::vector<Tensor> out, Options options = {});

/// Concatenates the `in` of all ranks along the first dimension, in rank order. First dimensions
/// may differ; the others must not. `out` gives the memory of the result.
Handle allgather_async(Tensor in, Allocate out, Options options = {});
void allgather(Tensor in, Allocate out, Options options = {});
Handle grouped_allgather_async(std::vector<Tensor> in,
                               std::vector<Allocate> out,
                               Options options = {});
void grouped_allgather(std::vector<Tensor> in, std::vector<Allocate> out, Options options = {});

/// Copies `inout` of rank `root` (of the world, also with a process set) to every rank.
Handle broadcast_async(Tensor inout, int root, Options options = {});
void broadcast(Tensor inout, int root, Options options = {});

/// Sends the first splits[0] rows of `in` to the first rank of the process set, the next splits[1]
/// to the second, and so on; `out` gives the memory for what was received, in rank order. One split
/// per rank, not negative, together the rows of `in`; none: equal parts, which must come out even.
/// First dimensions may differ. If `received_splits` is not null, it is set to the rows that came
/// from each rank, and has to live until completion.
Handle alltoall_async(Tensor in,
                      std::vector<int64_t> splits,
                      Allocate out,
                      std::vector<int64_t>* received_splits = nullptr,
                      Options options = {});
void alltoall(Tensor in,
              std::vector<int64_t> splits,
              Allocate out,
              std::vector<int64_t>* received_splits = nullptr,
              Options options = {});

/// Reduces `in` as allreduce does, and gives each rank a part of the rows, in rank order; where
/// they do not divide, the first ranks get one more. Average, sum, min, max, product.
Handle reducescatter_async(Tensor in, Allocate out, Options options = {});
void reducescatter(Tensor in, Allocate out, Options options = {});
Handle grouped_reducescatter_async(std::vector<Tensor> in,
                                   std::vector<Allocate> out,
                                   Options options = {});
void grouped_reducescatter(std::vector<Tensor> in, std::vector<Allocate> out, Options options = {});

/// Returns when every rank has called it.
Handle barrier_async(Options options = {});
void barrier(Options options = {});

/// This rank has no more data: it takes part in the allreduces of the others with zeros (an average
/// still divides by the full size; a minimum or a product is that with zeros) until all have
/// joined, for as long as that takes: it is no stall. Returns the rank that joined last, the same
/// everywhere. Other collectives are InvalidCollective while somebody is joined. Throws
/// HostsUpdated if the world is going to change, for what this rank holds is stale.
int join();

/// A set of ranks of the present world that do collectives among themselves. To be called by every
/// rank of the world, members or not, in the same order. InvalidCollective: the ranks differ, are
/// no ranks, or make up a set that exists.
ProcessSet add_process_set(std::vector<int> ranks);
void remove_process_set(ProcessSet set);
/// Ranks of the set in the present world, growing. Throws InvalidCollective if it does not exist or
/// has lost a worker.
std::vector<int> process_set_ranks(ProcessSet set);
/// Of all sets that exist, 0 included.
std::vector<ProcessSet> process_sets();

/// The bytes of rank `root`, on every rank; the argument of the other ranks is ignored.
std::string broadcast_object(std::string bytes, int root, Options options = {});
/// The bytes of all ranks of the process set, in rank order.
std::vector<std::string> allgather_object(std::string bytes, Options options = {});

/// Appends a `step` event to the trace (MUSTER_TRACE); call once per finished step.
void trace_step(int64_t n);

}  // namespace muster
