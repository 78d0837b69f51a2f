#pragma once

// AgentStarter: starts `muster agent` on a host and watches over that process: by fork and exec on
// this machine, through a remote shell on others. It hands the bootstrap over on standard input and
// keeps that open as the lifeline. It does not speak with agents and decides nothing about hosts.
//
// Used on the loop thread, which also starts the processes: the kernel kills a remote shell when
// that thread ends. Nothing blocks longer than a fork and exec. SIGPIPE must be ignored.
// Callbacks come from the loop, never from within a call, and may call in again. The destructor
// kills the remote shells and ends the lifelines; it waits for nothing.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/ids.h"
#include "common/loop.h"
#include "common/process.h"
#include "discovery/group_guard.h"
#include "launcher/cli/remote_shell_options.h"
#include "launcher/driver/host_resolver.h"
#include "launcher/driver/shell_output.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

/// Remote shells that are up but whose agents have not attached; more hosts wait. sshd refuses
/// connections beyond a number of its own, and a job of a thousand hosts should not fork a thousand
/// times at once.
inline constexpr size_t kRemoteStartsMax = 32;

class AgentStarter {
 public:
  enum class Place : uint8_t { kLocal, kRemote };

  /// The agent's first process, or the remote shell, is over.
  struct Ended {
    Place place = Place::kLocal;
    ExitStatus exit;
    /// The reaper said that everything of this agent is gone, or it had never been started. Remote
    /// shells die for many reasons that say nothing about the agent.
    bool farewell = false;
    /// It was killed because it had not attached within the start timeout.
    bool late = false;
    /// Remote: the end of what it said on stderr, in at most kLastWordsBytesMax bytes of printable
    /// text; empty if it said nothing.
    std::string last_words;
  };

  /// "its remote shell exited with code 255: ssh: ... Connection refused", with what to do about it
  /// where that is known.
  static std::string Describe(const Ended& ended);

  struct Callbacks {
    /// Asked just before the start. `remote` and `farewell` are filled in by the starter. An error:
    /// `failed` follows.
    std::function<Result<v1::AgentBootstrap>(const HostId&, Place)> bootstrap;
    /// Once per Start, unless `failed` came: from then on Has() is false.
    std::function<void(const HostId&, const Ended&)> ended;
    /// Nothing could be started at all: no such program, a name that no shell may get.
    std::function<void(const HostId&, const std::string& message)> failed;
  };

  /// `loop` outlives the starter.
  AgentStarter(Loop& loop,
               RemoteShellOptions options,
               Duration start_timeout,
               Callbacks callbacks,
               HostResolver::LookUp look_up = LookUpIsThisMachine);
  ~AgentStarter();
  AgentStarter(const AgentStarter&) = delete;
  AgentStarter& operator=(const AgentStarter&) = delete;

  /// The host must not have an agent here (Has). The start timeout counts from the process's start,
  /// so neither the look-up of the name nor waiting for its turn costs any of it.
  void Start(const HostId& host);
  /// The agent has attached: the start timeout is over, the next host may start.
  void Attached(const HostId& host);
  /// Ends the lifeline: a local agent ends at once, a remote one takes no notice. A host whose turn
  /// has not come is not started any more (Ended, with `farewell`).
  void EndInput(const HostId& host);
  /// As EndInput, and SIGKILL to the group of the agent's first process or of the remote shell.
  /// What the latter started on another machine stays.
  void Kill(const HostId& host);
  bool Has(const HostId& host) const { return agents_.contains(host); }

 private:
  struct Process {
    Place place = Place::kLocal;
    SpawnedProcess spawned;
    UniqueFd input;  // Non-blocking.
    std::string unsent;
    std::string farewell;
    std::unique_ptr<ShellOutput> out;  // Remote only.
    std::unique_ptr<ShellOutput> err;
    Loop::TimerId start_timer;
    bool attached = false;
    bool said_farewell = false;
    bool late = false;
  };
  // Without a process it is being looked up or waits for its turn.
  struct Agent {
    uint64_t number = 0;  // Tells a Start from an earlier one of the same host.
    std::unique_ptr<Process> process;
    Loop::TimerId withdrawal;
  };

  bool IsWaiting(const HostId& host, uint64_t number) const;
  void StartWaiting();
  void StartProcess(const HostId& host, Place place);
  Status Spawn(const HostId& host, Process& process);
  Status SpawnLocal(Process& process, const Pipe& input);
  Status SpawnRemote(const HostId& host, Process& process, const Pipe& input);
  void Send(const HostId& host);
  void OnLine(const HostId& host, const std::string& line);
  void OnLate(const HostId& host);
  void OnProcessEnded(const HostId& host);
  void Withdraw(const HostId& host);
  void CloseInput(Process& process);
  void Release(Process& process);
  void Fail(const HostId& host, const std::string& message);

  Loop& loop_;
  const RemoteShellOptions options_;
  const Duration start_timeout_;
  const Callbacks callbacks_;
  HostResolver resolver_;
  std::unique_ptr<discovery::GroupGuard> guard_;  // Of remote shells; made for the first one.
  uint64_t last_number_ = 0;
  std::map<HostId, Agent> agents_;
  std::deque<std::pair<HostId, uint64_t>> waiting_;  // Remote hosts, by number of their Start.
  size_t remote_starts_ = 0;
  Loop::TimerId next_start_;
};

}  // namespace muster::launcher
