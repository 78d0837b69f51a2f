#include "launcher/driver/output_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "common/process.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A writer whose console are two pipes.
class Console {
 public:
  explicit Console(OutputWriter::Options options = {}) {
    options.stdout_fd = out_.write.get();
    options.stderr_fd = err_.write.get();
    writer_ = std::make_unique<OutputWriter>(std::move(options));
    REQUIRE(writer_->Start().ok());
  }

  OutputWriter& writer() { return *writer_; }
  void CloseReadEnd() { out_.read.Reset(); }

  // Call after Finish: then all that was written is in the pipes.
  std::string Out() { return Rest(out_); }
  std::string Err() { return Rest(err_); }

  // The reader of a console that is not blocked.
  std::future<std::string> ReadOutUntilClosed() {
    return std::async(std::launch::async, [fd = out_.read.get()] { return ReadAll(fd); });
  }
  void CloseWriteEnds() {
    writer_.reset();
    out_.write.Reset();
    err_.write.Reset();
  }

 private:
  static std::string ReadAll(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = ::read(fd, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }
  std::string Rest(Pipe& pipe) {
    writer_.reset();
    pipe.write.Reset();
    return ReadAll(pipe.read.get());
  }

  Pipe out_ = MakePipe().value();
  Pipe err_ = MakePipe().value();
  std::unique_ptr<OutputWriter> writer_;
};

OutputLines Lines(int32_t rank, std::string text, bool is_stderr = false) {
  return {{9}, {{"127.0.0.1"}, 3}, rank, is_stderr, std::move(text)};
}

// Pushes until the writer takes no more; its console is not read.
size_t Fill(OutputWriter& writer) {
  const std::string text = std::string(9999, 'x') + "\n";
  size_t pushed = 0;
  while (writer.TryPush(Lines(0, text))) {
    pushed += text.size();
  }
  return pushed;
}

TEST_CASE("writer puts the rank before each line, on the stream it came from") {
  Console console;
  CHECK(console.writer().TryPush(Lines(0, "a\nb\n")));
  CHECK(console.writer().TryPush(Lines(12, "c\n", true)));
  CHECK(console.writer().TryPush(Lines(0, "\n")));
  console.writer().Finish(seconds(30));
  CHECK(console.Out() == "[0]<stdout>:a\n[0]<stdout>:b\n[0]<stdout>:\n");
  CHECK(console.Err() == "[12]<stderr>:c\n");
}

TEST_CASE("writer names host and slot while there is no rank") {
  Console console;
  CHECK(console.writer().TryPush(Lines(-1, "early\n")));
  console.writer().Finish(seconds(30));
  CHECK(console.Out() == "[127.0.0.1/3]<stdout>:early\n");
}

TEST_CASE("writer ends a line that has no end") {
  Console console;
  CHECK(console.writer().TryPush(Lines(1, "no end")));
  CHECK(console.writer().TryPush(Lines(2, "next\n")));
  console.writer().Finish(seconds(30));
  CHECK(console.Out() == "[1]<stdout>:no end\n[2]<stdout>:next\n");
}

TEST_CASE("writer puts the time before the rank if asked") {
  OutputWriter::Options options;
  options.timestamp = true;
  options.now = [] {
    std::tm time{};
    time.tm_year = 121;
    time.tm_mon = 5;
    time.tm_mday = 3;
    time.tm_hour = 12;
    time.tm_isdst = -1;
    return std::mktime(&time);
  };
  Console console(options);
  CHECK(console.writer().TryPush(Lines(0, "a\n")));
  console.writer().Finish(seconds(30));
  CHECK(console.Out() == "Thu Jun  3 12:00:00 2021[0]<stdout>:a\n");
}

TEST_CASE("writer forwards a megabyte in order, and lines of several pieces whole") {
  Console console;
  std::future<std::string> reader = console.ReadOutUntilClosed();
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string line = std::to_string(i) + std::string(static_cast<size_t>(i) * 30, 'y');
    expected += "[0]<stdout>:" + line + "\n";
    OutputLines lines = Lines(0, line + "\n");
    while (!console.writer().TryPush(std::move(lines))) {
      std::promise<void> space;
      console.writer().OnSpace([&space] { space.set_value(); });
      space.get_future().wait();
    }
  }
  console.writer().Finish(seconds(30));
  console.CloseWriteEnds();
  CHECK(reader.get() == expected);
}

TEST_CASE("writer with a blocked console takes a bounded amount, and Finish gives up in time") {
  Console console;
  const size_t pushed = Fill(console.writer());
  CHECK(pushed >= kQueuedOutputBytesMax);
  CHECK(pushed < 2 * kQueuedOutputBytesMax);
  console.writer().Finish(milliseconds(20));  // Would never return if it waited for the reader.
  CHECK(console.writer().TryPush(Lines(0, "dropped\n")));
}

TEST_CASE("writer calls back everybody who waits, and then takes what they push") {
  Console console;
  std::atomic<int> called = 0;
  std::atomic<int> taken = 0;
  const auto push = [&] {
    ++called;
    taken += console.writer().TryPush(Lines(0, "x\n")) ? 1 : 0;
  };
  Fill(console.writer());
  console.writer().OnSpace([&] {
    push();
    console.writer().OnSpace(push);
  });
  console.writer().OnSpace(push);
  SECTION("when the console is read") {
    std::future<std::string> reader = console.ReadOutUntilClosed();
    console.writer().Finish(seconds(30));
    console.CloseWriteEnds();
    CHECK(reader.get().size() > kQueuedOutputBytesMax);
  }
  SECTION("when Finish gives up") {
    console.writer().Finish(milliseconds(20));
  }
  CHECK(called == 3);
  CHECK(taken == 3);
}

TEST_CASE("writer calls back at once when there is space already, and after Finish") {
  Console console;
  int called = 0;
  console.writer().OnSpace([&] { ++called; });
  CHECK(called == 1);
  console.writer().Finish(seconds(30));
  console.writer().OnSpace([&] { ++called; });
  CHECK(called == 2);
}

TEST_CASE("writer goes on with the other stream and the files when a pipe is closed") {
  const TemporaryFolder folder;
  OutputWriter::Options options;
  options.directory = folder.Path("logs");
  options.rank_count_max = 4;
  Console console(options);
  console.CloseReadEnd();
  CHECK(console.writer().TryPush(Lines(0, "into nothing\n")));
  CHECK(console.writer().TryPush(Lines(0, "still\n")));
  CHECK(console.writer().TryPush(Lines(0, "error\n", true)));
  console.writer().Finish(seconds(30));
  CHECK(console.Err() == "[0]<stderr>:error\n");
  CHECK(folder.Read("logs/rank.0/stdout") == "into nothing\nstill\n");
  CHECK(folder.Read("logs/rank.0/stderr") == "error\n");
}

TEST_CASE("writer refuses to start with a folder that cannot be made") {
  const TemporaryFolder folder;
  OutputWriter::Options options;
  options.directory = folder.Write("file", "") + "/logs";
  OutputWriter writer(options);
  CHECK_THAT(writer.Start().message(), Catch::Matchers::Contains("--output-filename"));
}

TEST_CASE("last line is one line, and is given up if nobody reads") {
  const Pipe pipe = MakePipe().value();
  WriteLastLine("muster: two\nlines", pipe.write.get());
  char buffer[100] = {};
  CHECK(::read(pipe.read.get(), buffer, sizeof buffer) == 18);
  CHECK(std::string(buffer) == "muster: two lines\n");
  REQUIRE(::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK) == 0);
  while (::write(pipe.write.get(), buffer, sizeof buffer) > 0) {
  }
  REQUIRE(::fcntl(pipe.write.get(), F_SETFL, 0) == 0);
  WriteLastLine("muster: nobody reads", pipe.write.get());  // Returns.
}

}  // namespace
}  // namespace muster::launcher
