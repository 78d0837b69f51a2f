#pragma once

// OutputLines: what one worker has said, on its way from its agent to the console and the files.

#include <cstdint>
#include <string>

#include "common/ids.h"

namespace muster::launcher {

/// Whole lines of one worker, each with its newline.
struct OutputLines {
  Incarnation incarnation;
  SlotId slot;
  int32_t rank = -1;  // -1: no world yet.
  bool is_stderr = false;
  std::string lines;
};

}  // namespace muster::launcher
