#pragma once

// Snapshot: one copy of everything that a State has registered: tensors, and values as bytes. It
// decides nothing: which commit it is stands in the CommitLedger, who gets it in elastic_sync.
//
// One set of buffers is used again for every commit. Used by one thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muster/elastic.h"

namespace muster::worker {

/// One entry of a State: a name and what stands behind it.
struct Registered {
  std::string name;
  bool per_rank = false;
  elastic::Member* member = nullptr;       // Outlives the State, or is `owned`.
  std::unique_ptr<elastic::Member> owned;  // The adapter around a plain value or tensor.
};

/// Memory that is not cleared first: it is about to be overwritten.
struct Buffer {
  std::unique_ptr<std::byte[]> bytes;
  size_t size = 0;
};

struct SavedTensor {
  DType dtype = DType::kF32;
  Shape shape;
  Buffer data;
};
struct SavedMember {
  std::vector<SavedTensor> tensors;
  std::string value;
};

/// The member's tensors, checked: in CPU memory, of a known type, with data. Throws Error with the
/// member's name.
std::vector<Tensor> LiveTensors(const Registered& entry);

/// "f32[3, 4]"
std::string Describe(DType dtype, const Shape& shape);

/// Of a tensor that LiveTensors has checked, or of one with the same type and shape.
size_t ByteSize(const Tensor& tensor);

class Snapshot {
 public:
  enum class Copy : uint8_t { kChanged, kAll };  // Whether a member's changed() is believed.
  enum class Part : uint8_t { kAll, kPerRank };

  /// Live memory into the snapshot. If a member throws, or its tensors have other shapes than the
  /// snapshot, the snapshot is as it was.
  /// `midway` is called between two copies (a fault point); it must not throw.
  void Take(const std::vector<Registered>& entries,
            Copy copy,
            const std::function<void()>& midway = {});

  /// The snapshot into live memory; in each member tensors first, then load().
  void WriteBack(const std::vector<Registered>& entries, Part part) const;

  /// Replaces a value by the bytes that another rank's save() gave, so that both hold the same.
  void ReplaceValue(size_t entry, std::string value) { saved_.at(entry).value = std::move(value); }

  const std::vector<SavedMember>& members() const { return saved_; }

  /// 64 bits over all that is synced. Tells apart by chance only, not by force: 1 in 2^64.
  uint64_t Digest(const std::vector<Registered>& entries) const;

 private:
  std::vector<SavedMember> saved_;  // As long as the entries, once taken.
};

}  // namespace muster::worker
