#include "worker/trace_fields.h"

#include <cstdlib>

#include "common/worker_page.h"

namespace muster::worker {

nlohmann::json TraceFields(const Place& place, const std::optional<CommitId>& held) {
  nlohmann::json fields = {{"host", place.host},
                           {"rank", place.rank},
                           {"size", place.size},
                           {"local_rank", place.local_rank},
                           {"generation", place.generation.value}};
  if (const char* incarnation = std::getenv(kEnvIncarnation)) {
    fields["incarnation"] = std::strtoull(incarnation, nullptr, 10);
  }
  if (held) {
    fields["commit"] = {held->generation, held->sequence};
  }
  return fields;
}

}  // namespace muster::worker
