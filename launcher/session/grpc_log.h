#pragma once

// Takes what gRPC has to say into our own log, at level debug: a stranger who knocks at a port with
// the wrong secret is no news for the user's terminal. Call it once, before gRPC is used; the log
// must be set up.

namespace muster::launcher {

void RedirectGrpcLog();

}  // namespace muster::launcher
