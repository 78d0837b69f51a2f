#pragma once

// OutputWriter: prints the workers' lines on the launcher's own stdout and stderr, each with its
// rank, and into files if asked. It has a thread of its own, so that a blocked terminal holds up
// output alone. It does not split lines: agents send whole ones.
//
// Thread contract: TryPush and OnSpace from any thread; Start and Finish from the owner. Callbacks
// of OnSpace run on the writer's thread, in the thread that calls OnSpace, or in Finish.

#include <atomic>
#include <ctime>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/driver/output_files.h"
#include "launcher/driver/output_lines.h"
#include "launcher/driver/output_sink.h"

namespace muster::launcher {

inline constexpr size_t kQueuedOutputBytesMax = 1 << 20;

class OutputWriter {
 public:
  struct Options {
    std::string directory;        // Empty: console only. Else DIR/rank.<rank>/{stdout,stderr}.
    bool timestamp = false;       // ctime(3) before the rank, as horovodrun has it.
    uint32_t rank_count_max = 1;  // For the zeros before ranks in folder names.
    int stdout_fd = 1;
    int stderr_fd = 2;
    std::function<std::time_t()> now = [] { return std::time(nullptr); };
  };

  explicit OutputWriter(Options options);
  /// Drops what Finish has not written.
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  /// An error if the directory cannot be made or written.
  Status Start();

  /// False, and `lines` untouched, if the queue is full: try again after OnSpace. After Finish has
  /// begun lines are taken and dropped.
  bool TryPush(OutputLines&& lines);
  /// Calls back once, when there is space: at once if there is. The callback may TryPush and
  /// OnSpace. Not with a lock held that the callback takes.
  void OnSpace(std::function<void()> callback);

  /// Writes what is queued, for at most `patience`, even if nobody reads it; ends the thread.
  void Finish(Duration patience);

 private:
  void Run();
  bool Next(OutputLines& lines);
  void ServeWaiting();
  void Write(const OutputLines& lines);
  std::string Prefix(const OutputLines& lines) const;
  bool WaitWritable(int fd) const;

  const Options options_;
  UniqueFd wake_;  // eventfd, readable once the writer is to give up.
  std::atomic<bool> given_up_ = false;

  // Writer's thread only, once started.
  OutputSink stdout_;
  OutputSink stderr_;
  std::optional<OutputFiles> files_;
  bool file_trouble_shown_ = false;

  Mutex mutex_;
  CondVar changed_;
  std::deque<OutputLines> queue_ MUSTER_GUARDED_BY(mutex_);
  size_t queued_bytes_ MUSTER_GUARDED_BY(mutex_) = 0;
  std::deque<std::function<void()>> waiting_ MUSTER_GUARDED_BY(mutex_);
  bool finishing_ MUSTER_GUARDED_BY(mutex_) = false;
  bool ended_ MUSTER_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

/// The job's last line, on stderr, as one line whatever is in it; gives up after a second if nobody
/// reads it.
void WriteLastLine(std::string line, int fd = 2);

}  // namespace muster::launcher
