#include "worker/collective/gloo_backend.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>

#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include "worker/collective/gloo_transport.h"
#include "worker/collective/reduce.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

class GlooBackend final : public Backend {
 public:
  GlooBackend(int rank, std::vector<PrivateFd> sockets)
      : mesh_(rank, std::move(sockets)), context_(std::make_shared<GlooContext>(mesh_)) {}

  Status Allreduce(const void* in, void* out, const Reduction& what, Timeout timeout) override {
    const size_t bytes = what.count * ElementSize(what.dtype);
    if (in != out && bytes > 0) {
      std::memcpy(out, in, bytes);
    }
    if (what.count == 0) {
      return Status::Ok();
    }
    const bool is_half = what.dtype == DType::kF16 || what.dtype == DType::kBF16;
    if (!is_half) {
      return AllreduceInPlace(out, what, timeout);
    }
    // Partial sums keep the precision of a float until the end.
    std::vector<float> wide(what.count);
    WidenFloats(what.dtype, wide.data(), out, what.count);
    Status status = AllreduceInPlace(wide.data(), {DType::kF32, what.count, what.op}, timeout);
    if (status.ok()) {
      NarrowFloats(what.dtype, out, wide.data(), what.count);
    }
    return status;
  }

  Status Allgatherv(const void* in,
                    void* out,
                    std::span<const size_t> byte_counts,
                    Timeout timeout) override {
    const size_t own = byte_counts[static_cast<size_t>(mesh_.rank())];
    if (mesh_.size() == 1) {
      if (own > 0 && in != out) {
        std::memcpy(out, in, own);
      }
      return Alive();
    }
    return Run([&] {
      gloo::AllgathervOptions options(context_);
      options.setTimeout(timeout);
      // Gloo only reads the input.
      options.setInput(static_cast<char*>(const_cast<void*>(in)), own);
      options.setOutput(static_cast<char*>(out),
                        std::vector<size_t>(byte_counts.begin(), byte_counts.end()));
      gloo::allgatherv(options);
    });
  }

  Status Broadcast(void* inout, size_t bytes, int root, Timeout timeout) override {
    if (mesh_.size() == 1 || bytes == 0) {
      return Alive();
    }
    return Run([&] {
      gloo::BroadcastOptions options(context_);
      options.setTimeout(timeout);
      options.setRoot(root);
      options.setOutput(static_cast<char*>(inout), bytes);
      gloo::broadcast(options);
    });
  }

  void Abort() override { mesh_.Abort(); }

  std::vector<int> suspects() const override { return mesh_.suspects(); }

 private:
  Status AllreduceInPlace(void* data, const Reduction& what, Timeout timeout) {
    if (mesh_.size() == 1) {
      return Alive();
    }
    return Run([&] {
      gloo::AllreduceOptions options(context_);
      options.setTimeout(timeout);
      // Each element is reduced by one rank and then copied to the others: the same bits for all.
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      SetOutput(options, data, what);
      options.setReduceFunction([&what](void* out, const void* a, const void* b, size_t count) {
        Reduce(what.dtype, what.op, out, a, b, count);
      });
      gloo::allreduce(options);
    });
  }

  // Gloo takes from the type only the size of an element.
  static void SetOutput(gloo::AllreduceOptions& options, void* data, const Reduction& what) {
    switch (ElementSize(what.dtype)) {
      case 1:
        return options.setOutput(static_cast<uint8_t*>(data), what.count);
      case 2:
        return options.setOutput(static_cast<uint16_t*>(data), what.count);
      case 4:
        return options.setOutput(static_cast<uint32_t*>(data), what.count);
      default:
        return options.setOutput(static_cast<uint64_t*>(data), what.count);
    }
  }

  /// Refuses after Abort, also where nothing would be sent.
  Status Alive() { return mesh_.Check(); }

  /// The one place where Gloo's exceptions end.
  Status Run(const std::function<void()>& algorithm) {
    Status alive = Alive();
    if (!alive.ok()) {
      return alive;
    }
    try {
      algorithm();
      return Status::Ok();
    } catch (const MeshError& error) {
      return error.status;
    } catch (const std::exception& error) {
      return Status::Failed(std::string("gloo: ") + error.what());
    }
  }

  PeerMesh mesh_;
  std::shared_ptr<GlooContext> context_;  // Shared because Gloo's options take it so.
};

}  // namespace

std::unique_ptr<Backend> MakeGlooBackend(int rank, std::vector<PrivateFd> sockets) {
  return std::make_unique<GlooBackend>(rank, std::move(sockets));
}

}  // namespace muster::worker
