#pragma once

// CopyBytes: memcpy for chunks that go between tensors and shared memory.
//
// Why not memcpy: from 2 KiB on glibc (2.36, AMD) copies by `rep movsb`, which on Zen 3 is 14 times
// slower where (to - from) mod 4096 is 1 to 31; and malloc puts large tensors 16 bytes behind a
// page's start, where segments have their slots.
//
// Thread-safe: no state.

#include <cstddef>

namespace muster::worker {

/// The ranges do not overlap. Any alignment.
void CopyBytes(void* to, const void* from, size_t bytes);

}  // namespace muster::worker
