#pragma once

// OutputWriter: prints the workers' lines on the launcher's own stdout and stderr, each with its
// rank, and into files if asked. It has a thread of its own, so that a blocked terminal holds up
// output alone. It does not split lines: agents send whole ones.
//
// Thread contract: TryPush and OnSpace from any thread; Start and Finish from the owner.

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace muster::launcher {

/// Whole lines of one worker, each with its newline.
struct OutputLines {
  Incarnation incarnation;
  SlotId slot;
  int32_t rank = -1;  // -1: no world yet.
  bool is_stderr = false;
  std::string lines;
};

class OutputWriter {
 public:
  struct Options {
    std::string directory;        // Empty: console only. Else DIR/rank.<rank>/{stdout,stderr}.
    bool timestamp = false;       // ctime(3) before the rank, as horovodrun has it.
    uint32_t rank_count_max = 1;  // For the zeros before ranks in folder names.
    int stdout_fd = 1;
    int stderr_fd = 2;
  };

  explicit OutputWriter(Options options);
  /// Drops what Finish has not written.
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  /// An error if the directory cannot be made.
  Status Start();

  /// False, and `lines` untouched, if the queue is full: try again after OnSpace. After Finish
  /// lines are taken and dropped.
  bool TryPush(OutputLines&& lines);
  /// Calls back once, soon after there is space; at once if there is. Not with a lock held.
  void OnSpace(std::function<void()> callback);

  /// Writes what is queued, for at most `patience`; ends the thread.
  void Finish(Duration patience);

 private:
  // One incarnation's pair of files. A worker keeps its files when its rank changes.
  struct Files {
    UniqueFd out;
    UniqueFd err;
  };

  void Run();
  void Write(const OutputLines& lines);
  void WriteConsole(int fd, bool& closed, std::string_view text);
  bool WaitWritable(int fd);
  void WriteFile(const OutputLines& lines);
  Files& FilesOf(const OutputLines& lines);
  bool Abandoned();

  const Options options_;
  std::thread thread_;

  // Writer thread only.
  std::map<Incarnation, Files> files_;
  bool stdout_closed_ = false;
  bool stderr_closed_ = false;
  bool file_trouble_shown_ = false;

  Mutex mutex_;
  CondVar changed_;
  std::deque<OutputLines> queue_ MUSTER_GUARDED_BY(mutex_);
  size_t queued_bytes_ MUSTER_GUARDED_BY(mutex_) = 0;
  std::vector<std::function<void()>> waiting_ MUSTER_GUARDED_BY(mutex_);
  bool finishing_ MUSTER_GUARDED_BY(mutex_) = false;
  bool abandoned_ MUSTER_GUARDED_BY(mutex_) = false;
  bool ended_ MUSTER_GUARDED_BY(mutex_) = false;
};

/// The job's last line, on stderr; gives up after a second if nobody reads it.
void WriteLastLine(std::string line, int fd = 2);

}  // namespace muster::launcher
