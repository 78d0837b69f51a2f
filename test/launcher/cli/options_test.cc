#include "launcher/cli/options.h"

#include <catch2/catch.hpp>

#include "common/version.h"
#include "launcher/cli/flags.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Words = std::vector<std::string>;
using Hosts = std::vector<discovery::ListedHost>;

Parsed ParseAs(const std::string& program, const Words& words, const Words& environment = {}) {
  Words argv{program};
  argv.insert(argv.end(), words.begin(), words.end());
  return ParseCommandLine(argv, environment);
}

RunOptions Run(const Words& words, const Words& environment = {}) {
  const Parsed parsed = ParseAs("/usr/bin/horovodrun", words, environment);
  if (const auto* text = std::get_if<PrintAndExit>(&parsed)) {
    FAIL(text->text);
  }
  return std::get<RunOptions>(parsed);
}

// The last line of a usage error, without "muster: ".
std::string Error(const Words& words, const Words& environment = {}) {
  const Parsed parsed = ParseAs("horovodrun", words, environment);
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  const auto& text = std::get<PrintAndExit>(parsed);
  CHECK(text.code == 2);
  REQUIRE_FALSE(text.text.empty());
  CHECK(text.text.back() == '\n');
  const size_t begin = text.text.rfind('\n', text.text.size() - 2) + 1;
  const std::string last = text.text.substr(begin, text.text.size() - begin - 1);
  REQUIRE_THAT(last, StartsWith("muster: "));
  return last.substr(8);
}

std::string Shown(const Words& words) {
  const Parsed parsed = ParseAs("horovodrun", words);
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK(std::get<PrintAndExit>(parsed).code == 0);
  return std::get<PrintAndExit>(parsed).text;
}

const char* const kScript = "--host-discovery-script";

// ---------------------------------------------------------------- which command

TEST_CASE("command line of an agent is understood by a copy that is called horovodrun") {
  const Parsed parsed = ParseAs("/a/horovodrun", {"agent", "--help"});
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK_THAT(std::get<PrintAndExit>(parsed).text, Contains("--join"));
}

TEST_CASE("command line under the name horovodrun is muster run") {
  for (const Parsed& parsed : {ParseAs("horovodrun", {"-np", "2", "w"}),
                               ParseAs("/a/b/horovodrun", {"-np", "2", "w"}),
                               ParseAs("muster", {"run", "-np", "2", "w"})}) {
    REQUIRE(std::holds_alternative<RunOptions>(parsed));
    CHECK(std::get<RunOptions>(parsed).command == Words{"w"});
    CHECK(std::get<RunOptions>(parsed).membership.np_start == 2);
  }
}

TEST_CASE("command line knows the agent, which takes flags only") {
  CHECK(std::holds_alternative<AgentCommand>(ParseAs("muster", {"agent"})));
  CHECK(std::get<PrintAndExit>(ParseAs("muster", {"agent", "x"})).code == 2);
}

TEST_CASE("command line suggests run for anything else") {
  const auto text = std::get<PrintAndExit>(ParseAs("muster", {"-np", "2", "w"}));
  CHECK(text.code == 2);
  CHECK_THAT(text.text, Contains("muster run -np 2 w"));
  CHECK(std::get<PrintAndExit>(ParseAs("muster", {})).code == 2);
  CHECK(std::get<PrintAndExit>(ParseCommandLine({}, {})).code == 2);
}

TEST_CASE("command line prints help, version and build without -np") {
  for (const char* flag : {"-v", "--version"}) {
    CHECK_THAT(Shown({flag}), Contains(kVersion));
  }
  for (const char* flag : {"-cb", "--check-build"}) {
    CHECK_THAT(Shown({flag}), Contains("[X] Gloo") && Contains("[ ] MPI"));
  }
  for (const char* flag : {"-h", "--help"}) {
    CHECK_THAT(Shown({flag}), Contains("Usage:"));
  }
  CHECK(std::get<PrintAndExit>(ParseAs("muster", {"--version"})).code == 0);
}

TEST_CASE("help shows each flag with unit, default and variable") {
  const std::string help = Shown({"--help"});
  CHECK_THAT(help, Contains("-np, --num-proc N"));
  CHECK_THAT(help, Contains("-hostfile, --hostfile FILE"));
  CHECK_THAT(help, Contains("--elastic-timeout SECONDS"));
  CHECK_THAT(help, Contains("Default: 600.") && Contains("[HOROVOD_ELASTIC_TIMEOUT]"));
  CHECK_THAT(help, Contains("--blacklist-cooldown-range LO HI"));
  CHECK_THAT(help, Contains("Exit codes"));
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = help.find('\n', begin);
    CHECK(end - begin <= 100);
    begin = end + 1;
  }
}

// ---------------------------------------------------------------- sizes

TEST_CASE("options of a static job hold exactly -np workers on localhost") {
  const RunOptions options = Run({"-np", "4", "python", "train.py", "--lr", "0.1"});
  CHECK_FALSE(options.membership.elastic);
  CHECK(options.membership.np_start == 4);
  CHECK(options.membership.np_min == 4);
  CHECK(options.membership.np_max == 4);
  CHECK(options.hosts == Hosts{{HostId{"localhost"}, 4}});
  CHECK(options.command == Words{"python", "train.py", "--lr", "0.1"});
  CHECK(options.warnings.empty());
}

TEST_CASE("options are elastic with a discovery script or --min-np, not with --max-np") {
  CHECK(Run({"-np", "2", kScript, "d", "w"}).membership.elastic);
  CHECK(Run({"-np", "2", "--min-np", "1", "w"}).membership.elastic);
  const RunOptions fixed = Run({"-np", "2", "--max-np", "4", "w"});
  CHECK_FALSE(fixed.membership.elastic);
  CHECK(fixed.membership.np_max == 2);
  REQUIRE(fixed.warnings.size() == 1);
  CHECK_THAT(fixed.warnings[0], StartsWith("--max-np has no effect"));
}

TEST_CASE("options of an elastic job take --min-np from -np, and have no upper bound by default") {
  const RunOptions options = Run({"-np", "3", kScript, "./d.sh", "w"});
  CHECK(options.membership.np_min == 3);
  CHECK_FALSE(options.membership.np_max.has_value());
  CHECK(options.script == "./d.sh");
  CHECK(options.hosts.empty());
}

TEST_CASE("options take the sizes of an elastic job under both names") {
  for (const Words& words :
       {Words{"-np", "3", "--min-np", "2", "--max-np", "4", "w"},
        Words{"--num-proc", "3", "--min-num-proc", "2", "--max-num-proc", "4", "w"}}) {
    const MembershipOptions membership = Run(words).membership;
    CHECK(membership.np_start == 3);
    CHECK(membership.np_min == 2);
    CHECK(membership.np_max == 4);
  }
}

TEST_CASE("options refuse impossible sizes and name flag and value") {
  CHECK_THAT(Error({"w"}), StartsWith("-np: required"));
  CHECK_THAT(Error({"-np", "0", "w"}), StartsWith("-np 0: "));
  CHECK_THAT(Error({"-np", "x", "w"}), StartsWith("-np x: "));
  CHECK_THAT(Error({"-np", "-2", "w"}), StartsWith("-np -2: "));
  CHECK_THAT(Error({"-np", "2.5", "w"}), StartsWith("-np 2.5: "));
  CHECK_THAT(Error({"-np", "2", "--min-np", "0", "w"}), StartsWith("--min-np 0: "));
  CHECK_THAT(Error({"-np", "2", "--min-np", "3", "w"}),
             StartsWith("--min-np 3: ") && Contains("-np 2"));
  CHECK_THAT(Error({"-np", "4", "--min-np", "1", "--max-np", "2", "w"}),
             StartsWith("--max-np 2: ") && Contains("-np 4"));
  CHECK_THAT(Error({"-np", "2"}), Contains("no command"));
  CHECK_THAT(Error({"-np", "2", "--"}), Contains("no command"));
}

TEST_CASE("options count the last of a flag given twice") {
  CHECK(Run({"-np", "2", "--num-proc", "3", "w"}).membership.np_start == 3);
}

// ---------------------------------------------------------------- hosts

TEST_CASE("options take -H, with the count of --slots-per-host where there is none") {
  CHECK(Run({"-np", "3", "-H", "localhost:1,127.0.0.1:2", "w"}).hosts ==
        Hosts{{HostId{"localhost"}, 1}, {HostId{"127.0.0.1"}, 2}});
  CHECK(Run({"-np", "5", "-H", "a,[::1]:1", "--slots", "4", "w"}).hosts ==
        Hosts{{HostId{"a"}, 4}, {HostId{"::1"}, 1}});
  CHECK(Run({"-np", "2", "-H", "[::1]", "--slots", "2", "w"}).hosts == Hosts{{HostId{"::1"}, 2}});
  CHECK_THAT(Error({"-np", "2", "-H", "a,b:1", "w"}), Contains("'a'") && Contains("--slots-per"));
  CHECK_THAT(Error({"-np", "2", "-H", "a:x", "w"}), StartsWith("-H a:x: ") && Contains("'a:x'"));
  const RunOptions doubled = Run({"-np", "2", "-H", "a:1,a:2", "w"});
  CHECK(doubled.hosts == Hosts{{HostId{"a"}, 2}});
  CHECK(doubled.warnings.size() == 1);
}

TEST_CASE("options of a list separated by blanks tell slots, need and command apart") {
  const std::string error = Error({"-np", "4", "-H", "localhost:1", "127.0.0.1:2", "W"});
  CHECK_THAT(error, Contains("found 1") && Contains("localhost:1") && Contains("needed 4"));
  CHECK_THAT(error, Contains("'127.0.0.1:2 W'") && Contains("commas"));
  CHECK_THAT(Error({"-np", "4", "-H", "localhost:1", "W"}), !Contains("commas"));
}

TEST_CASE("slot shortage stays one short line for many hosts and odd commands") {
  const std::string text = DescribeSlotShortage(
      Hosts(1000, {HostId{"a-rather-long-host-name"}, 1}), 2000, {"sh", "-c", "a\nb"});
  CHECK(text.size() < 800);
  CHECK(text.find('\n') == std::string::npos);
  CHECK_THAT(text, Contains("found 1000") && Contains("needed 2000"));
  CHECK_THAT(DescribeSlotShortage({}, 1, {"w"}), Contains("found 0 (no hosts)"));
}

TEST_CASE("options take one source of hosts only") {
  CHECK(Run({"-np", "2", "-hostfile", "h.txt", "w"}).hostfile == "h.txt");
  CHECK_THAT(Error({"-np", "2", "-H", "a:2", kScript, "d", "w"}),
             Contains("-H and --host-discovery-script"));
  CHECK_THAT(Error({"-np", "2", "-H", "a:2", "--hostfile", "f", "w"}),
             Contains("-H and --hostfile"));
  // A flag beats the variables of the others.
  const RunOptions options = Run({"-np", "2", "-H", "a:2", "w"}, {"MUSTER_HOSTFILE=f"});
  CHECK(options.hostfile.empty());
  CHECK(options.hosts == Hosts{{HostId{"a"}, 2}});
}

TEST_CASE("options of discovery have a second and half a minute by default") {
  const RunOptions options = Run({"-np", "2", kScript, "d", "w"});
  CHECK(options.discovery_interval == seconds(1));
  CHECK(options.discovery_timeout == seconds(30));
  CHECK_THAT(Error({"-np", "2", kScript, "d", "--discovery-interval", "0", "w"}),
             StartsWith("--discovery-interval 0: "));
  CHECK_THAT(Error({"-np", "2", kScript, "", "w"}), Contains("must not be empty"));
}

// ---------------------------------------------------------------- limits, stall, output

TEST_CASE("options take times in seconds with decimals") {
  const RunOptions options = Run({"-np",
                                  "2",
                                  "--min-np",
                                  "1",
                                  "--elastic-timeout",
                                  "3",
                                  "--start-timeout",
                                  "0.25",
                                  "--grace",
                                  "0",
                                  "--driver-grace",
                                  "5",
                                  "--discovery-interval",
                                  "0.1",
                                  "w"});
  CHECK(options.membership.elastic_timeout == seconds(3));
  CHECK(options.membership.start_timeout == milliseconds(250));
  CHECK(options.membership.grace == seconds(0));
  CHECK(options.membership.driver_grace == seconds(5));
  CHECK(options.discovery_interval == milliseconds(100));
}

TEST_CASE("options refuse times that are none") {
  for (const char* bad : {"-1", "x", "1s", "inf", "nan", "1e5", "1e99", "999999999999"}) {
    CAPTURE(bad);
    CHECK_THAT(Error({"-np", "2", std::string("--elastic-timeout=") + bad, "w"}),
               StartsWith("--elastic-timeout " + std::string(bad)));
  }
}

TEST_CASE("options have limits of zero and none") {
  CHECK_FALSE(Run({"-np", "2", "w"}).membership.reset_limit.has_value());
  const RunOptions options =
      Run({"-np", "2", "--min-np", "1", "--reset-limit", "0", "--failure-limit", "3", "w"});
  CHECK(options.membership.reset_limit == 0);
  CHECK(options.membership.failure_limit == 3);
  CHECK_THAT(Error({"-np", "2", "--reset-limit", "-1", "w"}), StartsWith("--reset-limit -1: "));
}

TEST_CASE("options take a cooldown range of two ordered values within bounds") {
  const auto cooldown =
      Run({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "1", "3600", "w"})
          .membership.cooldown;
  REQUIRE(cooldown.has_value());
  CHECK(cooldown->low == seconds(1));
  CHECK(cooldown->high == seconds(3600));
  const auto [low, high] = GENERATE(table<const char*, const char*>(
      {{"10", "5"}, {"0.05", "5"}, {"1", "3601"}, {"x", "5"}, {"1", "x"}, {"-1", "5"}}));
  CHECK_THAT(Error({"-np", "2", "--blacklist-cooldown-range", low, high, "w"}),
             StartsWith(std::string("--blacklist-cooldown-range ") + low + " " + high + ": "));
}

TEST_CASE("options take the blame by slot or by host") {
  CHECK_FALSE(Run({"-np", "2", "--min-np", "1", "w"}).membership.blame_host);
  CHECK(Run({"-np", "2", "--min-np", "1", "--blame", "host", "w"}).membership.blame_host);
  CHECK_THAT(Error({"-np", "2", "--blame", "me", "w"}), StartsWith("--blame me: "));
}

TEST_CASE("options of a static job warn of flags that only elastic ones heed") {
  const RunOptions options = Run({"-np", "2", "--reset-limit", "1", "--blame", "host", "w"});
  CHECK(options.warnings.size() == 2);
  CHECK(Run({"-np", "2", "--elastic-timeout", "9", "w"}).warnings.empty());
}

TEST_CASE("options of the stall check warn before they shut down") {
  const RunOptions plain = Run({"-np", "2", "w"});
  CHECK(plain.stall_warning == seconds(60));
  CHECK(plain.stall_shutdown == seconds(0));
  const RunOptions both = Run({"-np",
                               "2",
                               "--stall-check-warning-time-seconds",
                               "2",
                               "--stall-check-shutdown-time-seconds",
                               "6",
                               "w"});
  CHECK(both.stall_warning == seconds(2));
  CHECK(both.stall_shutdown == seconds(6));
  CHECK(both.worker_environment.at("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS") == "6");
  const RunOptions only = Run({"-np", "2", "--stall-check-shutdown-time-seconds", "6", "w"});
  CHECK(only.stall_warning == seconds(6));  // Not at 60, long after the end.
  CHECK_THAT(Error({"-np",
                    "2",
                    "--stall-check-warning-time-seconds",
                    "6",
                    "--stall-check-shutdown-time-seconds",
                    "2",
                    "w"}),
             StartsWith("--stall-check-shutdown-time-seconds 2: "));
}

TEST_CASE("options switch the stall check off, and a flag switches it on again") {
  CHECK(Run({"-np", "2", "--no-stall-check", "w"}).stall_warning == seconds(0));
  const Words off{"HOROVOD_STALL_CHECK_DISABLE=1"};
  CHECK(Run({"-np", "2", "w"}, off).stall_warning == seconds(0));
  CHECK(Run({"-np", "2", "--stall-check", "w"}, off).stall_warning == seconds(60));
  CHECK(Run({"-np", "2", "w"}, {"HOROVOD_STALL_CHECK_DISABLE=0"}).stall_warning == seconds(60));
  CHECK_THAT(Error({"-np", "2", "--stall-check", "--no-stall-check", "w"}), Contains("contradict"));
}

TEST_CASE("options of output") {
  const RunOptions plain = Run({"-np", "2", "w"});
  CHECK(plain.output_filename.empty());
  CHECK_FALSE(plain.prefix_timestamp);
  CHECK(plain.log_level == "WARNING");
  const RunOptions all = Run(
      {"-np", "2", "--output-filename", "logs", "-prefix-timestamp", "--log-level", "debug", "w"});
  CHECK(all.output_filename == "logs");
  CHECK(all.prefix_timestamp);
  CHECK(all.log_level == "DEBUG");
  CHECK(all.worker_environment.at("HOROVOD_LOG_LEVEL") == "debug");
  CHECK_THAT(Error({"-np", "2", "--log-level", "loud", "w"}), StartsWith("--log-level loud: "));
}

TEST_CASE("verbose logs at INFO unless a flag says otherwise") {
  CHECK(Run({"-np", "2", "--verbose", "w"}).log_level == "INFO");
  CHECK(Run({"-np", "2", "--verbose", "w"}, {"HOROVOD_LOG_LEVEL=ERROR"}).log_level == "INFO");
  CHECK(Run({"-np", "2", "--verbose", "--log-level", "TRACE", "w"}).log_level == "TRACE");
}

// ---------------------------------------------------------------- environment

// Flag, variable, value, and a way to see it.
struct Tunable {
  const char* flag;
  const char* variable;
  const char* value;
};

std::string SettingOf(const RunOptions& options, const std::string& flag) {
  for (const Setting& setting : options.settings) {
    if (setting.flag == flag) {
      return setting.value + " (" + setting.origin + ")";
    }
  }
  return "absent";
}

TEST_CASE("flag counts more than environment, and that more than the built-in value") {
  const Tunable tunable = GENERATE(values<Tunable>({
      {"-np", "MUSTER_NP", "3"},
      {"--min-np", "MUSTER_MIN_NP", "1"},
      {"--max-np", "MUSTER_MAX_NP", "7"},
      {"--spares", "MUSTER_SPARES", "2"},
      {"-H", "MUSTER_HOSTS", "a:9"},
      {"--slots-per-host", "MUSTER_SLOTS_PER_HOST", "3"},
      {"--discovery-interval", "MUSTER_DISCOVERY_INTERVAL", "5"},
      {"--discovery-timeout", "MUSTER_DISCOVERY_TIMEOUT", "5"},
      {"--start-timeout", "HOROVOD_START_TIMEOUT", "5"},
      {"--elastic-timeout", "HOROVOD_ELASTIC_TIMEOUT", "5"},
      {"--accept-agents", "MUSTER_ACCEPT_AGENTS", "5"},
      {"-p", "MUSTER_SSH_PORT", "22"},
      {"-i", "MUSTER_SSH_IDENTITY_FILE", "key"},
      {"--strict-host-key-checking", "MUSTER_STRICT_HOST_KEY_CHECKING", "no"},
      {"--rsh-agent", "MUSTER_RSH_AGENT", "rsh"},
      {"--rsh-agent", "OMPI_MCA_plm_rsh_agent", "rsh"},
      {"--remote-muster", "MUSTER_REMOTE_MUSTER", "/muster"},
      {"--forward-environment", "MUSTER_FORWARD_ENVIRONMENT", "A"},
      {"--network-interface", "MUSTER_NETWORK_INTERFACE", "lo"},
      {"--address-family", "MUSTER_ADDRESS_FAMILY", "ipv6"},
      {"--port-range", "MUSTER_PORT_RANGE", "5"},
      {"--grace", "MUSTER_GRACE", "5"},
      {"--driver-grace", "MUSTER_DRIVER_GRACE", "5"},
      {"--reset-limit", "MUSTER_RESET_LIMIT", "5"},
      {"--failure-limit", "MUSTER_FAILURE_LIMIT", "5"},
      {"--blame", "MUSTER_BLAME", "host"},
      {"--output-filename", "MUSTER_OUTPUT_FILENAME", "logs"},
      {"--log-level", "HOROVOD_LOG_LEVEL", "INFO"},
      {"--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", "5"},
      {"--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "99"},
  }));
  const std::string value = tunable.value;
  const std::string variable = tunable.variable;
  const Words base{"-np", "2", "--min-np", "2", "w"};
  CAPTURE(tunable.flag);
  Words bare = base;
  if (variable == "MUSTER_NP") {
    bare.erase(bare.begin(), bare.begin() + 2);
  } else if (variable == "MUSTER_MIN_NP") {
    bare.erase(bare.begin() + 2, bare.begin() + 4);
  }
  const std::string secret = "MUSTER_SECRET_FILE=/secret";  // For --accept-agents.
  CHECK(SettingOf(Run(bare, {variable + "=" + value, secret}), tunable.flag) ==
        value + " (environment " + variable + ")");
  Words flagged = bare;
  flagged.insert(flagged.begin(), {tunable.flag, value});
  const std::string other = variable + "=4";
  CHECK(SettingOf(Run(flagged, {other, secret}), tunable.flag) == value + " (flag)");
  CHECK_THAT(SettingOf(Run(base, {variable + "="}), tunable.flag),
             !Contains("environment"));  // Empty is absent.
}

TEST_CASE("environment values reach the options themselves") {
  const RunOptions options = Run({"w"},
                                 {"MUSTER_NP=3",
                                  "MUSTER_MIN_NP=2",
                                  "HOROVOD_ELASTIC_TIMEOUT=7",
                                  "MUSTER_BLACKLIST_COOLDOWN_RANGE=2,9",
                                  "MUSTER_PREFIX_OUTPUT_WITH_TIMESTAMP=1",
                                  "MUSTER_VERBOSE=0"});
  CHECK(options.membership.elastic);
  CHECK(options.membership.np_start == 3);
  CHECK(options.membership.np_min == 2);
  CHECK(options.membership.elastic_timeout == seconds(7));
  CHECK(options.membership.cooldown->high == seconds(9));
  CHECK(options.prefix_timestamp);
  CHECK_FALSE(options.verbose);
}

TEST_CASE("bad environment values are errors that name the variable") {
  CHECK_THAT(Error({"-np", "2", "w"}, {"HOROVOD_ELASTIC_TIMEOUT=soon"}),
             StartsWith("HOROVOD_ELASTIC_TIMEOUT=soon (the default of --elastic-timeout): "));
  CHECK_THAT(Error({"-np", "2", "w"}, {"MUSTER_BLACKLIST_COOLDOWN_RANGE=2"}),
             StartsWith("MUSTER_BLACKLIST_COOLDOWN_RANGE") && Contains("LO HI"));
  CHECK(Run({"-np", "2", "--elastic-timeout", "5", "w"}, {"HOROVOD_ELASTIC_TIMEOUT=soon"})
            .membership.elastic_timeout == seconds(5));
}

TEST_CASE("settings show the built-in values") {
  const RunOptions options = Run({"-np", "2", "w"});
  CHECK(SettingOf(options, "--elastic-timeout") == "600 (built-in)");
  CHECK(SettingOf(options, "--min-np") == "2 (built-in)");
  CHECK(SettingOf(options, "-H") == "localhost:2 (built-in)");
}

// ---------------------------------------------------------------- horovodrun's other flags

TEST_CASE("inert flags set their variable and warn once") {
  struct Inert {
    Words words;
    const char* variable;
    const char* value;
  };
  const Inert inert = GENERATE(values<Inert>({
      {{"--gloo"}, "HOROVOD_CONTROLLER", "gloo"},
      {{"--gloo"}, "HOROVOD_CPU_OPERATIONS", "gloo"},
      {{"--cycle-time-ms", "3.5"}, "HOROVOD_CYCLE_TIME", "3.5"},
      {{"--hierarchical-allreduce"}, "HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
      {{"--no-hierarchical-allgather"}, "HOROVOD_HIERARCHICAL_ALLGATHER", "0"},
      {{"--autotune"}, "HOROVOD_AUTOTUNE", "1"},
      {{"--timeline-filename", "t.json"}, "HOROVOD_TIMELINE", "t.json"},
      {{"--tcp"}, "NCCL_IB_DISABLE", "1"},
      {{"--num-nccl-streams", "2"}, "HOROVOD_NUM_NCCL_STREAMS", "2"},
      {{"--log-hide-timestamp"}, "HOROVOD_LOG_HIDE_TIME", "1"},
  }));
  Words words = inert.words;
  words.insert(words.end(), {"-np", "2", "w"});
  const RunOptions options = Run(words);
  REQUIRE(options.worker_environment.contains(inert.variable));
  CHECK(options.worker_environment.at(inert.variable) == inert.value);
  REQUIRE(options.warnings.size() == 1);
  const Flag* flag = FindFlag(inert.words[0]);
  REQUIRE(flag != nullptr);
  CHECK_THAT(options.warnings[0], StartsWith(std::string(ShownName(*flag)) + " has no effect: "));
}

TEST_CASE("variables of Horovod that do nothing here are warned of, once") {
  const RunOptions options =
      Run({"-np", "2", "w"}, {"HOROVOD_CYCLE_TIME=5", "HOROVOD_AUTOTUNE=1", "PATH=/bin"});
  REQUIRE(options.warnings.size() == 2);
  CHECK_THAT(options.warnings[0], StartsWith("HOROVOD_CYCLE_TIME has no effect: "));
  CHECK_THAT(options.warnings[1], StartsWith("HOROVOD_AUTOTUNE has no effect: "));
  CHECK(Run({"-np", "2", "w"}, {"HOROVOD_AUTOTUNE=0", "HOROVOD_CYCLE=1"}).warnings.empty());
  const Words flag = {"--cycle-time-ms", "3", "-np", "2", "w"};
  CHECK(Run(flag, {"HOROVOD_CYCLE_TIME=5"}).warnings.size() == 1);
}

TEST_CASE("flags without a variable are accepted with a warning") {
  for (const Words& flag : {Words{"--disable-cache"},
                            Words{"--mpi-args", "-x A"},
                            Words{"--binding-args=--bind-to none"}}) {
    Words words = flag;
    words.insert(words.end(), {"-np", "2", "w"});
    const RunOptions options = Run(words);
    CHECK(options.warnings.size() == 1);
    CHECK(options.worker_environment.empty());
  }
}

TEST_CASE("files of tuner and timeline marks count only with tuner and timeline") {
  CHECK(Run({"--autotune-log-file", "f", "-np", "2", "w"}).worker_environment.empty());
  CHECK(Run({"--autotune", "--autotune-log-file", "f", "-np", "2", "w"})
            .worker_environment.contains("HOROVOD_AUTOTUNE_LOG"));
  CHECK(Run({"--timeline-mark-cycles", "-np", "2", "w"}).worker_environment.empty());
}

TEST_CASE("flags that are not given leave the workers' environment alone") {
  CHECK(Run({"-np", "2", "w"}, {"HOROVOD_CYCLE_TIME=9", "HOROVOD_LOG_LEVEL=info"})
            .worker_environment.empty());
}

TEST_CASE("negative tuning numbers are refused") {
  const char* name = GENERATE("--fusion-threshold-mb",
                              "--cycle-time-ms",
                              "--cache-capacity",
                              "--autotune-warmup-samples",
                              "--autotune-steps-per-sample",
                              "--autotune-bayes-opt-max-samples",
                              "--num-nccl-streams",
                              "--gloo-timeout-seconds",
                              "--autotune-gaussian-process-noise");
  CHECK_THAT(Error({"-np", "2", name, "-1", "w"}), StartsWith(std::string(name) + " -1: "));
  CHECK_THAT(Error({"-np", "2", "--autotune-gaussian-process-noise", "1.1", "w"}),
             Contains("from 0 to 1"));
}

TEST_CASE("flags of other launchers are refused with a sentence") {
  CHECK_THAT(Error({"-np", "2", "--mpi", "w"}), StartsWith("--mpi: ") && Contains("MPI"));
  CHECK_THAT(Error({"-np", "2", "--jsrun", "w"}), StartsWith("--jsrun: "));
  CHECK_THAT(Error({"-np", "2", "--config-file", "f", "w"}), StartsWith("--config-file: "));
}

}  // namespace
}  // namespace muster::launcher
