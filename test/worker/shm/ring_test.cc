#include "worker/shm/ring.h"

#include <catch2/catch.hpp>
#include <deque>
#include <thread>

#include "common/random.h"
#include "test/worker/shm/shm_fixture.h"
#include "worker/shm/bell.h"

namespace muster::worker {
namespace {

constexpr size_t kFrameMax = 1 << 20;

struct Ring {
  explicit Ring(size_t size) : data(size), memory{&words, data.data(), size} {}
  RingWords words{};
  std::vector<char> data;
  RingMemory memory;
};

std::string Frame(Random& random, size_t size) {
  std::string frame(size, '\0');
  for (char& byte : frame) {
    byte = static_cast<char>(random.Next());
  }
  return frame;
}

TEST_CASE("ring is empty when zeroed") {
  Ring ring(64);
  RingReader reader(ring.memory, kFrameMax);
  CHECK_FALSE(reader.HasBytes());
  CHECK(reader.Read().value().data() == nullptr);
  CHECK_FALSE(reader.WriterWaits());
}

TEST_CASE("ring carries frames of every size in order, empty ones too") {
  Ring ring(128);
  RingWriter writer(ring.memory);
  RingReader reader(ring.memory, kFrameMax);
  Random random(1);
  std::deque<std::string> sent;
  for (size_t size = 0; size < 700; ++size) {
    sent.push_back(Frame(random, size));
    CHECK((writer.Write(sent.back()) || !writer.flushed()));
    while (!sent.empty()) {
      const std::string_view got = reader.Read().value();
      if (got.data() == nullptr) {
        REQUIRE_FALSE(writer.flushed());
        CHECK(reader.WriterWaits());
        CHECK_FALSE(reader.WriterWaits());  // Once.
        CHECK(writer.Flush());
        continue;
      }
      REQUIRE(got == sent.front());
      sent.pop_front();
    }
    CHECK(writer.flushed());
    CHECK(writer.queued_bytes() == 0);
  }
}

TEST_CASE("ring says whether the reader has something new") {
  Ring ring(64);
  RingWriter writer(ring.memory);
  CHECK_FALSE(writer.Flush());
  CHECK(writer.Write(std::string(60, 'x')));  // Full to the last byte.
  CHECK(writer.flushed());
  CHECK_FALSE(writer.Write("y"));
  CHECK_FALSE(writer.Flush());
  CHECK(writer.queued_bytes() == 5);
  RingReader reader(ring.memory, kFrameMax);
  CHECK(reader.Read().value().size() == 60);
  CHECK(reader.WriterWaits());
  CHECK(writer.Flush());
  CHECK(writer.flushed());
  CHECK(reader.Read().value() == "y");
}

TEST_CASE("ring keeps frames whole between two threads that wait for each other") {
  const size_t size = GENERATE(64, 4096);
  Ring ring(size);
  BellWord words[2] = {};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  constexpr int kFrames = 3'000;
  const auto results = OnRanks<std::string>(2, [&](int rank) -> std::string {
    Bell own(words[rank]);
    Bell other(words[1 - rank]);
    own.Enter();
    Random random(7);
    RingWriter writer(ring.memory);
    RingReader reader(ring.memory, kFrameMax);
    const auto wait = [&](const auto& ready) { return own.Wait({0, 3}, deadline, ready); };
    for (int i = 0; i < kFrames; ++i) {
      const std::string frame = Frame(random, random.Below(200));
      if (rank == 0) {
        for (bool news = writer.Write(frame);; news = writer.Flush()) {
          if (news) {
            other.Ring();
          }
          if (writer.flushed()) {
            break;
          }
          const uint64_t read = ring.words.read.load();
          if (!wait([&] { return ring.words.read.load() != read || writer.Flush(); })) {
            return "the writer hangs";
          }
          other.Ring();
        }
        continue;
      }
      for (;;) {
        const auto got = reader.Read();
        if (!got.ok()) {
          return got.status().message();
        }
        if (reader.WriterWaits()) {
          other.Ring();
        }
        if (got.value().data() != nullptr) {
          if (got.value() != frame) {
            return "frame " + std::to_string(i) + " differs";
          }
          break;
        }
        if (!wait([&] { return reader.HasBytes(); })) {
          return "the reader hangs";
        }
      }
    }
    return "";
  });
  CHECK(results == std::vector<std::string>{"", ""});
}

TEST_CASE("ring reader refuses what a writer may not do") {
  Ring ring(64);
  RingReader reader(ring.memory, 50);
  SECTION("more bytes than the ring has") {
    ring.words.written = 65;
    CHECK(reader.Read().status().code() == StatusCode::kInvalid);
  }
  SECTION("a count that went back") {
    ring.words.written = static_cast<uint64_t>(-1);
    CHECK(reader.Read().status().code() == StatusCode::kInvalid);
  }
  SECTION("a frame longer than allowed") {
    RingWriter writer(ring.memory);
    writer.Write(std::string(51, 'x'));
    CHECK(reader.Read().status().code() == StatusCode::kInvalid);
  }
  SECTION("none of these: the longest allowed") {
    RingWriter writer(ring.memory);
    writer.Write(std::string(50, 'x'));
    CHECK(reader.Read().value().size() == 50);
  }
}

TEST_CASE("ring writer stays inside whatever the reader claims") {
  Ring ring(64);
  RingWriter writer(ring.memory);
  const uint64_t claimed = GENERATE(1, 63, 1'000'000, static_cast<uint64_t>(-1), uint64_t{1} << 63);
  writer.Write("abc");
  ring.words.read = claimed;
  for (int i = 0; i < 40; ++i) {
    writer.Write(std::string(static_cast<size_t>(i), 'x'));
    writer.Flush();
  }
  SUCCEED("no byte outside, or a sanitizer would say so");
}

}  // namespace
}  // namespace muster::worker
