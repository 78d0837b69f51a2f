#include "common/log.h"

#include <catch2/catch.hpp>

namespace muster {
namespace {

TEST_CASE("log takes the levels of horovodrun in any case of letters") {
  for (const char* level : {"TRACE", "debug", "Info", "WARNING", "ERROR", "FATAL"}) {
    CHECK(InitLog("test", level).ok());
  }
  REQUIRE(InitLog("test", "ERROR").ok());
  CHECK(spdlog::default_logger()->level() == spdlog::level::err);
  REQUIRE(InitLog("test", "").ok());
  CHECK(spdlog::default_logger()->level() == spdlog::level::warn);
}

TEST_CASE("log refuses a level that does not exist and names those that do") {
  const Status status = InitLog("test", "LOUD");
  REQUIRE(status.code() == StatusCode::kInvalid);
  CHECK(status.message().find("'LOUD'") != std::string::npos);
  CHECK(status.message().find("WARNING") != std::string::npos);
}

}  // namespace
}  // namespace muster
