// What a remote shell says: any bytes, in pieces of any size, become short lines that a terminal
// can show.

#include <unistd.h>

#include <string>
#include <vector>

#include "common/check.h"
#include "common/process.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/loop_turns.h"
#include "launcher/driver/shell_output.h"

namespace muster::launcher {
namespace {

constexpr size_t kRepeatsMax = 200;  // Long lines come of few bytes of input.

void CheckLine(const std::string& line) {
  MUSTER_CHECK(!line.empty() && line.size() <= kShellLineBytesMax, "a line within the bound");
  for (const char c : line) {
    MUSTER_CHECK(static_cast<uint8_t>(c) >= ' ' && c != '\x7f', "an order to a terminal");
  }
}

void Run(fuzz::FuzzInput input) {
  Loop loop;
  Pipe pipe = MakePipe().value();
  size_t lines = 0;
  ShellOutput output(loop, std::move(pipe.read), [&](const std::string& line) {
    CheckLine(line);
    ++lines;
  });
  while (!input.at_end()) {
    const size_t repeats = input.Below(8) == 0 ? kRepeatsMax : 1;
    const std::string_view piece = input.Piece(1 + input.Below(64));
    std::string text;
    for (size_t i = 0; i < repeats; ++i) {
      text += piece;
    }
    MUSTER_CHECK_EQ(::write(pipe.write.get(), text.data(), text.size()),
                    static_cast<ssize_t>(text.size()));
    while (text.size() > 0) {
      fuzz::TakeTurns(loop, 1);  // Reads some 4 KiB in a turn.
      text.resize(text.size() > 4096 ? text.size() - 4096 : 0);
    }
  }
  output.Finish();  // The writer's end is still open, as a daemon would hold it.
  const std::string words = output.last_words();
  MUSTER_CHECK(words.size() <= kLastWordsBytesMax, "last words within the bound");
  MUSTER_CHECK_EQ(words.empty(), lines == 0);
}

}  // namespace
}  // namespace muster::launcher

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::launcher::Run({data, size});
  return 0;
}
