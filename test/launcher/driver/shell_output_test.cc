#include "launcher/driver/shell_output.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string_view>
#include <vector>

#include "common/process.h"
#include "test/support/loop_awaiter.h"

namespace muster::launcher {
namespace {

using Lines = std::vector<std::string>;

class Reader {
 public:
  Reader() : pipe_(MakePipe().value()), awaiter_(loop_) {
    output_ = std::make_unique<ShellOutput>(
        loop_, std::move(pipe_.read), [this](const std::string& line) {
          lines.push_back(line);
          awaiter_.Changed();
        });
  }

  void Write(std::string_view text) {
    REQUIRE(::write(pipe_.write.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }
  void CloseWriter() { pipe_.write.Reset(); }
  bool AwaitLines(size_t count) {
    return awaiter_.Await([&] { return lines.size() >= count; });
  }
  ShellOutput& output() { return *output_; }

  Lines lines;

 private:
  Loop loop_;
  Pipe pipe_;
  LoopAwaiter awaiter_;
  std::unique_ptr<ShellOutput> output_;
};

Lines LinesOf(std::string_view text) {
  Reader reader;
  reader.Write(text);
  reader.CloseWriter();
  reader.output().Finish();
  return reader.lines;
}

TEST_CASE("shell output gives out lines as they come, however they are cut") {
  Reader reader;
  reader.Write("one\ntw");
  CHECK(reader.AwaitLines(1));
  reader.Write("o\r\nthree\n");
  CHECK(reader.AwaitLines(3));
  CHECK(reader.lines == Lines{"one", "two", "three"});
}

TEST_CASE("shell output at the end takes what is left, though others hold the pipe open") {
  Reader reader;
  reader.Write("one\nlast, without an end");
  reader.output().Finish();
  CHECK(reader.lines == Lines{"one", "last, without an end"});
  reader.output().Finish();
  CHECK(reader.lines.size() == 2);
}

TEST_CASE("shell output holds no orders for a terminal, and no empty lines") {
  CHECK(LinesOf("\n \n\x1b[31mred\x07\t!  \n\x7f\x9b\xc2\x9b\n") == Lines{"?[31mred? !", "????"});
  CHECK(LinesOf("gr\xc3\xbc\xc3\x9f\n") == Lines{"gr\xc3\xbc\xc3\x9f"});
}

TEST_CASE("shell output cuts long lines between two characters") {
  const Lines lines =
      LinesOf(std::string(kShellLineBytesMax, 'x') + "\n" +
              std::string(kShellLineBytesMax - 4, 'x') + "\xc3\xbc\xc3\xbc\xc3\xbc\n");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == std::string(kShellLineBytesMax, 'x'));
  CHECK(lines[1] == std::string(kShellLineBytesMax - 4, 'x') + "...");
}

TEST_CASE("shell output remembers the last whole lines") {
  Reader reader;
  CHECK(reader.output().last_words().empty());
  reader.Write("one\ntwo; and a half\n");
  CHECK(reader.AwaitLines(2));
  CHECK(reader.output().last_words() == "one; two; and a half");
  const std::string fits(kLastWordsBytesMax - std::string("two; and a half; ").size(), 'x');
  reader.Write(fits + "\n");
  CHECK(reader.AwaitLines(3));
  CHECK(reader.output().last_words() == "two; and a half; " + fits);
  reader.Write("y\n");
  CHECK(reader.AwaitLines(4));
  CHECK(reader.output().last_words() == fits + "; y");
  reader.Write(std::string(kLastWordsBytesMax + 1, 'z') + "\n");
  CHECK(reader.AwaitLines(5));
  CHECK(reader.output().last_words() == std::string(kLastWordsBytesMax - 3, 'z') + "...");
}

}  // namespace
}  // namespace muster::launcher
