#include "launcher/cli/flags.h"

#include <array>

namespace muster::launcher {
namespace {

constexpr std::string_view kJob = "Size of the job";
constexpr std::string_view kHosts =
    "Hosts (one of -H, --hostfile, --host-discovery-script, --accept-agents)";
constexpr std::string_view kNetwork = "Other hosts and the network";
constexpr std::string_view kLimits = "Time limits, in seconds, and failures";
constexpr std::string_view kOutput = "Output";
constexpr std::string_view kCollectives = "Collectives";
constexpr std::string_view kStall = "Stalled workers";
constexpr std::string_view kOther = "Other";
constexpr std::string_view kInert =
    "Accepted for compatibility, without effect yet (one warning; the variable is set for workers)";
constexpr std::string_view kRefused = "Refused";
constexpr std::string_view kAgentJoin = "Dialling in";
constexpr std::string_view kTell = "Telling";
constexpr std::string_view kHappen = "What happens, and when";
constexpr std::string_view kChaosReport = "What is told";

// clang-format off
constexpr Flag kFlags[] = {
    {"-np --num-proc", "N", "MUSTER_NP", "", kJob,
     "Workers. In an elastic job: slots that must be there before the first start. Required."},
    {"--min-np --min-num-proc", "N", "MUSTER_MIN_NP", "-np", kJob,
     "Makes the job elastic: below this many workers it holds and waits for more."},
    {"--max-np --max-num-proc", "N", "MUSTER_MAX_NP", "no bound", kJob,
     "An elastic job never grows beyond this many workers."},
    {"--spares", "N", "MUSTER_SPARES", "0", kJob,
     "Warm workers kept beside the world of an elastic job, to take the place of lost ones."},

    {"-H --hosts", "HOST:SLOTS,...", "MUSTER_HOSTS", "localhost:<np>", kHosts,
     "Hosts, separated by commas (not blanks). IPv6: [::1]:2."},
    {"-hostfile --hostfile", "FILE", "MUSTER_HOSTFILE", "", kHosts,
     "A file with one 'HOST slots=N' or 'HOST:N' per line, read again at every poll."},
    {"--host-discovery-script", "COMMAND", "MUSTER_HOST_DISCOVERY_SCRIPT", "", kHosts,
     "Makes the job elastic: a command for the shell that prints one HOST or HOST:SLOTS per line."},
    {"--accept-agents", "PORT", "MUSTER_ACCEPT_AGENTS", "", kHosts,
     "Makes the job elastic: its hosts are those whose agents dial in at this port, started with "
     "muster agent --join; 0: any free port. Needs --secret-file."},
    {"--secret-file", "FILE", "MUSTER_SECRET_FILE", "", kHosts,
     "Holds the secret that such agents know too; without --accept-agents a random one is used."},
    {"--slots-per-host", "N", "MUSTER_SLOTS_PER_HOST", "", kHosts,
     "Slots of hosts that are listed without a count."},
    {"--discovery-interval", "SECONDS", "MUSTER_DISCOVERY_INTERVAL", "1", kHosts,
     "Time between two polls for hosts, start to start."},
    {"--discovery-timeout", "SECONDS", "MUSTER_DISCOVERY_TIMEOUT", "30", kHosts,
     "A discovery script that takes longer is killed."},

    {"-p --ssh-port", "PORT", "MUSTER_SSH_PORT", "as ssh is configured", kNetwork,
     "Port at which ssh reaches other hosts."},
    {"-i --ssh-identity-file", "FILE", "MUSTER_SSH_IDENTITY_FILE", "as ssh is configured", kNetwork,
     "Key with which ssh logs in."},
    {"--strict-host-key-checking", "yes|no|accept-new", "MUSTER_STRICT_HOST_KEY_CHECKING",
     "as ssh is configured", kNetwork, "Whether ssh goes to hosts whose key it does not know."},
    {"--rsh-agent", "CMD", "MUSTER_RSH_AGENT OMPI_MCA_plm_rsh_agent",
     "/etc/mpi/kubexec.sh where there is one, else ssh", kNetwork,
     "Starts agents in place of ssh, as CMD HOST COMMAND; it has to pass standard input on."},
    {"--remote-muster", "PATH", "MUSTER_REMOTE_MUSTER", "the same as here", kNetwork,
     "Absolute path of muster on other hosts."},
    {"--forward-environment", "NAMES", "MUSTER_FORWARD_ENVIRONMENT", "", kNetwork,
     "Variables, separated by commas, that other machines get although they belong to a machine, "
     "such as CUDA_VISIBLE_DEVICES."},
    {"--network-interface --network-interfaces", "NAMES", "MUSTER_NETWORK_INTERFACE",
     "what leads to the other side", kNetwork,
     "Names of interfaces, or addresses, separated by commas: every host uses the first one that "
     "it has.", FlagUse::kServed, "HOROVOD_GLOO_IFACE"},
    {"--address-family", "any|ipv4|ipv6", "MUSTER_ADDRESS_FAMILY", "any", kNetwork,
     "Which addresses the hosts use among each other."},
    {"--port-range", "LO-HI", "MUSTER_PORT_RANGE", "any port", kNetwork,
     "Ports for everything that listens, on every host: driver and workers."},

    {"--start-timeout", "SECONDS", "HOROVOD_START_TIMEOUT", "30", kLimits,
     "From the first spawn: then the world forms with the workers that are ready, if -np or, in an "
     "elastic job, --min-np allows."},
    {"--elastic-timeout", "SECONDS", "HOROVOD_ELASTIC_TIMEOUT", "600", kLimits,
     "How long an elastic job waits for enough slots, at the start and below --min-np."},
    {"--grace", "SECONDS", "MUSTER_GRACE", "30", kLimits,
     "Between SIGTERM and SIGKILL, and between the order to leave and SIGTERM."},
    {"--driver-grace", "SECONDS", "MUSTER_DRIVER_GRACE", "10", kLimits,
     "How long an agent across a network works on without hearing from the driver."},
    {"--reset-limit", "N", "MUSTER_RESET_LIMIT", "no limit", kLimits,
     "Resets (changes of the world) that are allowed; the next one ends the job."},
    {"--failure-limit", "N", "MUSTER_FAILURE_LIMIT", "no limit", kLimits,
     "The same, counting lost workers only."},
    {"--blacklist-cooldown-range", "LO HI", "MUSTER_BLACKLIST_COOLDOWN_RANGE", "", kLimits,
     "A slot that failed rests LO seconds, doubling to HI at most (0.1 <= LO <= HI <= 3600), and "
     "is never set aside for good. Without it: 1 s doubling to 60 s, and for good after five "
     "failures in ten minutes."},
    {"--blame", "slot|host", "MUSTER_BLAME", "slot", kLimits,
     "What a failed worker counts against: its slot, or (as Horovod does) its whole host."},

    {"--output-filename", "FOLDER", "MUSTER_OUTPUT_FILENAME", "", kOutput,
     "Also append each worker's output to FOLDER/rank.N/stdout and stderr."},
    {"-prefix-timestamp --prefix-output-with-timestamp", "", "MUSTER_PREFIX_OUTPUT_WITH_TIMESTAMP",
     "off", kOutput, "Put the date and time before each line of the workers."},
    {"--incident-dir", "FOLDER", "MUSTER_INCIDENT_DIR", "~/.local/state/muster/jobs", kOutput,
     "Keep there what happened to the job, for muster why."},
    {"--log-level", "LEVEL", "HOROVOD_LOG_LEVEL", "WARNING", kOutput,
     "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL: of the launcher and of the workers' runtime.",
     FlagUse::kServed, "HOROVOD_LOG_LEVEL"},
    {"--verbose", "", "MUSTER_VERBOSE", "off", kOutput,
     "Log at level INFO and show all settings with their origin."},

    {"--cpu-operations", "auto|shm|hierarchical|gloo",
     "MUSTER_CPU_OPERATIONS HOROVOD_CPU_OPERATIONS", "auto", kCollectives,
     "What moves the tensors: shared memory (shm: all workers on one host), Gloo between all "
     "workers, or hierarchical: shared memory inside each host and Gloo between them. auto takes "
     "what suits each world.", FlagUse::kServed, "MUSTER_CPU_OPERATIONS"},
    {"--fusion-threshold-mb", "MB", "HOROVOD_FUSION_THRESHOLD", "128", kCollectives,
     "Tensors that are ready together are reduced together, up to this size; 0: each alone. The "
     "variable is in bytes.", FlagUse::kServed, "HOROVOD_FUSION_THRESHOLD"},
    {"--cache-capacity", "N", "HOROVOD_CACHE_CAPACITY", "65536", kCollectives,
     "Tensors that each worker names by a short number once it has seen them; 0: none.",
     FlagUse::kServed, "HOROVOD_CACHE_CAPACITY"},
    {"--thread-affinity", "CORES", "HOROVOD_THREAD_AFFINITY", "not pinned", kCollectives,
     "Cores, separated by commas, one for each worker of a host in the order of local ranks: its "
     "own two threads run there, the program's where they like.",
     FlagUse::kServed, "HOROVOD_THREAD_AFFINITY"},
    {"--gloo-timeout-seconds", "SECONDS", "HOROVOD_GLOO_TIMEOUT_SECONDS", "30", kCollectives,
     "A collective that all workers have called and that takes longer counts as broken.",
     FlagUse::kServed, "HOROVOD_GLOO_TIMEOUT_SECONDS"},

    {"--stall-check", "", "", "on", kStall,
     "Warn of workers that others wait for in a collective.",
     FlagUse::kServed, "HOROVOD_STALL_CHECK_DISABLE", "0"},
    {"--no-stall-check", "", "HOROVOD_STALL_CHECK_DISABLE", "off", kStall,
     "Never warn of them, and never shut them down.",
     FlagUse::kServed, "HOROVOD_STALL_CHECK_DISABLE", "1"},
    {"--stall-check-warning-time-seconds", "SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS", "60",
     kStall, "Warn after this time.", FlagUse::kServed, "HOROVOD_STALL_CHECK_TIME_SECONDS"},
    {"--stall-check-shutdown-time-seconds", "SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0",
     kStall, "After this time the missing workers count as lost; 0: never.",
     FlagUse::kServed, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},

    {"-v --version", "", "", "", kOther, "Print the version and exit."},
    {"-cb --check-build", "", "", "", kOther, "Print what this build has and exit."},
    {"-h --help", "", "", "", kOther, "Print this text and exit."},

    {"--gloo", "", "", "", kInert,
     "There is one controller; see --cpu-operations.",
     FlagUse::kInert, "HOROVOD_CONTROLLER", "gloo"},
    {"--disable-cache", "", "", "", kInert,
     "There is no cache of start-up checks.", FlagUse::kInert},
    {"--cycle-time-ms", "MS", "", "", kInert,
     "There are no cycles: the engine is driven by events.", FlagUse::kInert, "HOROVOD_CYCLE_TIME"},
    {"--hierarchical-allreduce", "", "", "", kInert,
     "The shape of the job decides.", FlagUse::kInert, "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
    {"--no-hierarchical-allreduce", "", "", "", kInert,
     "The shape of the job decides.", FlagUse::kInert, "HOROVOD_HIERARCHICAL_ALLREDUCE", "0"},
    {"--hierarchical-allgather", "", "", "", kInert,
     "The shape of the job decides.", FlagUse::kInert, "HOROVOD_HIERARCHICAL_ALLGATHER", "1"},
    {"--no-hierarchical-allgather", "", "", "", kInert,
     "The shape of the job decides.", FlagUse::kInert, "HOROVOD_HIERARCHICAL_ALLGATHER", "0"},
    {"--torus-allreduce", "", "", "", kInert,
     "The shape of the job decides.", FlagUse::kInert, "HOROVOD_TORUS_ALLREDUCE", "1"},
    {"--no-torus-allreduce", "", "", "", kInert,
     "The shape of the job decides.", FlagUse::kInert, "HOROVOD_TORUS_ALLREDUCE", "0"},
    {"--autotune", "", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE", "1"},
    {"--no-autotune", "", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE", "0"},
    {"--autotune-log-file", "FILE", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE_LOG"},
    {"--autotune-warmup-samples", "N", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"},
    {"--autotune-steps-per-sample", "N", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"},
    {"--autotune-bayes-opt-max-samples", "N", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"},
    {"--autotune-gaussian-process-noise", "X", "", "", kInert,
     "There is no tuner.", FlagUse::kInert, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"},
    {"--timeline-filename", "FILE", "", "", kInert,
     "No timeline is written; see MUSTER_TRACE.", FlagUse::kInert, "HOROVOD_TIMELINE"},
    {"--timeline-mark-cycles", "", "", "", kInert,
     "No timeline is written.", FlagUse::kInert, "HOROVOD_TIMELINE_MARK_CYCLES", "1"},
    {"--no-timeline-mark-cycles", "", "", "", kInert,
     "No timeline is written.", FlagUse::kInert, "HOROVOD_TIMELINE_MARK_CYCLES", "0"},
    {"--mpi-threads-disable", "", "", "", kInert,
     "MPI is not used.", FlagUse::kInert, "HOROVOD_MPI_THREADS_DISABLE", "1"},
    {"--no-mpi-threads-disable", "", "", "", kInert,
     "MPI is not used.", FlagUse::kInert, "HOROVOD_MPI_THREADS_DISABLE", "0"},
    {"--mpi-args", "ARGS", "", "", kInert,
     "MPI is not used.", FlagUse::kInert},
    {"--tcp", "", "", "", kInert,
     "Only TCP and shared memory are used.", FlagUse::kInert, "NCCL_IB_DISABLE", "1"},
    {"--binding-args", "ARGS", "", "", kInert,
     "Processes are not bound to cores.", FlagUse::kInert},
    {"--num-nccl-streams", "N", "", "", kInert,
     "NCCL is not used yet.", FlagUse::kInert, "HOROVOD_NUM_NCCL_STREAMS"},
    {"--log-with-timestamp --no-log-hide-timestamp", "", "", "", kInert,
     "Log lines always carry the time.", FlagUse::kInert, "HOROVOD_LOG_HIDE_TIME", "0"},
    {"--log-without-timestamp --log-hide-timestamp", "", "", "", kInert,
     "Log lines always carry the time.", FlagUse::kInert, "HOROVOD_LOG_HIDE_TIME", "1"},

    {"--mpi", "", "", "", kRefused,
     "Muster starts its workers itself and does not use MPI; leave the flag out",
     FlagUse::kRefused},
    {"--jsrun", "", "", "", kRefused,
     "Muster starts its workers itself and does not use jsrun; leave the flag out",
     FlagUse::kRefused},
    {"--config-file", "FILE", "", "", kRefused,
     "configuration files are not read yet; give the settings as flags or HOROVOD_* variables",
     FlagUse::kRefused},
};

constexpr Flag kAgentFlags[] = {
    {"--join", "ADDRESSES", "", "", kAgentJoin,
     "Where the driver may be: ADDRESS:PORT, several separated by commas; the first one that "
     "answers counts."},
    {"--slots", "N", "MUSTER_AGENT_SLOTS", "1", kAgentJoin,
     "Room for this many workers."},
    {"--host", "NAME", "MUSTER_AGENT_HOST", "this machine's name", kAgentJoin,
     "The name of this host in the job."},
    {"--secret-file", "FILE", "MUSTER_SECRET_FILE", "", kAgentJoin,
     "Holds the job's secret. Required."},
    {"--join-timeout", "SECONDS", "MUSTER_JOIN_TIMEOUT", "300", kAgentJoin,
     "How long to wait for a driver that takes this host."},
    {"--network-interface --network-interfaces", "NAMES", "MUSTER_NETWORK_INTERFACE",
     "what leads to the driver", kAgentJoin,
     "Names of interfaces, or addresses, separated by commas: workers listen at the first one that "
     "there is."},
    {"--log-level", "LEVEL", "HOROVOD_LOG_LEVEL", "WARNING", kAgentJoin,
     "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL."},
    {"-h --help", "", "", "", kAgentJoin, "Print this text and exit."},
};

constexpr Flag kWhyFlags[] = {
    {"--json", "", "", "off", kTell, "Print the lines of the record as they are."},
    {"--incident-dir", "FOLDER", "MUSTER_INCIDENT_DIR", "~/.local/state/muster/jobs", kTell,
     "Where the records of jobs lie; $XDG_STATE_HOME counts if it is set."},
    {"-h --help", "", "", "", kTell, "Print this text and exit."},
};

constexpr Flag kChaosFlags[] = {
    {"--kinds", "KINDS", "MUSTER_CHAOS_KINDS", "all", kHappen,
     "What may happen, separated by commas, each with a weight: kill:6,pause:4,cut."},
    {"--every", "SECONDS", "MUSTER_CHAOS_EVERY", "5", kHappen,
     "Mean time between two events; they come at random (exponential, cut off at four times "
     "that)."},
    {"--minutes", "N", "", "until the job ends", kHappen, "For how long."},
    {"--count", "N", "", "no limit", kHappen, "So many events at the most."},
    {"--seed", "N", "MUSTER_CHAOS_SEED", "random, and printed", kHappen,
     "The same seed draws the same kinds, times and choices."},
    {"--pause-max", "SECONDS", "MUSTER_CHAOS_PAUSE_MAX", "0.2", kHappen,
     "The longest time from SIGSTOP to SIGCONT of a pause; at most 0.9, for a longer one is a "
     "loss."},
    {"--hook-max", "SECONDS", "MUSTER_CHAOS_HOOK_MAX", "3", kHappen,
     "The longest time from the begin of a hook to its end; descriptors are exhausted for a second "
     "at most."},
    {"--keep", "N", "MUSTER_CHAOS_KEEP", "1", kHappen,
     "Of the workers that are older than 3 s so many are neither killed nor stopped for good, so "
     "that the state lives."},
    {"--hook-dir", "FOLDER", "MUSTER_CHAOS_HOOK_DIR", "", kHappen,
     "Each program in it is a kind of its own, called with begin and, after a while, with end."},
    {"--dry-run", "", "", "off", kHappen, "Say what would happen, and do nothing."},
    {"--log", "FILE", "MUSTER_CHAOS_LOG", "", kChaosReport,
     "Append a JSON line per event."},
    {"--incident-dir", "FOLDER", "MUSTER_INCIDENT_DIR", "~/.local/state/muster/jobs", kChaosReport,
     "Where the records of jobs lie: by the job's own it is known that the driver has ended."},
    {"-h --help", "", "", "", kChaosReport, "Print this text and exit."},
};
// clang-format on

}  // namespace

const FlagTable& RunFlags() {
  static constexpr FlagTable kTable{
      kFlags,
      "Runs a command as a job of many workers.",
      "Usage: muster run [flags] command [arguments]\n"
      "       horovodrun [flags] command [arguments]\n",
      "Each flag but the last four groups may also be given by the variable in brackets; a flag "
      "counts\nmore than its variable. Flags may be cut short (--slots 4) while that is "
      "unambiguous. All that\nfollows the first word that is no flag is the command.\n\n"
      "Exit codes: 0 success; 2 usage; 75 not enough slots in time; 76 a limit reached; 77 all "
      "slots set\naside; 78 the first discovery failed; 79 the state was lost; 128+N stopped by "
      "signal N; else that\nof the worker that failed first."};
  return kTable;
}

const FlagTable& AgentFlags() {
  static constexpr FlagTable kTable{
      kAgentFlags,
      "Serves one host of a job: starts its workers and watches them. Without --join it is started "
      "by\nmuster run and reads from standard input what it is to do.",
      "Usage: muster agent --join ADDRESS:PORT [flags]\n",
      "Start the job with muster run --accept-agents PORT and the same secret. A flag counts more "
      "than\nits variable.\n\n"
      "Exit codes: 0 the job has ended or did not need this host any more; 2 usage; else a failure "
      "that\nstandard error names."};
  return kTable;
}

const FlagTable& WhyFlags() {
  static constexpr FlagTable kTable{
      kWhyFlags,
      "Tells what happened to a job: who was lost, how that is known, what was decided, how long "
      "it\n"
      "took, what was lost, and what to do. JOB is the id of a job or its beginning, PATH a record "
      "or\n"
      "its folder; without either it is the job that was started last.",
      "Usage: muster why [flags] [JOB|PATH]\n",
      "Exit codes: 0 told; 1 there is nothing to tell; 2 usage."};
  return kTable;
}

const FlagTable& ChaosFlags() {
  static constexpr FlagTable kTable{
      kChaosFlags,
      "Disturbs a job of yours at random, to see whether it goes on. It acts on what runs of it "
      "on\n"
      "this machine, and on nothing else. JOB is the id of a job or its beginning; without it, "
      "the\n"
      "only one that runs here.\n\n"
      "Kinds: kill (SIGKILL to a worker), stop (SIGSTOP to one, for good: the job has to notice), "
      "pause\n(SIGSTOP, and SIGCONT before --pause-max: nothing may come of it), agent, reaper "
      "(SIGKILL to one of\nthe two processes that serve a host), descriptors (a worker or an agent "
      "cannot open any more files\nfor a while), and the hooks.",
      "Usage: muster chaos [flags] [JOB]\n",
      "A signal (Ctrl-C, Ctrl-Z too) undoes what is under way, then ends it.\n\n"
      "Exit codes: 0 done; 1 no such job, or a hook or an event failed; 2 usage."};
  return kTable;
}

std::span<const Flag> AllFlags() {
  return RunFlags().flags;
}

std::string_view ShownName(const Flag& flag) {
  return flag.names.substr(0, flag.names.find(' '));
}

std::string_view LongName(const Flag& flag) {
  std::string_view found;
  ForEachWord(flag.names, [&found](std::string_view name) {
    if (found.empty() && name.starts_with("--")) {
      found = name;
    }
  });
  return found;
}

const Flag* FindFlag(std::string_view name, const FlagTable& table) {
  for (const Flag& flag : table.flags) {
    bool found = false;
    ForEachWord(flag.names, [&](std::string_view spelling) { found |= spelling == name; });
    if (found) {
      return &flag;
    }
  }
  return nullptr;
}

int ValueCount(const Flag& flag) {
  int count = 0;
  ForEachWord(flag.values, [&count](std::string_view) { ++count; });
  return count;
}

}  // namespace muster::launcher
