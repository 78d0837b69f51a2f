#include "worker/elastic_snapshot.h"

#include <bit>
#include <cstring>

#include "common/check.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

bool IsDType(DType dtype) {
  return static_cast<uint8_t>(dtype) < kDTypeCount;
}

struct Move {
  std::byte* to;
  const void* from;
  size_t size;
};

SavedMember Reserve(const std::vector<Tensor>& live) {
  SavedMember member;
  for (const Tensor& tensor : live) {
    SavedTensor& saved = member.tensors.emplace_back();
    saved.dtype = tensor.dtype;
    saved.shape = tensor.shape;
    saved.data.size = ByteSize(tensor);
    saved.data.bytes = std::make_unique_for_overwrite<std::byte[]>(saved.data.size);
  }
  return member;
}

void PlanMoves(const Registered& entry,
               Snapshot::Copy copy,
               const std::vector<Tensor>& live,
               const SavedMember& saved,
               std::vector<Move>& moves) {
  for (size_t t = 0; t < live.size(); ++t) {
    const Buffer& to = saved.tensors[t].data;
    const bool skip = copy == Snapshot::Copy::kChanged && !entry.member->changed(t);
    if (!skip && to.size > 0) {
      moves.push_back({to.bytes.get(), live[t].data, to.size});
    }
  }
}

void CheckSameTensors(const Registered& entry,
                      const std::vector<Tensor>& live,
                      const std::vector<SavedTensor>& saved) {
  if (live.size() != saved.size()) {
    throw Error("State: \"" + entry.name + "\" has " + std::to_string(live.size()) +
                " tensors, its last commit had " + std::to_string(saved.size()));
  }
  for (size_t i = 0; i < live.size(); ++i) {
    if (live[i].dtype != saved[i].dtype || live[i].shape != saved[i].shape) {
      throw Error("State: tensor " + std::to_string(i) + " of \"" + entry.name + "\" is " +
                  Describe(live[i].dtype, live[i].shape) + ", its last commit had " +
                  Describe(saved[i].dtype, saved[i].shape));
    }
  }
}

// Four independent lanes, so that the multiplications overlap; the rotation brings the high bits,
// which a multiplication cannot move down, back into play.
class Hash {
 public:
  void Add(const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    size_t at = 0;
    for (; at + sizeof lanes_ <= size; at += sizeof lanes_) {
      uint64_t words[4];
      std::memcpy(words, bytes + at, sizeof words);
      for (int lane = 0; lane < 4; ++lane) {
        lanes_[lane] = Mix(lanes_[lane], words[lane]);
      }
    }
    for (; at < size; ++at) {
      lanes_[0] = Mix(lanes_[0], std::to_integer<uint64_t>(bytes[at]));
    }
    lanes_[1] = Mix(lanes_[1], size);  // "a","bc" is not "ab","c".
  }

  uint64_t Finish() const {
    uint64_t hash = 0;
    for (const uint64_t lane : lanes_) {
      hash = Mix(hash, lane);
    }
    return Mix(hash, hash >> 32);
  }

 private:
  static uint64_t Mix(uint64_t lane, uint64_t word) {
    return std::rotl(lane ^ word, 29) * 0xD6E8FEB86659FD93ULL;
  }
  uint64_t lanes_[4] = {1, 2, 3, 4};
};

}  // namespace

std::string Describe(DType dtype, const Shape& shape) {
  return std::string(Name(dtype)) + ToString(shape);
}

size_t ByteSize(const Tensor& tensor) {
  const std::optional<int64_t> count = ElementCount(tensor.shape, tensor.dtype);
  MUSTER_CHECK(count.has_value(), "a tensor was not checked");
  return static_cast<size_t>(*count) * ElementSize(tensor.dtype);
}

std::vector<Tensor> LiveTensors(const Registered& entry) {
  std::vector<Tensor> tensors = entry.member->tensors();
  for (const Tensor& tensor : tensors) {
    if (!IsDType(tensor.dtype)) {
      throw Error("State: a tensor of \"" + entry.name + "\" has no known element type");
    }
    const std::string what =
        "State: a tensor of \"" + entry.name + "\", " + Describe(tensor.dtype, tensor.shape) + ", ";
    if (tensor.device.kind != 0) {
      throw Error(what + "is not in CPU memory; commit a copy on the host");
    }
    if (!ElementCount(tensor.shape, tensor.dtype)) {
      throw Error(what + "has a size that is negative or too large");
    }
    if (tensor.data == nullptr && ByteSize(tensor) > 0) {
      throw Error(what + "has no memory");
    }
  }
  return tensors;
}

void Snapshot::Take(const std::vector<Registered>& entries,
                    Copy copy,
                    const std::function<void()>& midway) {
  // All that may throw comes first; what follows it cannot fail half way.
  const size_t known = saved_.size();
  std::vector<SavedMember> added;
  std::vector<std::string> values;
  std::vector<Move> moves;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::vector<Tensor> live = LiveTensors(entries[i]);
    values.push_back(entries[i].member->save());
    if (i < known) {
      CheckSameTensors(entries[i], live, saved_[i].tensors);
      PlanMoves(entries[i], copy, live, saved_[i], moves);
    } else {
      added.push_back(Reserve(live));
      PlanMoves(entries[i], Copy::kAll, live, added.back(), moves);
    }
  }
  saved_.reserve(entries.size());
  for (SavedMember& member : added) {
    saved_.push_back(std::move(member));
  }
  for (size_t i = 0; i < moves.size(); ++i) {
    if (i == moves.size() / 2 && midway) {
      midway();
    }
    std::memcpy(moves[i].to, moves[i].from, moves[i].size);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    saved_[i].value.swap(values[i]);
  }
}

void Snapshot::WriteBack(const std::vector<Registered>& entries, Part part) const {
  MUSTER_CHECK(saved_.size() <= entries.size(), "a snapshot has more members than its State");
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (part == Part::kPerRank && !entries[i].per_rank) {
      continue;
    }
    const std::vector<Tensor> live = LiveTensors(entries[i]);
    CheckSameTensors(entries[i], live, saved_[i].tensors);
    for (size_t t = 0; t < live.size(); ++t) {
      const Buffer& from = saved_[i].tensors[t].data;
      if (from.size > 0) {
        std::memcpy(live[t].data, from.bytes.get(), from.size);
      }
    }
    entries[i].member->load(saved_[i].value);
  }
}

uint64_t Snapshot::Digest(const std::vector<Registered>& entries) const {
  Hash hash;
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (entries[i].per_rank) {
      continue;
    }
    hash.Add(entries[i].name.data(), entries[i].name.size());
    hash.Add(saved_[i].value.data(), saved_[i].value.size());
    for (const SavedTensor& tensor : saved_[i].tensors) {
      hash.Add(tensor.data.bytes.get(), tensor.data.size);
    }
  }
  return hash.Finish();
}

}  // namespace muster::worker
