#include "worker/elastic_manifest.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

void PutNumber(std::string& out, uint64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof bytes);
}

void PutText(std::string& out, std::string_view text) {
  PutNumber(out, text.size());
  out.append(text);
}

// Reads until the first mistake; from then on gives zeros and empty texts, so that the caller asks
// ok() once per loop instead of after each field.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool done() const { return bytes_.empty(); }

  uint64_t Number() {
    uint64_t number = 0;
    const std::string_view bytes = Take(sizeof number);
    if (ok_) {
      std::memcpy(&number, bytes.data(), sizeof number);
    }
    return number;
  }

  std::string_view Text() { return Take(Number()); }

  DType Type() {
    const std::string_view byte = Take(1);
    ok_ = ok_ && static_cast<uint8_t>(byte[0]) < kDTypeCount;
    return ok_ ? static_cast<DType>(byte[0]) : DType::kU8;
  }

 private:
  std::string_view Take(uint64_t size) {
    ok_ = ok_ && size <= bytes_.size();
    if (!ok_) {
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

ManifestTensor ReadTensor(Reader& reader) {
  ManifestTensor tensor;
  tensor.dtype = reader.Type();
  const uint64_t dimensions = reader.Number();
  for (uint64_t i = 0; i < dimensions && reader.ok(); ++i) {
    tensor.shape.push_back(static_cast<int64_t>(reader.Number()));
  }
  return tensor;
}

ManifestMember ReadMember(Reader& reader) {
  ManifestMember member;
  member.name = reader.Text();
  member.value = reader.Text();
  const uint64_t tensors = reader.Number();
  for (uint64_t i = 0; i < tensors && reader.ok(); ++i) {
    member.tensors.push_back(ReadTensor(reader));
  }
  return member;
}

Status CompareTensors(const ManifestMember& theirs, const std::vector<Tensor>& ours) {
  if (theirs.tensors.size() != ours.size()) {
    return Status::Invalid("\"" + theirs.name + "\" has " + std::to_string(ours.size()) +
                           " tensors here and " + std::to_string(theirs.tensors.size()) +
                           " at the source");
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    const ManifestTensor& their = theirs.tensors[i];
    if (their.dtype != ours[i].dtype || their.shape != ours[i].shape) {
      return Status::Invalid("tensor " + std::to_string(i) + " of \"" + theirs.name + "\" is " +
                             Describe(ours[i].dtype, ours[i].shape) + " here and " +
                             Describe(their.dtype, their.shape) + " at the source");
    }
  }
  return Status::Ok();
}

}  // namespace

Manifest MakeManifest(const std::vector<Registered>& entries, const Snapshot& snapshot) {
  Manifest manifest;
  for (size_t i = 0; i < snapshot.members().size(); ++i) {
    if (entries[i].per_rank) {
      continue;
    }
    const SavedMember& saved = snapshot.members()[i];
    ManifestMember& member = manifest.emplace_back();
    member.name = entries[i].name;
    member.value = saved.value;
    for (const SavedTensor& tensor : saved.tensors) {
      member.tensors.push_back({.dtype = tensor.dtype, .shape = tensor.shape});
    }
  }
  return manifest;
}

std::string EncodeManifest(const Manifest& manifest) {
  std::string out;
  PutNumber(out, manifest.size());
  for (const ManifestMember& member : manifest) {
    PutText(out, member.name);
    PutText(out, member.value);
    PutNumber(out, member.tensors.size());
    for (const ManifestTensor& tensor : member.tensors) {
      out.push_back(static_cast<char>(tensor.dtype));
      PutNumber(out, tensor.shape.size());
      for (const int64_t extent : tensor.shape) {
        PutNumber(out, static_cast<uint64_t>(extent));
      }
    }
  }
  return out;
}

Result<Manifest> DecodeManifest(std::string_view bytes) {
  Reader reader(bytes);
  Manifest manifest;
  const uint64_t members = reader.Number();
  for (uint64_t i = 0; i < members && reader.ok(); ++i) {
    manifest.push_back(ReadMember(reader));
  }
  if (!reader.ok() || !reader.done()) {
    return Status::Invalid("the source's description of its State does not parse (" +
                           std::to_string(bytes.size()) + " bytes)");
  }
  return manifest;
}

Result<Landing> FindLanding(const Manifest& manifest, const std::vector<Registered>& entries) {
  Landing landing;
  std::set<std::string_view> theirs;
  for (const ManifestMember& member : manifest) {
    theirs.insert(member.name);
    const auto entry = std::find_if(
        entries.begin(), entries.end(), [&](const Registered& e) { return e.name == member.name; });
    if (entry == entries.end() || entry->per_rank) {
      return Status::Invalid("\"" + member.name + "\" is synced by the source and " +
                             (entry == entries.end() ? "missing" : "per rank") + " here");
    }
    landing.entries.push_back(static_cast<size_t>(entry - entries.begin()));
    landing.tensors.push_back(LiveTensors(*entry));
    if (Status same = CompareTensors(member, landing.tensors.back()); !same.ok()) {
      return same;
    }
  }
  for (const Registered& entry : entries) {
    if (!entry.per_rank && !theirs.contains(entry.name)) {
      return Status::Invalid("\"" + entry.name + "\" is here and missing at the source");
    }
  }
  return landing;
}

}  // namespace muster::worker
