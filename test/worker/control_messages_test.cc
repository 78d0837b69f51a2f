#include "worker/control_messages.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/random.h"
#include "worker/core/fusion.h"

namespace muster::worker {
namespace {

FullRequest Named(std::string name) {
  FullRequest request;
  request.name = std::move(name);
  return request;
}

FullRequest FullSample() {
  FullRequest full;
  full.name = "grad/layer 1";
  full.signature = {OpKind::kAllgather,
                    DType::kBF16,
                    {3, 0, 1'000'000'000'000},
                    1,
                    Op::kMax,
                    -2,
                    0.1,
                    3e300,
                    9,
                    {-1, 0, 70'000},
                    {"the group", 4'000'000'000, 17}};
  full.splits = {5, -1, INT64_MAX};
  full.reusable = true;
  full.vote = true;
  full.objection = "no data";
  full.small = std::string("\0\xff data", 7);
  return full;
}

std::vector<LogEntry> EntrySamples() {
  const Signature signature = FullSample().signature;
  return {
      Execute{3,
              {{{1, "w", 3}, {4, 0, 6}, {}}, {{2, "", 3}, {}, {signature}}, {{0, "v", 3}, {}, {}}}},
      Execute{},
      SmallResult{{5, "", 2}, std::string("\0\1", 2)},
      Agreed{{0, "v", -4}, true},
      BarrierPassed{{2, "", 0}},
      AllJoined{{0, "join.noname", 0}, 7},
      SetAdded{{0, "add", 0}, 12, {0, 5, 9}},
      SetRemoved{{0, "remove", 0}, 12},
      Rejected{{0, "w", 1}, "why"},
      Unserved{{0, "u", INT32_MAX}, "gone"},
      MemberFinished{3}};
}

std::vector<ControlMessage> Samples() {
  return {Announce{{"127.0.0.1:80", "[::1]:4711"},
                   UINT64_MAX - 1,
                   4'000'000'000,
                   true,
                   {{1, {7, UINT64_MAX}}, {5, {}}},
                   6},
          Announce{},
          Requests{{FullSample(), KnownRequest{77, "xyz"}, Named("x"), KnownRequest{1, ""}}},
          Bye{true},
          Bye{false},
          AddressTable{{{"127.0.0.1:1"}, {}, {"a", "b"}},
                       {10, UINT64_MAX, 0},
                       {0, 1, 1},
                       BackendKind::kHierarchical,
                       {{3, {10, 0}}},
                       4},
          Entries{EntrySamples()},
          Poke{}};
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

TEST_CASE("control message keeps every field of an announcement") {
  const auto sent = std::get<Announce>(Samples()[0]);
  const auto received = std::get<Announce>(Decode(Encode(sent)).value());
  CHECK(received.addresses == sent.addresses);
  CHECK(received.incarnation == sent.incarnation);
  CHECK(received.host == sent.host);
  CHECK(received.has_segment == sent.has_segment);
  CHECK(received.sets == sent.sets);
  CHECK(received.next_set_id == sent.next_set_id);
}

TEST_CASE("control message keeps every field of the table of addresses") {
  const auto sent = std::get<AddressTable>(Samples()[5]);
  const auto received = std::get<AddressTable>(Decode(Encode(sent)).value());
  CHECK(received.addresses == sent.addresses);
  CHECK(received.incarnations == sent.incarnations);
  CHECK(received.hosts == sent.hosts);
  CHECK(received.backend == sent.backend);
  CHECK(received.sets == sent.sets);
  CHECK(received.next_set_id == sent.next_set_id);
}

TEST_CASE("control message keeps every field of a request") {
  const auto sent = std::get<Requests>(Samples()[2]);
  const auto received = std::get<Requests>(Decode(Encode(sent)).value());
  CHECK(received.requests == sent.requests);
}

TEST_CASE("control message keeps every field of the log") {
  const auto sent = std::get<Entries>(Samples()[6]);
  const auto received = std::get<Entries>(Decode(Encode(sent)).value());
  REQUIRE(received.entries.size() == sent.entries.size());
  for (size_t i = 0; i < sent.entries.size(); ++i) {
    INFO("entry " << i);
    CHECK(received.entries[i] == sent.entries[i]);
  }
}

TEST_CASE("control message of each kind has the bytes that it always had") {
  const auto hex = [](const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) {
      static constexpr char kDigits[] = "0123456789abcdef";
      text += kDigits[static_cast<unsigned char>(byte) >> 4];
      text += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
  };
  CHECK(hex(Encode(Announce{{"h:1"}, 2, 3, true, {{4, {5}}}, 6})) ==
        "00"
        "01000000"
        "03000000683a31"
        "0200000000000000"
        "03000000"
        "01"
        "01000000"
        "04000000"
        "010000000500000000000000"
        "06000000");
  CHECK(hex(Encode(Requests{{KnownRequest{7, "d"}}})) ==
        "01"
        "01000000"
        "01"
        "07000000"
        "0100000064");
  CHECK(hex(Encode(Bye{true})) == "0201");
  CHECK(hex(Encode(AddressTable{{{}}, {8}, {9}, BackendKind::kGloo, {}, 1})) ==
        "03"
        "01000000"
        "00000000"
        "010000000800000000000000"
        "0100000009000000"
        "02"
        "00000000"
        "01000000");
  CHECK(hex(Encode(Entries{{MemberFinished{2}}})) ==
        "04"
        "01000000"
        "09"
        "02000000");
  CHECK(hex(Encode(Entries{{Execute{1, {{{2, "w", 1}, {3}, {}}}}}})) ==
        "04"
        "01000000"
        "00"
        "01000000"
        "01000000"
        "02000000"
        "0100000077"
        "010000000300000000000000"
        "00");
  CHECK(hex(Encode(Poke{})) == "05");
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
  const std::vector<ControlMessage> samples = Samples();
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = Encode(samples[random.Below(samples.size())]);
    for (uint64_t i = 0; i <= random.Below(4); ++i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    bytes.resize(bytes.size() - std::min<size_t>(bytes.size(), random.Below(3)));
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
  const auto is_read = [](std::vector<std::string> addresses) {
    Announce announce;
    announce.addresses = addresses;
    AddressTable table;
    table.addresses = {{"127.0.0.1:1"}, std::move(addresses)};
    table.incarnations = {1, 2};
    table.hosts = {0, 0};
    const bool ok = Decode(Encode(announce)).ok();
    CHECK(Decode(Encode(table)).ok() == ok);
    return ok;
  };
  CHECK(is_read(std::vector<std::string>(64, "127.0.0.1:1")));
  CHECK_FALSE(is_read(std::vector<std::string>(65, "127.0.0.1:1")));
  CHECK(is_read({std::string(64, '1')}));
  CHECK_FALSE(is_read({std::string(65, '1')}));
}

TEST_CASE("control message whose lists do not have one item for each rank is refused") {
  const AddressTable whole{{{}, {}}, {1, 2}, {0, 0}, BackendKind::kShm, {}, 1};
  CHECK(Decode(Encode(whole)).ok());
  AddressTable table = whole;
  table.addresses.pop_back();
  CHECK_FALSE(Decode(Encode(table)).ok());
  table = whole;
  table.incarnations.push_back(3);
  CHECK_FALSE(Decode(Encode(table)).ok());
  table = whole;
  table.hosts.pop_back();
  CHECK_FALSE(Decode(Encode(table)).ok());
}

TEST_CASE("control message with a value outside of its enum is refused") {
  const std::string bytes = Encode(Requests{{Named("x")}});
  // type, count, request type, name length, name: the kind and the dtype follow.
  for (const size_t position : {11, 12}) {
    std::string damaged = bytes;
    damaged[position] = '\x40';
    CHECK_FALSE(Decode(damaged).ok());
  }
  std::string table = Encode(AddressTable{});
  REQUIRE(table.size() == 22);
  table[13] = 3;
  CHECK_FALSE(Decode(table).ok());
  CHECK_FALSE(Decode("\x06").ok());
  CHECK_FALSE(Decode(Encode(Poke{}) + '\0').ok());
}

TEST_CASE("control message with a request of no name is refused") {
  CHECK_FALSE(Decode(Encode(Requests{{Named("")}})).ok());
}

TEST_CASE("control message with more dimensions than tensors have is refused") {
  FullRequest request = Named("x");
  request.signature.shape.assign(64, 1);
  CHECK(Decode(Encode(Requests{{request}})).ok());
  request.signature.shape.push_back(1);
  CHECK_FALSE(Decode(Encode(Requests{{request}})).ok());
  CHECK_FALSE(Decode(Encode(Entries{{Execute{0, {{{0, "w"}, {}, {request.signature}}}}}})).ok());
}

// ---------------------------------------------------------------- in pieces

namespace {

/// Everything in the messages, in order; none is larger than it may be unless it holds one thing.
template <class Message, class Thing>
std::vector<Thing> Joined(const std::vector<std::string>& messages,
                          std::vector<Thing> Message::*things,
                          size_t bytes_max) {
  std::vector<Thing> all;
  for (const std::string& bytes : messages) {
    const auto decoded = Decode(bytes);
    REQUIRE(decoded.ok());
    const auto& piece = std::get<Message>(decoded.value()).*things;
    REQUIRE_FALSE(piece.empty());
    CHECK((bytes.size() <= bytes_max || piece.size() == 1));
    all.insert(all.end(), piece.begin(), piece.end());
  }
  return all;
}

}  // namespace

TEST_CASE("control messages keep entries in order in as few messages as hold them") {
  std::vector<LogEntry> entries;
  for (int i = 0; i < 7; ++i) {
    for (const LogEntry& entry : EntrySamples()) {
      entries.push_back(entry);
    }
  }
  for (const size_t bytes_max : {0, 1, 50, 200, 1000, 5000, 1 << 20}) {
    const auto messages = EncodeEntries(entries, bytes_max);
    CHECK(Joined(messages, &Entries::entries, bytes_max) == entries);
    for (size_t i = 1; i < messages.size(); ++i) {
      // The first entry of a message would not have fitted into the one before.
      const auto decoded = Decode(messages[i]);
      const LogEntry& first = std::get<Entries>(decoded.value()).entries.front();
      CHECK(messages[i - 1].size() + EncodedSize(first) - 5 > bytes_max);
    }
  }
  CHECK(EncodeEntries(entries, 1 << 20).front() == Encode(Entries{entries}));
  CHECK(EncodeEntries({}, 100).empty());
}

TEST_CASE("control messages keep requests in order in as few messages as hold them") {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 500; ++i) {
    requests.push_back(KnownRequest{i, std::string(i % 7, 'x')});
    requests.push_back(Named(std::string(1 + i % 30, 'n')));
  }
  for (const size_t bytes_max : {0, 100, 1000, 64 << 10}) {
    CHECK(Joined(EncodeRequests(requests, bytes_max), &Requests::requests, bytes_max) == requests);
  }
  CHECK(EncodeRequests(requests, 1 << 20).front() == Encode(Requests{requests}));
  CHECK(EncodeRequests({}, 100).empty());
}

TEST_CASE("control messages tell how large one of a thing is") {
  for (const LogEntry& entry : EntrySamples()) {
    CHECK(EncodedSize(entry) == Encode(Entries{{entry}}).size());
  }
  CHECK(EncodedSize(Request(FullSample())) == Encode(Requests{{FullSample()}}).size());
  // What the ring is made for: known operations by the thousand.
  CHECK(EncodedSize(Request(KnownRequest{1, ""})) == 14);
}

TEST_CASE("control message of one fused operation stays within what the sequencer was told") {
  const size_t limit = 1000;
  LogTail tail(1 << 30, limit);
  for (int i = 0; i < 200; ++i) {
    DataOperation operation;
    operation.item.key.name = std::string(static_cast<size_t>(1 + i % 50), 'n');
    operation.name_bytes = operation.item.key.name.size();
    if (i % 3 == 0) {
      Signature signature;
      signature.shape.assign(static_cast<size_t>(i % 5), 7);
      signature.group.name = std::string(static_cast<size_t>(i % 11), 'g');
      operation.item.joined = {signature};
    }
    tail.Append(operation);
  }
  size_t largest = 0;
  for (const LogEntry& entry : tail.Take()) {
    largest = std::max(largest, EncodedSize(entry));
  }
  CHECK(largest <= limit);
  CHECK(largest > limit / 2);
}

}  // namespace muster::worker
