#pragma once

// PageServer: hands each worker process its page (common/worker_page.h) and the segments that it
// shares with others (common/worker_segment.h) over a SEQPACKET socket, and learns from the kernel
// which process asked. Whether it may have one is the agent's decision.
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
#include "common/worker_page.h"
#include "common/worker_segment.h"
#include "launcher/agent/shared_page.h"

namespace muster::launcher {

inline constexpr size_t kConnectionsMax = 1024;
inline constexpr Duration kHandshakeDeadline = std::chrono::seconds(5);

/// The process that asked for a page, as the kernel says.
struct PageClient {
  pid_t pid = -1;
  UniqueFd pidfd;
  UniqueFd connection;  // By which it asked. Not valid: no descriptor was left.

  bool HasEnded() const;
  void Signal(int signal) const;
  /// False: it does not listen there.
  bool TellOver(uint64_t generation, const std::string& reason) const;
};

/// What a worker says that asks for the segment of its generation.
struct SegmentAsk {
  Incarnation worker;
  std::string_view key;
  pid_t pid = -1;  // The kernel's word.
  uint64_t generation = 0;
};

class PageServer {
 public:
  /// Gives the page for the worker, or the reason why it gets none, for the worker's eyes.
  using Ask = std::function<Result<std::shared_ptr<SharedPage>>(
      Incarnation worker, std::string_view key, PageClient client)>;
  /// To be called once, at once or later, with a descriptor that stays the caller's or with the
  /// reason why there is none. Does nothing once the worker or the server has gone.
  using SegmentReply = std::function<void(const Result<int>& segment)>;
  using AskSegment = std::function<void(const SegmentAsk& ask, SegmentReply reply)>;

  PageServer(Loop& loop, Ask ask, AskSegment ask_segment);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  Status Start(const std::string& socket_path);

 private:
  struct Connection {
    UniqueFd fd;
    Loop::TimerId deadline;  // Also tells it from another connection with the same number.
    bool waits = false;      // For a segment: everything has been read.
  };

  void Accept();
  void Listen();
  void Serve(int fd);
  void ServePage(int fd, const PageRequest& request);
  void ServeSegment(int fd, const SegmentRequest& request);
  void Close(int fd);

  Loop& loop_;
  Ask ask_;
  AskSegment ask_segment_;
  // shared_ptr: a reply that outlives this object sees that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  UniqueFd listener_;
  std::map<int, Connection> connections_;
  Loop::TimerId retry_;  // Set while there are no descriptors to accept with.
};

}  // namespace muster::launcher
