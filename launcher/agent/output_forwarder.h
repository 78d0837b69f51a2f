#pragma once

// OutputForwarder: reads the workers' standard output and error and sends whole lines to the
// driver on Agents.ForwardOutput, a stream of its own. A driver that does not take output stops
// the reading, so that the workers' pipes fill and they block as they would on a terminal; nothing
// else is delayed. A stream that breaks is followed by another one where the session goes on
// (across a network), over a new channel or after a second over the same one, and no line is lost
// or printed twice; else output is read and dropped from then on: that ends the forwarding, not the
// job.
//
// Bounds: kOutputBytesMax wait for the driver; a partial line holds at most kLineBytesMax.
// Threads: a loop thread of its own. All methods from any thread; `done` is called on that thread.

#include <grpcpp/channel.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/loop.h"
#include "common/mutex.h"
#include "common/unique_fd.h"
#include "launcher/agent/line_splitter.h"
#include "launcher/session/replay_queue.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

inline constexpr size_t kOutputBytesMax = 1 << 20;

/// Whose output it is.
struct OutputOrigin {
  Incarnation worker;
  uint32_t slot = 0;
  int32_t rank = -1;  // Until SetRanks; -1: none yet.
};

class OutputForwarder {
 public:
  struct Options {
    std::string secret;
    std::string session;  // DriverSession::id.
    std::string host;
    bool resumable = false;  // After a broken stream another one comes.
  };
  explicit OutputForwarder(Options options);
  ~OutputForwarder();
  OutputForwarder(const OutputForwarder&) = delete;
  OutputForwarder& operator=(const OutputForwarder&) = delete;

  /// Sends over this channel from now on, first what the driver has not acknowledged.
  void Connect(std::shared_ptr<grpc::Channel> channel);

  /// Reads both pipes until their end. What is read after SetRanks has returned carries the new
  /// ranks.
  void Add(const OutputOrigin& origin, UniqueFd out, UniqueFd err);
  void SetRanks(const std::vector<std::pair<Incarnation, int32_t>>& ranks);

  /// Sends what can be read without blocking, partial lines too, then ends the stream. Calls `done`
  /// once: when the driver has taken everything, or after `limit`.
  void Flush(Duration limit, std::function<void()> done);

 private:
  class Stream;
  struct Source {
    UniqueFd fd;
    Incarnation worker;
    uint32_t slot = 0;
    bool is_stderr = false;
    LineSplitter splitter;
  };
  enum class ReadResult : uint8_t { kMore, kNothingNow, kEnd };

  void Open();
  void AddSource(Source source);
  void OnReadable(int fd);
  ReadResult ReadOnce(Source& source);
  void Emit(const Source& source, std::string lines);
  void Remove(int fd);
  void PauseIfFull();
  void ResumeIfRoom();
  void OnAcknowledged(uint64_t received);
  void OnStreamDone(bool complete, const std::string& trouble);
  void DrainSources();
  int32_t RankOf(Incarnation worker);
  void FinishFlush();

  const Options options_;
  Mutex mutex_;
  std::map<Incarnation, int32_t> ranks_ MUSTER_GUARDED_BY(mutex_);  // Of workers with a source.

  Loop loop_;
  std::map<int, Source> sources_;
  bool paused_ = false;
  bool flushing_ = false;
  bool all_read_ = false;  // Flushing, and the last line is in the queue.
  bool dropping_ = false;  // Nobody will take output any more.
  std::function<void()> flushed_;
  ReplayQueue<v1::OutputChunk> queue_;
  size_t bytes_ = 0;                        // In the queue.
  std::shared_ptr<grpc::Channel> channel_;  // gRPC shares channels.
  std::unique_ptr<Stream> stream_;
  Loop::TimerId retry_;
  std::string trouble_;  // The last reason why there is no stream.
  std::jthread thread_;  // Runs loop_.
};

}  // namespace muster::launcher
