#include "launcher/session/grpc_log.h"

#include <grpc/support/log.h>

#include "common/log.h"

namespace muster::launcher {

void RedirectGrpcLog() {
  ::gpr_set_log_function([](gpr_log_func_args* said) { spdlog::debug("gRPC: {}", said->message); });
}

}  // namespace muster::launcher
