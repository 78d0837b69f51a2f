#pragma once

// HostResolver: says whether a host's name means this machine. A look-up can hang for half a
// minute, so each runs on a thread of its own and delays its own host only: a name that is not
// answered in time counts as another machine's, which the remote shell may know better anyway.
//
// Used on the loop thread. The destructor does not wait for look-ups under way.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/ids.h"
#include "common/loop.h"

namespace muster::launcher {

/// What needs no look-up: loopback names, literals, and this machine's name as it stands or as its
/// first label. Nothing: ask LookUpIsThisMachine.
std::optional<bool> IsThisMachineAtOnce(const std::string& name);

/// True if one of the name's addresses is this machine's: on loopback or of an interface that is
/// up. Blocks for as long as the name service likes.
bool LookUpIsThisMachine(const std::string& name);

inline constexpr Duration kLookUpPatience = std::chrono::seconds(5);
inline constexpr size_t kLookUpsMax = 32;  // Threads; more names wait.

class HostResolver {
 public:
  using LookUp = std::function<bool(const std::string& name)>;
  using Callback = std::function<void(bool this_machine)>;

  /// `look_up` is called on other threads. `loop` outlives the resolver.
  explicit HostResolver(Loop& loop,
                        Duration patience = kLookUpPatience,
                        LookUp look_up = LookUpIsThisMachine);
  ~HostResolver();
  HostResolver(const HostResolver&) = delete;
  HostResolver& operator=(const HostResolver&) = delete;

  /// Calls back once, never from within this call.
  void Resolve(const HostId& host, Callback callback);

 private:
  struct Shared;
  struct Request {
    std::string name;
    Callback callback;
    Loop::TimerId patience;
  };

  void StartLookUps();
  void OnAnswer(const std::string& name, bool this_machine);
  void OnPatienceOver(uint64_t id);

  Loop& loop_;
  const Duration patience_;
  const LookUp look_up_;
  // With the threads, which may outlive this object; see the destructor.
  const std::shared_ptr<Shared> shared_;
  uint64_t next_request_ = 1;
  std::map<uint64_t, Request> requests_;
  std::deque<std::string> waiting_;  // Names without a thread yet.
  std::set<std::string> running_;    // Names with one.
};

}  // namespace muster::launcher
