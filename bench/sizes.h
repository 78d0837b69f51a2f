#pragma once

// Sizes as users write them: "4", "64KiB", "1MiB,16MiB", "4..256MiB" (in steps of 4 times).
// No state.

#include <cstddef>
#include <string>
#include <vector>

#include "common/status.h"

namespace muster::bench {

/// Multiples of 4, which is one float, up to 4 GiB each; at most 100 of them, in the order given.
Result<std::vector<size_t>> ParseSizes(const std::string& text);

/// "4 B", "64 KiB", "1.5 MiB".
std::string SizeText(size_t bytes);

}  // namespace muster::bench
