#pragma once

// Membership decides which workers form the current world: events and the time go in, ordered
// effects and a reason in words come out. It does no I/O and owns no thread, lock or clock; the
// same inputs give the same outputs.
//
// Not thread-safe: the driver calls it from its loop thread only.
