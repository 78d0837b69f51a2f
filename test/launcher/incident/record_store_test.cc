#include "launcher/incident/record_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

bool Exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

// Makes a record that looks as if it had been started at `second`.
UniqueFd Make(const TemporaryFolder& folder, const std::string& job, time_t second) {
  Result<UniqueFd> record = CreateRecord(folder.Path("jobs"), job);
  REQUIRE(record.ok());
  const timespec times[2] = {{second, 0}, {second, 0}};
  REQUIRE(::utimensat(AT_FDCWD, folder.Path("jobs/" + job).c_str(), times, 0) == 0);
  return std::move(record).value();
}

TEST_CASE("records are for their owner alone") {
  const TemporaryFolder folder;
  REQUIRE(CreateRecord(folder.Path("deep/jobs"), "ab").ok());
  CHECK(ModeOf(folder.Path("deep")) == 0700);
  CHECK(ModeOf(folder.Path("deep/jobs")) == 0700);
  CHECK(ModeOf(folder.Path("deep/jobs/ab")) == 0700);
  CHECK(ModeOf(folder.Path("deep/jobs/ab/incidents.jsonl")) == 0600);
}

TEST_CASE("a folder that cannot be made is an error that names it") {
  const TemporaryFolder folder;
  folder.Write("file", "");
  const Result<UniqueFd> record = CreateRecord(folder.Path("file/jobs"), "ab");
  REQUIRE_FALSE(record.ok());
  CHECK(record.status().message().find(folder.Path("file")) != std::string::npos);
}

TEST_CASE("a record tells whether its driver lives") {
  const TemporaryFolder folder;
  UniqueFd record = Make(folder, "ab", 1);
  const std::string path = folder.Path("jobs/ab/incidents.jsonl");
  CHECK(DriverOf(path) == DriverState::kRuns);
  record.Reset();
  CHECK(DriverOf(path) == DriverState::kGone);
  CHECK(DriverOf(folder.Path("jobs/none")) == DriverState::kUnknown);
}

TEST_CASE("the oldest records of jobs that are over make way, and nothing else") {
  const TemporaryFolder folder;
  const UniqueFd running = Make(folder, "oldest", 1);
  Make(folder, "old", 2);
  Make(folder, "crowded", 3);
  folder.Write("jobs/crowded/notes", "mine");
  Make(folder, "crowded", 3);  // Sets the time again, which the notes have changed.
  Make(folder, "new", 4);
  Make(folder, "newest", 5);
  REQUIRE(::mkdir(folder.Path("jobs/stranger").c_str(), 0700) == 0);
  RemoveOldRecords(folder.Path("jobs"), 2);
  CHECK(Exists(folder.Path("jobs/newest/incidents.jsonl")));
  CHECK(Exists(folder.Path("jobs/new/incidents.jsonl")));
  CHECK(Exists(folder.Path("jobs/oldest/incidents.jsonl")));
  CHECK_FALSE(Exists(folder.Path("jobs/old")));
  CHECK(Exists(folder.Path("jobs/crowded/notes")));
  CHECK(Exists(folder.Path("jobs/stranger")));
}

TEST_CASE("a record is found by id, by its beginning, by path, or as the newest") {
  const TemporaryFolder folder;
  Make(folder, "ab12", 5);
  Make(folder, "ab34", 9);
  Make(folder, "cd56", 7);
  const std::string jobs = folder.Path("jobs");
  const auto path = [&](const std::string& job) { return jobs + "/" + job + "/incidents.jsonl"; };
  CHECK(FindRecord(jobs, "").value() == path("ab34"));
  CHECK(FindRecord(jobs, "ab12").value() == path("ab12"));
  CHECK(FindRecord(jobs, "c").value() == path("cd56"));
  CHECK(FindRecord("", jobs + "/ab12").value() == path("ab12"));
  CHECK(FindRecord("", path("ab12")).value() == path("ab12"));
}

TEST_CASE("a record that is not found is an error that says what there is") {
  const TemporaryFolder folder;
  const std::string jobs = folder.Path("jobs");
  CHECK(FindRecord(jobs, "").status().message().find("no records of jobs in " + jobs) == 0);
  Make(folder, "ab12", 5);
  Make(folder, "ab34", 9);
  CHECK(FindRecord(jobs, "ef").status().message() ==
        "no job ef in " + jobs + "; the newest of the 2 there is ab34");
  CHECK(FindRecord(jobs, "ab").status().message() == "ab is the beginning of 2 jobs: ab34, ab12");
  CHECK(FindRecord(jobs, "./none").status().message() == "no record at ./none");
}

TEST_CASE("a record is read whole") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("record", std::string(100'000, 'x'));
  CHECK(ReadRecord(path).value() == std::string(100'000, 'x'));
  CHECK_FALSE(ReadRecord(folder.Path("none")).ok());
}

}  // namespace
}  // namespace muster::launcher
