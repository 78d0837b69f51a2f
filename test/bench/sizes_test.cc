#include "bench/sizes.h"

#include <catch2/catch.hpp>

namespace muster::bench {

TEST_CASE("sizes are read as lists and ranges") {
  CHECK(ParseSizes("4").value() == std::vector<size_t>{4});
  CHECK(ParseSizes("64KiB,1M,8B").value() == std::vector<size_t>{65536, 1 << 20, 8});
  CHECK(ParseSizes("4..1KiB").value() == std::vector<size_t>{4, 16, 64, 256, 1024});
  CHECK(ParseSizes("4..256MiB").value().back() == size_t{256} << 20);
  CHECK(ParseSizes("4..256MiB").value().size() == 14);
  // The end is a bound: it need not be reached exactly.
  CHECK(ParseSizes("8..100").value() == std::vector<size_t>{8, 32});
  CHECK(ParseSizes("4GiB").value() == std::vector<size_t>{size_t{4} << 30});
}

TEST_CASE("sizes that make no sense are refused with the text that is wrong") {
  for (const char* text : {"",
                           ",",
                           "4,",
                           "x",
                           "-4",
                           "0",
                           "3",
                           "6",
                           "5GiB",
                           "4 KiB",
                           "4TiB",
                           "4..",
                           "..4",
                           "16..4",
                           "1..16",
                           "99999999999999999999",
                           "18446744073709551615G",
                           "4...16",
                           "1.5MiB"}) {
    INFO(text);
    const Result<std::vector<size_t>> sizes = ParseSizes(text);
    REQUIRE_FALSE(sizes.ok());
    CHECK(sizes.status().code() == StatusCode::kInvalid);
  }
  std::string many = "4";
  for (int i = 0; i < 100; ++i) {
    many += ",4";
  }
  CHECK_FALSE(ParseSizes(many).ok());
}

TEST_CASE("sizes are shown as people write them") {
  CHECK(SizeText(4) == "4 B");
  CHECK(SizeText(1023) == "1023 B");
  CHECK(SizeText(65536) == "64 KiB");
  CHECK(SizeText(3 << 19) == "1.5 MiB");
  CHECK(SizeText(size_t{4} << 30) == "4 GiB");
}

}  // namespace muster::bench
