#pragma once

// Elastic training: State names what must survive, run() keeps calling the training function while
// workers come and go.
//
//   muster::init();
//   muster::elastic::State state;
//   state.tensor("weights", {weights.data(), muster::DType::kF32, {n}}).value("step", step);
//   muster::elastic::run(state, [&](muster::elastic::State& s) {
//     while (step < steps) { train_one_step(); ++step; s.commit(); }
//   });
//
// Everything here is used by the one thread that is inside run().

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "muster/muster.h"

namespace muster::elastic {

/// Which snapshot: ordered by the generation that took it, then by its number in there.
struct CommitId {
  uint64_t generation = 0;
  uint64_t sequence = 0;
  auto operator<=>(const CommitId&) const = default;
};

struct TensorOptions {
  bool overlappable = false;  // May be copied while the next step runs (see before_write).
  bool per_rank = false;      // By nature different on each rank: committed, never synced.
};

/// What a sampler or the state of a framework implements.
class Member {
 public:
  virtual ~Member() = default;
  /// Asked anew at each commit: addresses may move, the number, types and shapes must not. In CPU
  /// memory.
  virtual std::vector<Tensor> tensors() = 0;
  /// False if the tensor has the same bytes as at the last commit.
  virtual bool changed(size_t /*tensor*/) { return true; }
  /// Everything that is not a tensor, by value.
  virtual std::string save() = 0;
  /// What save() gave, here or on another rank; the tensors have been written already.
  virtual void load(std::string_view bytes) = 0;
};

/// Default encoding of plain types, and of std::string; other types bring their own pair, found
/// by argument-dependent look-up.
template <class T>
requires std::is_trivially_copyable_v<T> std::string encode(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
requires std::is_trivially_copyable_v<T>
void decode(std::string_view bytes, T& value) {
  if (bytes.size() != sizeof value) {
    throw Error("a value of " + std::to_string(sizeof value) + " bytes cannot be read from " +
                std::to_string(bytes.size()));
  }
  __builtin_memcpy(&value, bytes.data(), sizeof value);
}
inline std::string encode(const std::string& value) {
  return value;
}
inline void decode(std::string_view bytes, std::string& value) {
  value = std::string(bytes);
}

/// What survives. Members are fixed at the first sync; names are unique (else Error).
class State {
 public:
  State();
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  template <class T>
  State& value(std::string name, T& live) {
    add_value(
        std::move(name),
        [&live] { return encode(live); },
        [&live](std::string_view bytes) { decode(bytes, live); });
    return *this;
  }
  State& tensor(std::string name, Tensor live, TensorOptions options = {});
  State& member(std::string name, Member& m, TensorOptions options = {});

  /// Takes a snapshot of everything; all ranks call it at the same place. Throws HostsUpdated if
  /// the ranks have agreed, at the call before, that the world will change; the snapshot of this
  /// place is taken before. Throws WorkersLost, with the snapshot taken, if a rank is gone.
  void commit();
  /// Sets everything back to the last snapshot; does nothing if there is none.
  void restore();
  /// Makes all members of the world equal to the newest commit that one of them holds; if none
  /// does, to the live values of rank 0. What has not been committed is lost. run() calls it.
  /// Throws Error if names, types or shapes differ between ranks.
  void sync();
  /// commit() without the snapshot, unless it throws HostsUpdated.
  void check_host_updates();
  /// To be called before overlappable tensors are written.
  void before_write();
  /// Called in order of registration after each reset: rank and size are those of the new world,
  /// sync is to come.
  void register_reset_callbacks(std::vector<std::function<void()>> callbacks);
  /// (0, 0) if nothing is committed.
  CommitId last_commit() const;

 private:
  friend class StateAccess;
  void add_value(std::string name,
                 std::function<std::string()> save,
                 std::function<void(std::string_view)> load);
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Calls `train(state)` until it returns, through losses and changes of the world. Exceptions other
/// than WorkersLost and HostsUpdated leave it. A worker that is drained exits the process in here,
/// with code 0, after flushing its output.
void run(State& state, const std::function<void(State&)>& train);

}  // namespace muster::elastic
