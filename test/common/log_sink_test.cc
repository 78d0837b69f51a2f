#include "common/log_sink.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "common/process.h"

namespace muster {
namespace {

std::string Drain(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  char buffer[4096];
  for (ssize_t size = 0; (size = ::read(fd, buffer, sizeof buffer)) > 0;) {
    all.append(buffer, static_cast<size_t>(size));
  }
  return all;
}

TEST_CASE("log sink writes whole lines") {
  Pipe pipe = MakePipe().value();
  spdlog::logger logger("test", std::make_shared<LogSink>(pipe.write.get()));
  logger.set_pattern("%v");
  logger.warn("one");
  logger.warn(std::string(10000, 'x'));
  const std::string text = Drain(pipe.read.get());
  CHECK(text.substr(0, 4) == "one\n");
  CHECK(text.size() == 4 + 4096);
  CHECK(text.substr(text.size() - 5) == "x...\n");
}

TEST_CASE("log sink drops lines instead of waiting, and says so") {
  Pipe pipe = MakePipe().value();
  spdlog::logger logger("test", std::make_shared<LogSink>(pipe.write.get()));
  logger.set_pattern("%v");
  const std::string line(1000, 'y');
  for (int i = 0; i < 1000; ++i) {
    logger.warn(line);  // Far more than a pipe holds: a sink that waits would hang here.
  }
  const std::string first = Drain(pipe.read.get());
  CHECK(first.size() % 1001 == 0);
  const size_t kept = first.size() / 1001;
  CHECK(kept < 1000);
  logger.warn("after");
  CHECK(Drain(pipe.read.get()) == "muster: " + std::to_string(1000 - kept) +
                                      " log lines were dropped: nobody took them\nafter\n");
}

TEST_CASE("log sink survives a closed reader") {
  Pipe pipe = MakePipe().value();
  pipe.read.Reset();
  ::signal(SIGPIPE, SIG_IGN);
  spdlog::logger logger("test", std::make_shared<LogSink>(pipe.write.get()));
  logger.warn("nobody hears this");
  CHECK(::fcntl(pipe.write.get(), F_GETFD) >= 0);
}

}  // namespace
}  // namespace muster
