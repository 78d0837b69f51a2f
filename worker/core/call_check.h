#pragma once

// Whether the calls that all ranks made under one name fit together, and if not, why in words. No
// text is longer than kMessageMax. Pure functions.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/core/log_types.h"
#include "worker/core/process_sets.h"

namespace muster::worker {

inline constexpr size_t kMessageMax = 500;

struct CallGroup {
  const Signature* signature;
  const std::vector<uint32_t>* ranks;
};

/// Empty: the calls fit. `groups` has every rank of the set once, and no two equal signatures. The
/// first dimension of an allgather and an alltoall has been set to zero in the signatures.
std::string FindMismatch(std::string_view name,
                         const std::vector<CallGroup>& groups,
                         const ProcessSets& sets);

/// Why no rank may make this call, whatever the others do; empty: it is in order. Of the set only
/// that it exists is assumed.
std::string FindFault(const Signature& signature, const ProcessSets& sets);

/// Whether calls of this kind bring a tensor.
bool HasTensor(OpKind kind);

/// Why an alltoall among so many members cannot be split like this; empty: it can. `rows`: the
/// first dimension. Each rank can tell for itself, and the coordinator looks again.
std::string FindSplitsFault(int64_t rows, std::span<const int64_t> splits, size_t members);

/// Equal parts for an alltoall without splits; nothing: the rows do not divide evenly.
std::optional<std::vector<int64_t>> EqualSplits(int64_t rows, size_t members);

/// The sum of the rows, if a tensor with as many fits into 63 bits of bytes and no number is
/// negative. `signature`: with any first dimension.
std::optional<int64_t> TotalRows(const Signature& signature, std::span<const int64_t> rows);

/// The same for an alltoall's splits of all members: the rows that each receives. Nothing, too, if
/// they are not one row of splits for each member.
std::optional<std::vector<int64_t>> ReceivedRows(const Signature& signature,
                                                 std::span<const int64_t> splits);

/// "rank 3", "ranks 0, 1 and 5-9", sorted, cut short after eight runs.
std::string RankList(std::vector<uint32_t> ranks);

/// The name in quotes, cut short if it is long.
std::string Quoted(std::string_view name);

/// At most `size` bytes of it, with dots at the end if something is missing.
std::string Clip(std::string text, size_t size = kMessageMax);

}  // namespace muster::worker
