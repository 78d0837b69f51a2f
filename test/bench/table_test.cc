#include "bench/table.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "bench/temp_directory.h"

namespace muster::bench {
namespace {

Timing Of(Contestant contestant, const std::string& algorithm, std::vector<int64_t> times) {
  return {.contestant = contestant, .algorithm = algorithm, .times_ns = std::move(times)};
}

Row Example() {
  return {.measured = {.bytes = 65536},
          .ranks = 4,
          .timings = {Of(Contestant::kMuster, "", {9000, 10'000, 50'000}),
                      Of(Contestant::kGloo, "ring", {80'000, 90'000, 95'000}),
                      Of(Contestant::kGloo, "bcube", {30'000, 40'000, 41'000}),
                      Of(Contestant::kMpi, "", {19'000, 20'000, 21'000}),
                      Of(Contestant::kShm, "", {7000, 8000, 9000})}};
}

}  // namespace

TEST_CASE("a row's ratios are those of medians, to the best of the others") {
  const Row row = Example();
  CHECK(BestOf(row, Contestant::kGloo)->algorithm == "bcube");
  CHECK(*Ratio(row, {Contestant::kMpi, Contestant::kShm}) == Approx(1.25));
  CHECK(*Ratio(row, {Contestant::kMpi}) == Approx(0.5));
  CHECK(*Ratio(row, {Contestant::kGloo}) == Approx(0.25));
}

TEST_CASE("a contestant that is absent leaves a gap and no ratio") {
  Row row = Example();
  row.timings.resize(1);
  CHECK(BestOf(row, Contestant::kMpi) == nullptr);
  CHECK_FALSE(Ratio(row, {Contestant::kMpi, Contestant::kShm}));
  const std::string line = TableLine(row, {Contestant::kMuster, Contestant::kMpi});
  CHECK(line == "                64 KiB      10.0         -            -            -");
  row.timings.clear();
  CHECK_FALSE(Ratio(row, {Contestant::kGloo}));
  CHECK(ToJson(row)["muster_to_gloo"].is_null());
}

TEST_CASE("the columns of a table stand under their heads") {
  const std::vector<Contestant> all = {
      Contestant::kMuster, Contestant::kGloo, Contestant::kMpi, Contestant::kShm};
  CHECK(TableHead(all) ==
        "                  size    muster      gloo       gloo's best       mpi       shm"
        " muster/best*  muster/gloo");
  CHECK(TableLine(Example(), all) ==
        "                64 KiB      10.0      40.0             bcube      20.0      8.00"
        "         1.25         0.25");
}

TEST_CASE("times are shown with three digits at least") {
  CHECK(TimeText(0.5) == "0.50");
  CHECK(TimeText(9.876) == "9.88");
  CHECK(TimeText(98.76) == "98.8");
  CHECK(TimeText(123456.7) == "123457");
  CHECK(CaseText({.bytes = 4, .pace = Pace::kBackToBack}) == "4 B, back to back");
}

TEST_CASE("the JSON of a row has every algorithm and what the plot needs") {
  const nlohmann::json json = ToJson(Example());
  CHECK(json["operation"] == "allreduce");
  CHECK(json["bytes"] == 65536);
  CHECK(json["ranks"] == 4);
  CHECK(json["timings"].size() == 5);
  CHECK(json["timings"][2]["algorithm"] == "bcube");
  CHECK(json["timings"][2]["median_us"].get<double>() == Approx(40));
  CHECK(json["timings"][2]["min_us"].get<double>() == Approx(30));
  CHECK(json["muster_to_best_of_mpi_and_shm"].get<double>() == Approx(1.25));
}

TEST_CASE("JSON is written whole or not at all") {
  Result<TempDirectory> folder = TempDirectory::Make();
  const std::string path = folder.value().path() + "/out.json";
  REQUIRE(WriteJson(path, {{"a", 1}}).ok());
  REQUIRE(WriteJson(path, {{"a", 2}}).ok());
  std::ifstream file(path);
  CHECK(nlohmann::json::parse(file)["a"] == 2);
  CHECK(::access((path + ".unfinished").c_str(), F_OK) != 0);
  CHECK_FALSE(WriteJson(folder.value().path() + "/no/such/out.json", {}).ok());
}

}  // namespace muster::bench
