#include "common/status.h"

#include <catch2/catch.hpp>
#include <memory>

namespace muster {
namespace {

TEST_CASE("status is ok until it is given a code") {
  CHECK(Status().ok());
  CHECK(Status::Ok().ok());
  const Status failed = Status::Failed("no disk");
  CHECK_FALSE(failed.ok());
  CHECK(failed.code() == StatusCode::kFailed);
  CHECK(failed.message() == "no disk");
  CHECK(Status::Invalid("bad").code() == StatusCode::kInvalid);
}

TEST_CASE("result holds a value or the reason why there is none") {
  const Result<int> seven(7);
  REQUIRE(seven.ok());
  CHECK(seven.value() == 7);
  CHECK(seven.status().ok());

  const Result<int> none(Status(StatusCode::kTimeout, "too late"));
  REQUIRE_FALSE(none.ok());
  CHECK(none.status().code() == StatusCode::kTimeout);
  CHECK(none.status().message() == "too late");
}

TEST_CASE("result hands over a value that cannot be copied") {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(3));
  const std::unique_ptr<int> taken = std::move(result).value();
  CHECK(*taken == 3);
}

}  // namespace
}  // namespace muster
