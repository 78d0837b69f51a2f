#pragma once

// PeerMesh: moves messages between this rank and the others over one authenticated socket each. A
// message has a slot, which the receiver names to get it. There is no thread in here: whoever
// waits drives the sockets, so that after a wait has ended, for whatever reason, nobody touches
// the caller's memory any more.
//
// A message that nobody has asked for yet stays in the kernel's buffer, and holds up its sender,
// unless something behind it is asked for. After an error or Abort every call fails.
//
// Threads: one (the executor), except Abort, which any thread may call at any time.

#include <poll.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "worker/socket.h"

namespace muster::worker {

class PeerMesh {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Who waits for what: counts what has completed for one owner. It must be cancelled before it
  /// is destroyed, if anything posted for it may be incomplete.
  struct Completions {
    std::deque<int> sent;      // Ranks, in the order of completion.
    std::deque<int> received;  // Ranks.
  };

  /// `sockets`: by rank, none at `rank`. A wait keeps a core busy for `spin` before it sleeps.
  PeerMesh(int rank, std::vector<PrivateFd> sockets, std::chrono::microseconds spin = {});
  ~PeerMesh();
  PeerMesh(const PeerMesh&) = delete;
  PeerMesh& operator=(const PeerMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  Status Send(int to, uint64_t slot, const void* data, size_t bytes, Completions& owner);
  Status Receive(int from, uint64_t slot, void* data, size_t bytes, Completions& owner);
  /// From whichever of `from` comes first.
  Status Receive(
      std::vector<int> from, uint64_t slot, void* data, size_t bytes, Completions& owner);
  /// Drives the sockets until the deque has `count`. kAborted, kTimeout or kFailed otherwise.
  Status Wait(const std::deque<int>& completed, Deadline deadline, size_t count = 1);
  /// Forgets what is posted for this owner. If a message is half way, the mesh is broken.
  void Cancel(Completions& owner);

  /// kAborted after Abort, else what broke the mesh.
  Status Check();
  void Abort();
  /// Ranks whose sockets failed, or who were waited for when the time was up.
  const std::vector<int>& suspects() const { return suspects_; }

 private:
  struct Header {
    uint64_t slot;
    uint64_t bytes;
  };
  struct Outgoing {
    Header header;
    const char* data;
    size_t done;  // Bytes written, header included.
    Completions* owner;
  };
  struct Expected {
    int from;              // -1: one of `any`.
    std::vector<int> any;  // Empty unless so.
    uint64_t slot;
    char* data;
    size_t bytes;
    Completions* owner;

    std::span<const int> sources() const { return from >= 0 ? std::span(&from, 1) : any; }
    bool MayComeFrom(int rank) const {
      return from == rank || (from < 0 && std::find(any.begin(), any.end(), rank) != any.end());
    }
  };
  /// A message read before anyone asked for it.
  struct Early {
    uint64_t slot;
    std::string bytes;
  };
  struct Incoming {
    size_t bytes = 0;
    size_t done = 0;
    char* target = nullptr;
    Completions* owner = nullptr;  // Null: the target is the newest of `early`.
  };
  /// Where the next bytes of a message go.
  struct Room {
    char* begin;
    size_t bytes;
  };
  struct Peer {
    PrivateFd fd;
    std::list<Outgoing> out;
    std::vector<char> staging;  // Bytes read ahead.
    size_t staged_begin = 0;
    size_t staged_end = 0;
    bool has_incoming = false;
    Incoming incoming;
    std::list<Early> early;
    size_t wanted = 0;  // Posted receives that this peer may serve.
  };

  Status Post(Expected receive);
  std::list<Expected>::iterator FindExpected(int from, uint64_t slot);
  void Unwant(const Expected& receive);
  /// How much to read together with the header that comes next.
  size_t ReadAhead(int from) const;
  Status WriteTo(int to);
  void CountWritten(int to, size_t bytes);
  Status ReadStaged(int from);
  Status ReadFrom(int from);
  ssize_t ReadHeader(int from, bool& drained);
  void TakeStaged(int from);
  /// Starts on the message whose header is staged; false: it has to wait until somebody asks.
  Result<bool> BeginMessage(int from, Header header);
  static Room RoomFor(Peer& peer);
  void FinishMessage(int from);
  /// Reads on in the message that is coming in; 0: nothing now, -1: closed. `drained`: the socket
  /// had less than there was room for.
  ssize_t ReadBody(int from, bool& drained);
  bool TakeEarly(const Expected& receive);
  void ListPolled();
  Status PollOnce(int timeout_ms);
  Status Break(int rank, const std::string& what);
  Status BreakTimeout();

  const int rank_;
  const std::chrono::microseconds spin_;
  std::vector<Peer> peers_;
  std::list<Expected> expected_;
  std::vector<pollfd> polled_;  // The first is `wake_`.
  std::vector<int> polled_ranks_;
  UniqueFd wake_;  // eventfd, written by Abort; not valid: none was left.
  std::atomic<bool> aborted_{false};
  Status broken_;
  std::vector<int> suspects_;
};

}  // namespace muster::worker
