#include "worker/collective/mesh_moves.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace muster::worker {
namespace {

constexpr size_t kSegmentBytes = 256u << 10;
// Segments that may come in while one is passed on.
constexpr size_t kWindow = 4;

std::vector<size_t> Offsets(std::span<const size_t> counts) {
  std::vector<size_t> offsets(counts.size(), 0);
  for (size_t i = 1; i < counts.size(); ++i) {
    offsets[i] = offsets[i - 1] + counts[i - 1];
  }
  return offsets;
}

}  // namespace

void MeshAllgatherv(const GroupLinks& links,
                    const void* in,
                    void* out,
                    std::span<const size_t> byte_counts) {
  const std::vector<size_t> offsets = Offsets(byte_counts);
  auto* base = static_cast<char*>(out);
  const auto self = static_cast<size_t>(links.self());
  Batch batch(links);
  for (int d = 1; d < links.size(); ++d) {
    batch.Send(links.After(d), in, byte_counts[self]);
  }
  for (int d = 1; d < links.size(); ++d) {
    const auto member = static_cast<size_t>(links.Before(d));
    batch.Receive(links.Before(d), base + offsets[member], byte_counts[member]);
  }
  if (byte_counts[self] > 0 && in != base + offsets[self]) {
    std::memcpy(base + offsets[self], in, byte_counts[self]);
  }
  batch.WaitAll();
}

void MeshAlltoallv(const GroupLinks& links,
                   const void* in,
                   std::span<const size_t> send_bytes,
                   void* out,
                   std::span<const size_t> receive_bytes) {
  const std::vector<size_t> froms = Offsets(send_bytes);
  const std::vector<size_t> tos = Offsets(receive_bytes);
  const auto* source = static_cast<const char*>(in);
  auto* target = static_cast<char*>(out);
  const auto self = static_cast<size_t>(links.self());
  Batch batch(links);
  for (int d = 1; d < links.size(); ++d) {
    const auto member = static_cast<size_t>(links.After(d));
    batch.Send(links.After(d), source + froms[member], send_bytes[member]);
  }
  for (int d = 1; d < links.size(); ++d) {
    const auto member = static_cast<size_t>(links.Before(d));
    batch.Receive(links.Before(d), target + tos[member], receive_bytes[member]);
  }
  if (send_bytes[self] > 0) {
    std::memcpy(target + tos[self], source + froms[self], send_bytes[self]);
  }
  batch.WaitAll();
}

void MeshBroadcastChain(const GroupLinks& links, void* inout, size_t bytes, int root) {
  auto* base = static_cast<char*>(inout);
  const size_t segments = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  const bool is_first = links.self() == root;
  const bool is_last = links.After(1) == root;
  const auto size_of = [&](size_t segment) {
    return std::min(kSegmentBytes, bytes - segment * kSegmentBytes);
  };
  Batch batch(links);
  const auto expect = [&](size_t segment) {
    if (!is_first && segment < segments) {
      batch.Receive(links.Before(1), base + segment * kSegmentBytes, size_of(segment));
    }
  };
  for (size_t segment = 0; segment < kWindow; ++segment) {
    expect(segment);
  }
  for (size_t segment = 0; segment < segments; ++segment) {
    if (!is_first) {
      batch.WaitReceived(segment + 1);
      expect(segment + kWindow);
    }
    if (!is_last) {
      batch.Send(links.After(1), base + segment * kSegmentBytes, size_of(segment));
    }
  }
  batch.WaitAll();
}

}  // namespace muster::worker
