#include "worker/control_messages.h"

#include <catch2/catch.hpp>

#include "common/random.h"

namespace muster::worker {
namespace {

std::vector<ControlMessage> Samples() {
  FullRequest full;
  full.name = "grad/layer 1";
  full.signature = {
      OpKind::kAllgather, DType::kBF16, {3, 0, 1'000'000'000'000}, 1, Op::kMax, -2, 0.1, 3e300, 9};
  full.reusable = true;
  full.vote = true;
  full.objection = "no data";
  return {Announce{{"127.0.0.1:80", "[::1]:4711"}},
          Announce{},
          Requests{{full, KnownRequest{77}, FullRequest{"x", {}, false, false, ""}}},
          Bye{true},
          Bye{false},
          AddressTable{{{"127.0.0.1:1"}, {}, {"a", "b"}}},
          Entries{{Execute{{1, "w"}, {4, 0, 6}},
                   Agreed{{0, "v"}, true},
                   BarrierPassed{{2, ""}},
                   Rejected{{0, "w"}, "why"},
                   Unserved{{0, "u"}, "gone"},
                   MemberFinished{3}}}};
}

}  // namespace

TEST_CASE("control message comes back as it went") {
  for (const ControlMessage& message : Samples()) {
    const std::string bytes = Encode(message);
    const Result<ControlMessage> decoded = Decode(bytes);
    REQUIRE(decoded.ok());
    CHECK(decoded.value().index() == message.index());
    CHECK(Encode(decoded.value()) == bytes);
  }
}

TEST_CASE("control message keeps every field of a request") {
  const auto sent = std::get<Requests>(Samples()[2]);
  const auto received = std::get<Requests>(Decode(Encode(sent)).value());
  CHECK(received.requests == sent.requests);
}

TEST_CASE("control message keeps every field of the log") {
  const auto sent = std::get<Entries>(Samples()[6]);
  const auto received = std::get<Entries>(Decode(Encode(sent)).value());
  CHECK(received.entries == sent.entries);
}

TEST_CASE("control message that is cut short or too long is refused") {
  for (const ControlMessage& message : Samples()) {
    const std::string bytes = Encode(message);
    for (size_t size = 0; size < bytes.size(); ++size) {
      CHECK_FALSE(Decode(bytes.substr(0, size)).ok());
    }
    CHECK_FALSE(Decode(bytes + "x").ok());
  }
}

TEST_CASE("control message may hold any bytes without harm") {
  Random random(20);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = Encode(Samples()[random.Below(7)]);
    for (uint64_t i = 0; i <= random.Below(4); ++i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    bytes.resize(bytes.size() - random.Below(3));
    const Result<ControlMessage> decoded = Decode(bytes);
    if (decoded.ok()) {
      // What is understood is understood in full.
      CHECK(Decode(Encode(decoded.value())).ok());
    }
  }
}

TEST_CASE("control message that lies about a count costs no memory") {
  std::string bytes = Encode(Announce{});
  bytes.replace(1, 4, "\xff\xff\xff\xff");
  CHECK_FALSE(Decode(bytes).ok());
}

TEST_CASE("control message that announces more than any rank listens at is refused") {
  CHECK(Decode(Encode(Announce{std::vector<std::string>(64, "127.0.0.1:1")})).ok());
  CHECK_FALSE(Decode(Encode(Announce{std::vector<std::string>(65, "127.0.0.1:1")})).ok());
  CHECK_FALSE(Decode(Encode(Announce{{std::string(65, '1')}})).ok());
  CHECK_FALSE(Decode(Encode(AddressTable{{{"127.0.0.1:1"}, {std::string(65, '1')}}})).ok());
}

TEST_CASE("control message with a value outside of its enum is refused") {
  const std::string bytes = Encode(Requests{{FullRequest{"x", {}, false, false, ""}}});
  // type, count, request type, name length, name: the kind and the dtype follow.
  for (const size_t position : {11, 12}) {
    std::string damaged = bytes;
    damaged[position] = '\x40';
    CHECK_FALSE(Decode(damaged).ok());
  }
}

}  // namespace muster::worker
