#pragma once

// PageServer: hands each worker process its page (common/worker_page.h) over a SEQPACKET socket,
// and learns from the kernel which process asked. Whether it may have one is the agent's decision.
//
// Bounds: kConnectionsMax connections, each for at most kHandshakeDeadline.
// Threads: everything on the loop thread; nothing blocks.

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/loop.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/agent/shared_page.h"

namespace muster::launcher {

inline constexpr size_t kConnectionsMax = 1024;
inline constexpr Duration kHandshakeDeadline = std::chrono::seconds(5);

/// The process that asked for a page, as the kernel says.
struct PageClient {
  pid_t pid = -1;
  UniqueFd pidfd;

  bool HasEnded() const;
  void Signal(int signal) const;
};

class PageServer {
 public:
  /// Gives the page for the worker, or the reason why it gets none, for the worker's eyes.
  using Ask = std::function<Result<std::shared_ptr<SharedPage>>(
      Incarnation worker, std::string_view key, PageClient client)>;

  PageServer(Loop& loop, Ask ask);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  Status Start(const std::string& socket_path);

 private:
  struct Connection {
    UniqueFd fd;
    Loop::TimerId deadline;
  };

  void Accept();
  void Listen();
  void Serve(int fd);
  void Close(int fd);

  Loop& loop_;
  Ask ask_;
  UniqueFd listener_;
  std::map<int, Connection> connections_;
  Loop::TimerId retry_;  // Set while there are no descriptors to accept with.
};

}  // namespace muster::launcher
