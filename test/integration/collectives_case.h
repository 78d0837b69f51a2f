#pragma once

// One collective call, described so that every rank can make its part of it and knows what it has
// to give; and the call under way. Not thread-safe; one thread makes and checks its own calls.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives_reference.h"
#include "muster/muster.h"

namespace muster::test {

/// Numbers that all ranks draw alike from the same seed.
class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t end) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(end));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  /// log-uniform in [1, end).
  int64_t Size(int64_t end);
  template <class T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(Below(static_cast<int64_t>(i)))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

/// Memory with guards on both sides, `offset` bytes off its natural alignment.
class Guarded {
 public:
  Guarded(size_t size, size_t offset);
  unsigned char* data() { return bytes_.get() + kGuard + offset_; }
  size_t size() const { return size_; }
  bool intact() const;

 private:
  static constexpr size_t kGuard = 64;
  size_t size_;
  size_t offset_;
  std::unique_ptr<unsigned char[]> bytes_;
};

enum class Kind : uint8_t { kAllreduce, kAllgather, kBroadcast, kAlltoall, kReducescatter };
const char* NameOf(Kind kind);

struct Part {
  DType dtype = DType::kF32;
  /// The first dimension is the most that a rank brings (allgather) or sends to one other
  /// (alltoall); what each does comes from the seed.
  Shape shape;
};

struct Case {
  Kind kind = Kind::kAllreduce;
  std::vector<Part> parts;  // One, or the members of a group.
  bool grouped = false;
  Op op = Op::kSum;
  Values values = Values::kExact;
  double prescale = 1;
  double postscale = 1;
  int root = 0;
  bool in_place = false;
  bool equal_splits = false;  // Alltoall: passes no splits.
  std::string name;           // Empty: none.
  uint64_t seed = 0;
  ProcessSet set;
  std::vector<int> ranks;  // Members of the set, growing.
  size_t offset = 0;

  std::string Describe() const;
};

/// Rows that a rank brings to an allgather; that one sends to another in an alltoall.
int64_t GatherRows(const Case& of, size_t part, int rank);
int64_t SplitRows(const Case& of, size_t part, int from, int to);

/// A call of this rank, which is a member of the set. Allocates and fills when it is made.
class Running {
 public:
  explicit Running(Case of);
  ~Running();

  const Case& description() const { return case_; }
  void Submit();
  bool poll() const { return handle_.poll(); }
  void Wait() { handle_.wait(); }
  void Then(std::function<void(std::exception_ptr)> callback) { handle_.then(std::move(callback)); }
  /// Through the blocking form.
  void Call();
  /// What is wrong with the result, if anything.
  std::optional<std::string> Check();
  /// The same of an allreduce to which only these ranks brought data, the others having joined.
  std::optional<std::string> CheckAs(const std::vector<int>& bringing);
  /// Of the bits of the results that every member must have; 0 where they differ by nature.
  uint64_t Hash();

 private:
  struct Member;

  Tensor In(Member& member);
  Allocate Into(Member& member);
  Options options() const;
  void MakeMember(size_t part);
  std::optional<std::string> CheckMember(size_t part);
  std::optional<std::string> CheckValues(size_t part);
  std::optional<std::string> CheckAlltoall(size_t part);
  Expectation Expected(size_t part) const;
  Source SourceOf(size_t part) const;
  Shape ResultShape(size_t part) const;
  int self() const;

  Case case_;
  std::vector<std::unique_ptr<Member>> members_;
  Handle handle_;
};

}  // namespace muster::test
