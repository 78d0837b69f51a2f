#pragma once

// The page that an agent shares with one worker process, and the handshake that hands it out.
//
// The worker connects to the SEQPACKET socket `page.sock` in the agent's directory and sends one
// PageRequest; the agent checks the key, takes the pid from SO_PEERCRED (behind `sh -c` the worker
// is not the spawned pid), opens a pidfd and answers one PageAnswer, with the memfd as SCM_RIGHTS
// if `error` is empty. Then the worker's engine thread locks the mutex and only then joins over
// gRPC. The mutex is robust: owner died = the process is dying; a plain unlock = shutdown().
// The engine thread adds to `ticks` at least five times a second.
//
// The connection stays open: by it the agent says that a generation is over, without the detours of
// gRPC. Nothing follows from its end.

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace muster {

struct WorkerPage {
  pthread_mutex_t alive;  // PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_ROBUST; initialised by the agent.
  std::atomic<uint64_t> ticks;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
inline constexpr uint64_t kWorkerPageBytes = 4096;
static_assert(sizeof(WorkerPage) <= kWorkerPageBytes);

struct PageRequest {
  uint64_t incarnation = 0;
  char key[64] = {};  // MUSTER_WORKER_KEY: 32 random bytes in hex, not terminated.
};
struct PageAnswer {
  char error[256] = {};  // Terminated; empty: the descriptor came along.
};

struct GenerationOver {
  uint64_t generation = 0;
  char reason[256] = {};  // Terminated.
};

inline constexpr const char* kPageSocketName = "page.sock";
inline constexpr const char* kGrpcSocketName = "workers.sock";

// What a worker finds in its environment, beside HOROVOD_RANK and the like (provisional values).
inline constexpr const char* kEnvAgentDirectory = "MUSTER_AGENT_DIRECTORY";  // Holds both sockets.
inline constexpr const char* kEnvWorkerKey = "MUSTER_WORKER_KEY";            // Unset after reading.
inline constexpr const char* kEnvIncarnation = "MUSTER_INCARNATION";
inline constexpr const char* kEnvJob = "MUSTER_JOB";    // Random id of the job, no secret.
inline constexpr const char* kEnvHost = "MUSTER_HOST";  // The host's name from discovery.
inline constexpr const char* kEnvSlot = "MUSTER_SLOT";
// Address literals with port 0, separated by commas, at which the worker listens: "10.0.0.2:0",
// "[fd00::2]:0". Absent: on loopback.
inline constexpr const char* kEnvListen = "MUSTER_LISTEN";
inline constexpr const char* kEnvPortRange = "MUSTER_PORT_RANGE";  // "41000-41009"; absent: any.

}  // namespace muster
