#include "bench/order.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <string>

namespace muster::bench {

TEST_CASE("an order survives its text") {
  const Order order{.operation = Operation::kReducescatter,
                    .bytes = size_t{4} << 30,
                    .tensors = 500,
                    .iterations = kIterationsMax,
                    .warmups = 2,
                    .pace = Pace::kBackToBack,
                    .algorithm = "ring",
                    .offset = 64};
  const Order read = ParseOrder(ToText(order)).value();
  CHECK(read.operation == order.operation);
  CHECK(read.bytes == order.bytes);
  CHECK(read.tensors == order.tensors);
  CHECK(read.iterations == order.iterations);
  CHECK(read.warmups == order.warmups);
  CHECK(read.pace == order.pace);
  CHECK(read.algorithm == order.algorithm);
  CHECK(read.offset == order.offset);
}

TEST_CASE("a report and a hello survive their text") {
  const Report report{.error = "a \"quoted\" error\n\xff", .times_ns = {1, 1'000'000'000'000}};
  const Report read = ParseReport(ToText(report)).value();
  CHECK(read.error.find("\"quoted\" error\n") != std::string::npos);
  CHECK(read.times_ns == report.times_ns);
  const Hello hello = ParseHello(ToText(Hello{.rank = 3, .size = 8})).value();
  CHECK(hello.rank == 3);
  CHECK(hello.size == 8);
}

TEST_CASE("messages that are none are errors") {
  for (const char* text : {"", "{", "null", "[]", "{}", "17", R"({"rank":"x","size":1})"}) {
    INFO(text);
    CHECK_FALSE(ParseOrder(text).ok());
    CHECK_FALSE(ParseReport(text).ok());
    CHECK_FALSE(ParseHello(text).ok());
  }
  Order order;
  order.iterations = 0;
  CHECK_FALSE(ParseOrder(ToText(order)).ok());
  order.iterations = kIterationsMax + 1;
  CHECK_FALSE(ParseOrder(ToText(order)).ok());
  order.iterations = 1;
  order.tensors = 0;
  CHECK_FALSE(ParseOrder(ToText(order)).ok());
}

TEST_CASE("the longest report fits into a packet") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  // An hour per iteration.
  const Report report{.error = {},
                      .times_ns = std::vector<int64_t>(kIterationsMax, 3'600'000'000'000)};
  REQUIRE(Send(here.get(), ToText(report)).ok());
  CHECK(ParseReport(Receive(there.get()).value()).value().times_ns == report.times_ns);
  REQUIRE(Send(here.get(), std::string(140'000, 'x')).ok());
  CHECK(Receive(there.get()).status().code() == StatusCode::kFailed);
  there.Reset();
  CHECK_FALSE(Send(here.get(), "x").ok());
  CHECK(Receive(here.get()).status().code() == StatusCode::kUnavailable);
}

TEST_CASE("names of operations are read and refused") {
  for (const std::string& name : OperationNames()) {
    CHECK(Name(ParseOperation(name).value()) == name);
  }
  CHECK_FALSE(ParseOperation("allreduce ").ok());
  CHECK_FALSE(ParseOperation("").ok());
}

}  // namespace muster::bench
