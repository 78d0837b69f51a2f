#pragma once

// gRPC credentials for the channel between driver and agents across a network: TLS 1.2 or newer
// with the job's own certificate. They prove the driver to the agent. The other way round the
// job's secret does it, which travels as metadata of each call, inside TLS, and so only after the
// driver has proved itself.
//
// Thread-safe: no state.

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string_view>

#include "common/status.h"

namespace muster::launcher {

/// For the driver's listener. No client certificate is asked for.
Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(std::string_view secret);

/// For an agent's channel: only a driver of the job with this secret is taken. The channel needs
/// ExpectDriver too.
Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(std::string_view secret);

/// The driver is dialled by address, but its certificate carries kDriverName.
void ExpectDriver(grpc::ChannelArguments& arguments);

}  // namespace muster::launcher
