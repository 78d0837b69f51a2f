#pragma once

// OutputFiles: --output-filename. A worker's lines go to FOLDER/rank.N/stdout and stderr, where N
// is its rank when it first spoke as a member of a world, with zeros before it; what it said before
// goes to FOLDER/slot.HOST.INDEX. Files are appended to, so a worker that takes the place of a lost
// one never overwrites what that one said.
//
// Thread contract: one thread; it may block where the file system does.

#include <map>
#include <string>
#include <utility>

#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/driver/output_lines.h"

namespace muster::launcher {

class OutputFiles {
 public:
  /// `rank_count_max` decides how many digits a rank has.
  OutputFiles(std::string folder, uint32_t rank_count_max);

  /// Makes the folder, and finds out whether it can be written.
  Status Prepare() const;

  Status Append(const OutputLines& lines);

 private:
  const std::string& FolderOf(const OutputLines& lines);
  Result<int> Open(const OutputLines& lines);

  const std::string folder_;
  const size_t digits_;
  std::map<Incarnation, std::string> ranked_;              // The folder that an incarnation keeps.
  std::map<std::pair<std::string, bool>, UniqueFd> open_;  // By folder and is_stderr.
  std::string unranked_;
};

}  // namespace muster::launcher
