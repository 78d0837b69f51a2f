// What a worker prints, in pieces of any size: the lines are the same as of the whole at once.

#include <string>

#include "common/check.h"
#include "fuzz/fuzz_input.h"
#include "launcher/agent/line_splitter.h"

namespace {

void CheckLines(const std::string& lines) {
  MUSTER_CHECK(lines.empty() || lines.back() == '\n', "whole lines");
  MUSTER_CHECK(lines.find('\r') == std::string::npos, "one kind of line end");
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    MUSTER_CHECK(end - begin <= muster::launcher::kLineBytesMax, "lines within the bound");
    begin = end + 1;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using muster::launcher::LineSplitter;
  muster::fuzz::FuzzInput input(data, size);
  // Long lines come of few bytes of input.
  const size_t repeats = input.Below(8) == 0 ? 4000 : 1;
  std::string all;
  std::string in_pieces;
  LineSplitter pieces;
  while (!input.at_end()) {
    const std::string_view piece = input.Piece(1 + input.Below(64));
    std::string text;
    for (size_t i = 0;
         i < repeats && text.size() + all.size() < 4 * muster::launcher::kLineBytesMax;
         ++i) {
      text += piece;
    }
    pieces.Feed(text, in_pieces);
    all += text;
  }
  pieces.Finish(in_pieces);
  LineSplitter whole;
  std::string at_once;
  whole.Feed(all, at_once);
  whole.Finish(at_once);
  MUSTER_CHECK(in_pieces == at_once, "the same lines");
  CheckLines(at_once);
  return 0;
}
