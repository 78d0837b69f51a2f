#include "launcher/agent/worker_environment.h"

#include <map>

#include "common/worker_page.h"

namespace muster::launcher {

std::vector<std::string> WorkerEnvironment(const v1::Welcome& job,
                                           const WorkerIdentity& worker,
                                           const v1::Placement& provisional) {
  std::map<std::string, std::string> all(job.environment().begin(), job.environment().end());
  all["HOROVOD_HOSTNAME"] = worker.host;
  all["HOROVOD_RANK"] = std::to_string(provisional.rank());
  all["HOROVOD_SIZE"] = std::to_string(provisional.size());
  all["HOROVOD_LOCAL_RANK"] = std::to_string(provisional.local_rank());
  all["HOROVOD_LOCAL_SIZE"] = std::to_string(provisional.local_size());
  all["HOROVOD_CROSS_RANK"] = std::to_string(provisional.cross_rank());
  all["HOROVOD_CROSS_SIZE"] = std::to_string(provisional.cross_size());
  if (job.elastic()) {
    all["HOROVOD_ELASTIC"] = "1";
  }
  all["PYTHONUNBUFFERED"] = "1";
  all[kEnvAgentDirectory] = worker.directory;
  all[kEnvWorkerKey] = worker.key;
  all[kEnvIncarnation] = std::to_string(worker.incarnation.value);
  all[kEnvJob] = worker.job;
  all[kEnvHost] = worker.host;
  all[kEnvSlot] = std::to_string(worker.slot);
  all.erase(kEnvListen);
  for (const std::string& literal : worker.listen) {
    std::string& listen = all[kEnvListen];
    listen += (listen.empty() ? "" : ",") + literal;
  }
  all.erase(kEnvPortRange);
  if (job.port_first() != 0) {
    all[kEnvPortRange] = std::to_string(job.port_first()) + "-" + std::to_string(job.port_last());
  }
  std::vector<std::string> environment;
  environment.reserve(all.size());
  for (const auto& [name, value] : all) {
    environment.push_back(name + "=" + value);
  }
  return environment;
}

}  // namespace muster::launcher
