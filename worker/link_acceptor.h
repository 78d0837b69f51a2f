#pragma once

// LinkAcceptor: the listening side of a worker's links. It takes connections at one or more
// addresses for as long as the worker lives, lets each one prove within kHandshakeTimeout that it
// belongs to a generation, and hands the proven ones over. Whoever else connects costs a socket for
// a second, nothing more.
//
// A peer may hear of a generation before this worker does: its connection is parked until the
// order arrives here too, or its time is over.
//
// Threads: the loop's.

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/loop.h"
#include "common/network.h"
#include "worker/handshake.h"
#include "worker/listen_plan.h"
#include "worker/socket.h"

namespace muster::worker {

class LinkAcceptor {
 public:
  using OnLink = std::function<void(LinkId id, PrivateFd fd)>;

  /// `loop` outlives the acceptor. Beyond `guests_max` unproven connections at one address (by
  /// default GuestsMax of this process's limit) somebody has to go: the oldest that has not named a
  /// link, else one that is late with its proof, else the oldest that is parked, else the newcomer.
  /// Not one that was answered a moment ago: for the other side that link may stand already.
  explicit LinkAcceptor(Loop& loop, std::optional<size_t> guests_max = std::nullopt);
  ~LinkAcceptor();
  LinkAcceptor(const LinkAcceptor&) = delete;
  LinkAcceptor& operator=(const LinkAcceptor&) = delete;

  /// Everywhere the plan says, or an error and perhaps a part of it.
  Status Listen(const ListenPlan& plan);
  /// At one more host literal; nothing to do if it is known.
  Status ListenAt(const std::string& host, PortRange ports);
  /// Where it listens, in order of time.
  const std::vector<std::string>& addresses() const { return addresses_; }

  /// From now on links of this generation to `own_rank` are accepted, and none of older ones.
  void Expect(Generation generation, uint32_t own_rank, std::string key, OnLink on_link);
  /// No link of this or an older generation is wanted any more.
  void Forget(Generation generation);

  size_t guest_count() const { return guests_.size(); }
  /// A small part of the limit of open files: strangers must not use up the descriptors of the
  /// user's program.
  static size_t GuestsMax(uint64_t open_files);

 private:
  struct Listener {
    PrivateFd fd;
    std::string host;
    Loop::TimerId pause;
    size_t guests = 0;
  };
  /// A connection that has proven nothing yet.
  struct Guest {
    PrivateFd fd;
    Listener* listener = nullptr;
    Loop::TimerId deadline;
    std::string in;
    std::optional<HandshakeResponder> handshake;  // Once the hello has been read.
    bool parked = false;
    Instant answered;
  };
  struct Expected {
    Generation generation;
    uint32_t own_rank = 0;
    std::string key;
    OnLink on_link;
  };
  using GuestId = uint64_t;

  Status Add(PrivateFd fd);
  void OnListener(Listener& listener);
  bool MakeRoom(Listener& listener);
  void Welcome(Listener& listener, PrivateFd fd);
  bool DropOne(const Listener* listener);
  void OnGuest(GuestId id);
  void Advance(GuestId id, Guest& guest);
  void Answer(GuestId id, Guest& guest);
  void Drop(GuestId id);

  Loop& loop_;
  const size_t guests_max_;
  std::list<Listener> listeners_;  // Guests point to them.
  std::vector<std::string> addresses_;
  Generation newest_;  // Seen in an order; connections of newer ones are parked.
  std::optional<Expected> expected_;
  std::map<GuestId, Guest> guests_;  // In order of arrival.
  GuestId next_guest_ = 1;
};

}  // namespace muster::worker
