#include "launcher/agent/worker_environment.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

bool Has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::find(environment.begin(), environment.end(), entry) != environment.end();
}

}  // namespace

TEST_CASE("worker environment puts the worker's variables over those of the job") {
  v1::Welcome job;
  (*job.mutable_environment())["HOME"] = "/home/someone";
  (*job.mutable_environment())["HOROVOD_RANK"] = "99";
  (*job.mutable_environment())["MUSTER_JOB"] = "an outer job";
  v1::Placement placement;
  placement.set_rank(3);
  placement.set_size(8);
  placement.set_local_rank(1);
  placement.set_local_size(2);
  placement.set_cross_rank(1);
  placement.set_cross_size(4);
  const std::vector<std::string> environment =
      WorkerEnvironment(job, {"host-a", "job", "/tmp/x", "key", {17}, 1}, placement);
  for (const char* entry : {"HOME=/home/someone",
                            "HOROVOD_RANK=3",
                            "HOROVOD_SIZE=8",
                            "HOROVOD_LOCAL_RANK=1",
                            "HOROVOD_LOCAL_SIZE=2",
                            "HOROVOD_CROSS_RANK=1",
                            "HOROVOD_CROSS_SIZE=4",
                            "HOROVOD_HOSTNAME=host-a",
                            "MUSTER_JOB=job",
                            "MUSTER_HOST=host-a",
                            "MUSTER_SLOT=1",
                            "MUSTER_INCARNATION=17",
                            "MUSTER_WORKER_KEY=key",
                            "MUSTER_AGENT_DIRECTORY=/tmp/x",
                            "PYTHONUNBUFFERED=1"}) {
    CHECK(Has(environment, entry));
  }
  CHECK(environment.size() == 15);
  CHECK_FALSE(Has(environment, "HOROVOD_ELASTIC=1"));
  job.set_elastic(true);
  CHECK(Has(WorkerEnvironment(job, {}, placement), "HOROVOD_ELASTIC=1"));
}

}  // namespace muster::launcher
