// muster-bench-mpi SOCKET: Open MPI's rank, started by mpirun. A program of its own, so that
// muster-bench runs where there is no MPI.

#include <mpi.h>

#include <cstdio>
#include <memory>
#include <stdexcept>

#include "bench/rank_loop.h"

namespace muster::bench {
namespace {

class MpiRank : public RankEngine {
 public:
  MpiRank() {
    Check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    Check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Barrier() override { Check(MPI_Barrier(MPI_COMM_WORLD)); }

  std::function<void()> Prepare(const Order& order, Buffers& buffers) override {
    const int in_count = static_cast<int>(buffers.layout().in);
    const int part = static_cast<int>(buffers.layout().part);
    float* const in = buffers.in(0);
    float* const out = buffers.out(0);
    switch (order.operation) {
      case Operation::kAllreduce:
        return order.algorithm == "nonblocking" ? Nonblocking(buffers) : OneByOne(buffers);
      case Operation::kAllgather:
        return [=] {
          Check(MPI_Allgather(in, in_count, MPI_FLOAT, out, in_count, MPI_FLOAT, MPI_COMM_WORLD));
        };
      case Operation::kBroadcast:
        return [=] { Check(MPI_Bcast(in, in_count, MPI_FLOAT, 0, MPI_COMM_WORLD)); };
      case Operation::kAlltoall:
        return
            [=] { Check(MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD)); };
      case Operation::kReducescatter:
        return [=] {
          Check(MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
        };
    }
    throw std::invalid_argument("the operation is not known");
  }

 private:
  static void Check(int code) {
    if (code != MPI_SUCCESS) {
      throw std::runtime_error("MPI reports error " + std::to_string(code));
    }
  }

  static const void* Input(const Buffers& buffers, size_t tensor) {
    return buffers.in(tensor) == buffers.out(tensor) ? MPI_IN_PLACE : buffers.in(tensor);
  }

  static std::function<void()> OneByOne(Buffers& buffers) {
    return [&buffers] {
      const int count = static_cast<int>(buffers.layout().in);
      for (size_t i = 0; i < buffers.count(); ++i) {
        Check(MPI_Allreduce(
            Input(buffers, i), buffers.out(i), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
      }
    };
  }

  static std::function<void()> Nonblocking(Buffers& buffers) {
    return [&buffers, requests = std::vector<MPI_Request>(buffers.count())]() mutable {
      const int count = static_cast<int>(buffers.layout().in);
      for (size_t i = 0; i < requests.size(); ++i) {
        Check(MPI_Iallreduce(Input(buffers, i),
                             buffers.out(i),
                             count,
                             MPI_FLOAT,
                             MPI_SUM,
                             MPI_COMM_WORLD,
                             &requests[i]));
      }
      Check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
    };
  }

  int rank_ = 0;
  int size_ = 0;
};

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: muster-bench-mpi SOCKET; it is started by muster-bench\n", stderr);
    return 2;
  }
  MPI_Init(&argc, &argv);
  muster::Status served;
  {
    muster::bench::MpiRank rank;
    served = muster::bench::Serve(rank, argv[1]);
  }
  if (!served.ok()) {
    std::fprintf(stderr, "muster-bench-mpi: %s\n", served.message().c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
