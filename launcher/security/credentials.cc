#include "launcher/security/credentials.h"

#include <string>
#include <utility>

#include "launcher/security/job_certificate.h"

namespace muster::launcher {

Result<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(std::string_view secret) {
  Result<ServerIdentity> identity = MakeServerIdentity(secret);
  if (!identity.ok()) {
    return identity.status();
  }
  grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back({std::move(identity.value().key_pem),  //
                                        std::move(identity.value().certificate_pem)});
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::SslServerCredentials(options);
  if (credentials == nullptr) {
    return Status::Failed("gRPC does not take the job's certificate");
  }
  return credentials;
}

Result<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(std::string_view secret) {
  Result<std::string> authority = JobAuthority(secret);
  if (!authority.ok()) {
    return authority.status();
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(authority).value();  // Not beside the system's: instead.
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::SslCredentials(options);
  if (credentials == nullptr) {
    return Status::Failed("gRPC does not take the authority of the job");
  }
  return credentials;
}

void ExpectDriver(grpc::ChannelArguments& arguments) {
  arguments.SetSslTargetNameOverride(kDriverName);
}

}  // namespace muster::launcher
