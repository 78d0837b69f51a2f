#pragma once

// Manifest: what a source says of its snapshot before it sends the tensors: names, types, shapes,
// and the values themselves. It carries no tensor data. Members that are per rank are left out.
//
// Format, little-endian as all machines we run on: u64 count of members; per member: name, value
// (each a u64 length and bytes), u64 count of tensors, per tensor: u8 dtype, u64 count of
// dimensions, i64 each.
//
// Stateless functions.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "worker/elastic_snapshot.h"

namespace muster::worker {

struct ManifestTensor {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const ManifestTensor&) const = default;
};
struct ManifestMember {
  std::string name;
  std::string value;
  std::vector<ManifestTensor> tensors;
  bool operator==(const ManifestMember&) const = default;
};
using Manifest = std::vector<ManifestMember>;

Manifest MakeManifest(const std::vector<Registered>& entries, const Snapshot& snapshot);

std::string EncodeManifest(const Manifest& manifest);
/// kInvalid for bytes that are no manifest.
Result<Manifest> DecodeManifest(std::string_view bytes);

/// Where the parts of a manifest belong here.
struct Landing {
  std::vector<size_t> entries;               // Index of the entry of each manifest member.
  std::vector<std::vector<Tensor>> tensors;  // Its live tensors.
};
/// Looks up each member by name. kInvalid, naming the first difference (a name that one side lacks,
/// another count, type or shape, with both), if the State here cannot take the manifest over.
Result<Landing> FindLanding(const Manifest& manifest, const std::vector<Registered>& entries);

}  // namespace muster::worker
