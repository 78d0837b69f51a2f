#include "launcher/agent/line_splitter.h"

#include <catch2/catch.hpp>
#include <initializer_list>

namespace muster::launcher {
namespace {

std::string Split(std::initializer_list<std::string_view> pieces, bool finish = true) {
  LineSplitter splitter;
  std::string lines;
  for (const std::string_view piece : pieces) {
    splitter.Feed(piece, lines);
  }
  if (finish) {
    splitter.Finish(lines);
  }
  return lines;
}

}  // namespace

TEST_CASE("line splitter gives out whole lines only") {
  CHECK(Split({"a\nb"}, false) == "a\n");
  CHECK(Split({"a\nb"}) == "a\nb\n");
  CHECK(Split({"a", "b", "c\n"}) == "abc\n");
  CHECK(Split({""}) == "");
}

TEST_CASE("line splitter keeps empty lines that a newline ended") {
  CHECK(Split({"\n\na\n"}) == "\n\na\n");
}

TEST_CASE("line splitter takes carriage returns for line ends") {
  CHECK(Split({"10%\r20%\r30%\n"}) == "10%\n20%\n30%\n");
  CHECK(Split({"\r10%\r\r20%"}) == "10%\n20%\n");
}

TEST_CASE("line splitter takes a carriage return and newline for one end, however they come") {
  CHECK(Split({"a\r\nb\r\n"}) == "a\nb\n");
  CHECK(Split({"a\r", "\nb\r", "\n"}) == "a\nb\n");
  CHECK(Split({"\r\n"}) == "\n");
  CHECK(Split({"\r", "\n"}) == "\n");
  CHECK(Split({"a\r\n\r\nb"}) == "a\n\nb\n");
  CHECK(Split({"a\r\n\nb"}) == "a\n\nb\n");
  CHECK(Split({"a\rb\n"}) == "a\nb\n");
}

TEST_CASE("line splitter cuts a line that is too long") {
  const std::string longest(kLineBytesMax, 'x');
  CHECK(Split({longest, "\n"}) == longest + "\n");
  CHECK(Split({longest, "y\n"}) == longest + "\ny\n");
  CHECK(Split({longest + longest + "y"}) == longest + "\n" + longest + "\ny\n");
}

}  // namespace muster::launcher
