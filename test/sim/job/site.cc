#include "test/sim/job/site.h"

#include <utility>

#include "common/check.h"
#include "test/sim/job/sim_generation.h"
#include "test/sim/job/sim_worker.h"
#include "test/sim/job/worker_port.h"

namespace muster::sim {
namespace {

Site* g_site = nullptr;

}  // namespace

Site::Site(Universe& of, Observer& observed_by) : universe(of), observer(observed_by), network(of) {
  MUSTER_CHECK(g_site == nullptr, "there is a site already");
  g_site = this;
}

Site::~Site() {
  // Workers first: their programs still hang on all the rest.
  workers.clear();
  machines.clear();
  for (const std::weak_ptr<Connection>& held : connections) {
    if (const std::shared_ptr<Connection> connection = held.lock()) {
      connection->Forget();
    }
  }
  g_site = nullptr;
}

Site& Site::Get() {
  MUSTER_CHECK(g_site != nullptr, "there is no site");
  return *g_site;
}

Machine& Site::AddMachine(const HostId& host, uint32_t slots, bool local, int64_t drift_ppm) {
  const std::string address =
      local ? kDriverMachine : "10.0.0." + std::to_string(2 + machines.size());
  machines[host] = std::make_unique<Machine>(*this, host, slots, local, drift_ppm, address);
  return *machines[host];
}

Machine* Site::Find(const HostId& host) {
  const auto it = machines.find(host);
  return it == machines.end() ? nullptr : it->second.get();
}

std::vector<SimWorker*> Site::Living() const {
  std::vector<SimWorker*> living;
  for (const auto& worker : workers) {
    if (worker->alive()) {
      living.push_back(worker.get());
    }
  }
  return living;
}

SimWorker* Site::FindWorker(int pid) const {
  for (const auto& worker : workers) {
    if (worker->pid() == pid) {
      return worker->gone() ? nullptr : worker.get();
    }
  }
  return nullptr;
}

std::shared_ptr<SimGeneration> Site::GenerationOf(uint64_t number,
                                                  const std::string& link_key,
                                                  uint32_t size) {
  std::shared_ptr<SimGeneration>& generation = generations[number];
  if (generation == nullptr) {
    generation = std::make_shared<SimGeneration>(*this, number, link_key, size);
  } else if (generation->link_key() != link_key || generation->size() != size) {
    universe.Wrong("there are two worlds of generation " + std::to_string(number));
  }
  return generation;
}

void Site::LoseDriver() {
  driver.reset();
  for (const std::weak_ptr<Connection>& held : connections) {
    if (const std::shared_ptr<Connection> connection = held.lock()) {
      connection->LoseDriver();
    }
  }
}

}  // namespace muster::sim
