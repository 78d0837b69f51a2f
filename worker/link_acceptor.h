#pragma once

// LinkAcceptor: the listening side of a worker's links. It takes connections for as long as the
// worker lives, lets each one prove within kHandshakeTimeout that it belongs to a generation, and
// hands the proven ones over. Whoever else connects costs a socket for a second, nothing more.
//
// A peer may hear of a generation before this worker does: its connection is parked until the
// order arrives here too, or its time is over.
//
// Threads: the loop's.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/loop.h"
#include "worker/handshake.h"
#include "worker/socket.h"

namespace muster::worker {

class LinkAcceptor {
 public:
  using OnLink = std::function<void(LinkId id, PrivateFd fd)>;

  /// `loop` outlives the acceptor.
  LinkAcceptor(Loop& loop, PrivateFd listener);
  ~LinkAcceptor();
  LinkAcceptor(const LinkAcceptor&) = delete;
  LinkAcceptor& operator=(const LinkAcceptor&) = delete;

  /// From now on links of this generation to `own_rank` are accepted, and none of older ones.
  void Expect(Generation generation, uint32_t own_rank, std::string key, OnLink on_link);
  /// No link of this or an older generation is wanted any more.
  void Forget(Generation generation);

  size_t guest_count() const { return guests_.size(); }

  /// Beyond this many unproven connections the oldest one goes.
  static constexpr size_t kGuestsMax = 8192;

 private:
  /// A connection that has proven nothing yet.
  struct Guest {
    PrivateFd fd;
    Loop::TimerId deadline;
    std::string in;
    std::optional<HandshakeResponder> handshake;  // Once the hello has been read.
    bool parked = false;
  };
  struct Expected {
    Generation generation;
    uint32_t own_rank = 0;
    std::string key;
    OnLink on_link;
  };
  using GuestId = uint64_t;

  void OnListener();
  void OnGuest(GuestId id);
  void Advance(GuestId id, Guest& guest);
  void Answer(GuestId id, Guest& guest);
  void Drop(GuestId id);

  Loop& loop_;
  PrivateFd listener_;
  Generation newest_;  // Seen in an order; connections of newer ones are parked.
  std::optional<Expected> expected_;
  std::map<GuestId, Guest> guests_;
  GuestId next_guest_ = 1;
};

}  // namespace muster::worker
