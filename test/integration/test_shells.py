"""User cases 33, 62, 63, 64, 66, 67 and 87: remote shells other than ssh, such that fail, and what
they may see. A stub takes the place of the shell and runs the command here."""

import ast
import contextlib
import fcntl
import os
import pty
import re
import secrets
import signal
import subprocess
import sys
import termios
import threading
import time
import unittest

import harness
import netns
from harness import GO

STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
# Each stub starts with this: $1 is the host, $2 the command. It logs its argv byte for byte.
LOG_ARGV = """{ for a in "$@"; do printf '%s\\0' "$a"; done; printf '\\n\\0'; } >> "$STUB_LOG"
"""
# What a login on another machine has, and the mark by which the test finds its processes.
RUN_AS_ELSEWHERE = ("exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/ "
                    f"{harness.TOKEN_NAME}=${harness.TOKEN_NAME} sh -c \"$2\"\n")
FOR_EVER = "exec sleep 600\n"
CANNOT_RESOLVE = ('echo "ssh: Could not resolve hostname $1: Name or service not known" >&2\n'
                  "exit 255\n")


def routable_address():
    """Of this machine, or None: agents elsewhere, which the stub's count as, need one to dial."""
    text = subprocess.run(["ip", "-o", "address", "show", "scope", "global", "up"],
                          capture_output=True, text=True, check=False).stdout
    return next(iter(re.findall(r"inet6? ([0-9a-f.:]+)/", text)), None)


class ShellTest(harness.JobTest):
    """On this machine, or, if it has no address that others could dial, in a namespace."""

    network = None

    @classmethod
    def setUpClass(cls):
        if routable_address() is not None:
            return
        why_not = netns.available()
        if why_not:
            raise unittest.SkipTest(f"this machine has no routable address, and {why_not}")
        cls.network = netns.Network(hosts=[], clients=["driver"]).open()
        cls.addClassCleanup(cls.network.close)

    def prepare(self, body, name="rsh", args=(), env=None, **options):
        """A job whose remote shell is a stub with this body; not started yet."""
        job = harness.Job(network=self.network, **options)
        self.addCleanup(lambda: job.close(keep=self._failed()))
        job.stub_log = os.path.join(job.folder, "stub.log")
        open(job.stub_log, "wb").close()
        folder = os.path.join(job.folder, "bin")
        os.mkdir(folder)
        job.stub = job.write_script(LOG_ARGV + body, os.path.join("bin", name))
        job.environment.update({"STUB_LOG": job.stub_log, "STUB_FOLDER": job.folder})
        job.environment.update(env or {})
        if name == "ssh":
            job.environment["PATH"] = folder + ":" + job.environment["PATH"]
        else:
            args = ["--rsh-agent", job.stub, *args]
        place = next(i for i, word in enumerate(job.argv) if word.endswith("/horovodrun"))
        job.argv[place + 1:place + 1] = [str(a) for a in args]
        return job

    def start(self, *arguments, **options):
        return self.prepare(*arguments, **options).start()

    def calls(self, job):
        """The argv of each call of the stub, without its own name."""
        with open(job.stub_log, "rb") as file:
            text = file.read().decode()
        return [call.split("\0")[:-1] for call in text.split("\n\0")[:-1]]

    def calls_for(self, job, host):
        return [call for call in self.calls(job) if host in call]


class OtherShells(ShellTest):
    """Case 64."""

    def test_it_is_called_once_per_host_with_the_host_and_one_command(self):
        job = self.start(RUN_AS_ELSEWHERE, hosts="localhost:1\nhosta:2\na_b-1.example:1", np=4,
                         min_np=4, worker={"steps": 20, "sleep_ms": 10})
        self.assert_clean(job)
        self.assert_finished(job, 20)
        calls = self.calls(job)
        self.assertEqual(sorted(call[0] for call in calls), ["a_b-1.example", "hosta"],
                         job.report())
        for call in calls:
            self.assertEqual(len(call), 2, call)
            self.assertIn("agent", call[1])
        self.assertEqual(sorted(e.host for e in job.events("init")),
                         ["a_b-1.example", "hosta", "hosta", "localhost"])

    def test_it_may_have_arguments_of_its_own(self):
        job = self.prepare('shift 2\n' + RUN_AS_ELSEWHERE, hosts="hosta:1", np=1, min_np=1,
                           worker={"steps": 5, "sleep_ms": 1})
        place = job.argv.index("--rsh-agent") + 1
        job.argv[place] += " --context here"
        job.start()
        self.assert_clean(job)
        self.assertEqual([call[:3] for call in self.calls(job)], [["--context", "here", "hosta"]])

    def test_output_and_code_pass_through(self):
        job = self.start(RUN_AS_ELSEWHERE, elastic=False, np=1, args=["-H", "hosta:1"],
                         command=["sh", "-c", "echo to-stdout; echo to-stderr >&2; exit 9"])
        self.assert_clean(job, code=9)
        self.assertIn("[0]<stdout>:to-stdout\n", job.stdout())
        self.assertIn("[0]<stderr>:to-stderr\n", job.stdout() + job.stderr())

    def test_local_hosts_never_use_it(self):
        job = self.start(RUN_AS_ELSEWHERE, hosts="localhost:1\n127.0.0.1:1", np=2, min_np=2,
                         worker={"steps": 5, "sleep_ms": 1})
        self.assert_clean(job)
        self.assertEqual(self.calls(job), [])

    def ssh_call(self, *args, **options):
        # The last argument is the command, the one before it the host.
        body = 'while [ $# -gt 2 ]; do shift; done\n' + RUN_AS_ELSEWHERE
        job = self.start(body, name="ssh", hosts="hosta:1", np=1, min_np=1, args=args,
                         worker={"steps": 5, "sleep_ms": 1}, **options)
        self.assert_clean(job)
        calls = self.calls(job)
        self.assertEqual(len(calls), 1, calls)
        self.assertEqual(calls[0][-2], "hosta", calls)
        return " ".join(calls[0][:-2])

    def test_ssh_gets_port_and_key(self):
        key = os.path.join("/nonexistent", "my key")
        words = self.ssh_call("-p", 2222, "-i", key)
        self.assertRegex(words, r"-p ?2222\b")
        self.assertIn(key, words)

    def test_ssh_never_asks(self):
        words = self.ssh_call()
        self.assertRegex(words, r"BatchMode[= ]yes")
        self.assertNotIn("StrictHostKeyChecking", words)
        self.assertNotRegex(words, r"-p ?\d")

    def test_ssh_checks_host_keys_as_asked(self):
        self.assertRegex(self.ssh_call("--strict-host-key-checking", "accept-new"),
                         r"StrictHostKeyChecking[= ]accept-new")

    def test_the_shell_of_open_mpi_is_taken_over(self):
        job = self.prepare(RUN_AS_ELSEWHERE, hosts="hosta:1", np=1, min_np=1,
                           worker={"steps": 5, "sleep_ms": 1})
        place = job.argv.index("--rsh-agent")
        del job.argv[place:place + 2]
        job.environment["OMPI_MCA_plm_rsh_agent"] = job.stub
        job.start()
        self.assert_clean(job)
        self.assertEqual([call[0] for call in self.calls(job)], ["hosta"])

    def test_another_muster_is_started_where_it_lies(self):
        job = self.start(RUN_AS_ELSEWHERE, hosts="hosta:1", np=1, min_np=1,
                         args=["--remote-muster", os.path.join(harness.BIN, "muster")],
                         worker={"steps": 5, "sleep_ms": 1})
        self.assert_clean(job)
        self.assertIn(os.path.join(harness.BIN, "muster"), self.calls(job)[0][1])

    def test_one_that_does_not_lie_there_is_named(self):
        job = self.start(RUN_AS_ELSEWHERE, hosts="localhost:1\nhosta:1", np=2, min_np=1,
                         args=["--remote-muster", "/nonexistent/muster", "--start-timeout", 2],
                         worker={"steps": 20, "sleep_ms": 10})
        self.assert_clean(job)
        self.assert_message(job, r"hosta.*/nonexistent/muster")


class ShellsThatFail(ShellTest):
    """Cases 33, 62, 63 and 87."""

    def check_blocked_host(self, body):
        job = self.start(f'if [ "$1" = hostb ]; then\n{body}fi\n' + RUN_AS_ELSEWHERE,
                         hosts="hosta:1\nhostb:1", np=2, min_np=1,
                         args=["--start-timeout", 3, *STAYS_OUT],
                         worker={"steps": 30, "sleep_ms": 10, "go_file": GO})
        job.wait_size(1, limit=20)
        self.assertEqual(len(self.calls_for(job, "hostb")) >= 1, True, job.report())
        job.wait_for(lambda: "hostb" in job.stderr(), "a word about hostb")
        job.let_go()
        self.assert_clean(job)
        self.assertEqual({e.host for e in job.events("init")}, {"hosta"})

    def test_a_host_whose_shell_hangs_is_left_out(self):
        self.check_blocked_host(FOR_EVER)

    def test_a_shell_that_hangs_deaf_to_signals_is_killed(self):
        self.check_blocked_host("trap '' TERM INT HUP\nwhile :; do sleep 600; done\n")

    def check_two_hosts_that_fail(self, body, **options):
        limit = 2
        job = self.start(body, name="ssh", elastic=False, np=2,
                         args=["-H", "hosta:1,hostb:1", "--start-timeout", limit],
                         command=["true"], **options)
        code = job.wait_exit(30)
        self.assertNotEqual(code, 0, job.report())
        self.assertLess(job.ended - job.started, limit + 5, job.report())
        self.assert_clean(job, code=code)
        self.assertRegex(job.last_line(), r"hosta.*hostb|hostb.*hosta", job.report())
        return job

    def test_two_that_exit_with_255(self):
        job = self.check_two_hosts_that_fail('for host; do :; done\n'
                                             'echo "ssh: connect to port 22: No route" >&2\n'
                                             "exit 255\n")
        self.assert_message(job, "No route")

    def test_two_that_sleep_for_ever(self):
        self.check_two_hosts_that_fail(FOR_EVER)

    def test_interrupt_leaves_no_shell_behind(self):
        job = self.start(FOR_EVER, name="ssh", elastic=False, np=2,
                         args=["-H", "hosta:1,hostb:1", "--grace", 1], command=["true"])
        job.wait_for(lambda: len(self.calls(job)) == 2, "both shells")
        job.kill(job.pid, signal.SIGINT)
        self.assert_clean(job, code=130)

    def test_a_password_is_never_asked_for(self):
        """On a job with a terminal, a shell that wants to ask finds none."""
        try:
            master, slave = pty.openpty()
        except OSError as error:
            self.skipTest(f"this machine gives no terminal (is /dev/pts mounted?): {error}")
        self.addCleanup(os.close, master)
        job = self.prepare('if ( printf "password for %s:" "$1" > /dev/tty; read x < /dev/tty ) '
                           '2> /dev/null; then touch "$STUB_FOLDER/asked"; fi\nexit 255\n',
                           name="ssh", elastic=False, np=2,
                           args=["-H", "hosta:1,hostb:1", "--start-timeout", 2], command=["true"])

        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            harness.die_with_the_harness()

        job.started = time.monotonic()
        with open(job.stdout_path, "wb") as out, open(job.stderr_path, "wb") as err:
            job.process = subprocess.Popen(job.argv, cwd=job.folder, env=job.environment,
                                           stdin=slave, stdout=out, stderr=err,
                                           preexec_fn=take_terminal)
        os.close(slave)
        code = job.wait_exit(30)
        self.assertNotEqual(code, 0)
        self.assertGreaterEqual(len(self.calls(job)), 2, job.report())
        self.assertFalse(os.path.exists(os.path.join(job.folder, "asked")))
        os.set_blocking(master, False)
        shown = b""
        with contextlib.suppress(OSError):
            shown = os.read(master, 65536)
        self.assertNotIn(b"password", shown)

    def test_a_host_that_is_not_there_yet_is_tried_until_it_is(self):
        body = (f'if [ "$1" = hostb ] && [ ! -e "$STUB_FOLDER/up" ]; then\n{CANNOT_RESOLVE}fi\n'
                + RUN_AS_ELSEWHERE)
        job = self.start(body, hosts="hosta:1\nhostb:1", np=2, min_np=2,
                         worker={"steps": 20, "sleep_ms": 10})
        job.wait_for(lambda: len(self.calls_for(job, "hostb")) >= 3, "three attempts", limit=30)
        self.assertEqual(job.events("world"), [])
        open(os.path.join(job.folder, "up"), "w", encoding="utf-8").close()
        job.wait_size(2, limit=25)
        self.assert_clean(job)
        self.assertEqual(len(self.calls_for(job, "hosta")), 1)

    def test_a_host_that_never_comes_is_named_at_the_limit(self):
        body = f'if [ "$1" = hostb ]; then\n{CANNOT_RESOLVE}fi\n' + RUN_AS_ELSEWHERE
        job = self.start(body, hosts="hosta:1\nhostb:1", np=2, min_np=2,
                         args=["--start-timeout", 3, "--elastic-timeout", 4],
                         worker={"steps": 20, "sleep_ms": 10})
        code = job.wait_exit(40)
        self.assertNotEqual(code, 0)
        self.assert_clean(job, code=code)
        self.assertIn("hostb", job.last_line())
        self.assertNotIn("hosta", job.last_line())

    def test_the_start_limit_names_just_the_host_that_is_missing(self):
        limit = 4
        job = self.start(f'if [ "$1" = hostc ]; then\n{FOR_EVER}fi\n' + RUN_AS_ELSEWHERE,
                         elastic=False, np=3,
                         args=["-H", "hosta:1,hostb:1,hostc:1", "--start-timeout", limit],
                         worker={"steps": 20, "sleep_ms": 10})
        code = job.wait_exit(40)
        self.assertNotEqual(code, 0)
        took = job.ended - job.started
        self.assertGreater(took, limit - 0.5, job.report())
        self.assertLess(took, limit + 4, job.report())
        self.assert_clean(job, code=code)
        self.assertIn("hostc", job.last_line())
        self.assertNotRegex(job.last_line(), "host[ab]")

    def test_one_that_does_not_pass_standard_input_on_is_told(self):
        job = self.start('exec sh -c "$2" < /dev/null\n', elastic=False, np=1,
                         args=["-H", "hosta:1", "--start-timeout", 3], command=["true"])
        code = job.wait_exit(30)
        self.assertNotEqual(code, 0)
        self.assert_message(job, "hosta")
        self.assert_message(job, "standard input")


# Writes what it was given; never calls init(), so that code 0 is success.
DUMP = """
import os, sys
with open(os.path.join(sys.argv[1], "dump-" + os.environ["MUSTER_HOST"]), "w") as file:
    file.write(repr({"environment": dict(os.environb), "argv": sys.argv[2:]}))
"""


class Environment(ShellTest):
    """Cases 66 and 67."""

    HOSTS = ("localhost", "hosta")

    def dumps(self, env, args=(), words=()):
        job = self.prepare(RUN_AS_ELSEWHERE, elastic=False, np=2, env=env,
                           args=["-H", "localhost:1,hosta:1", *args], command=["true"])
        job.argv[-1:] = [sys.executable, "-c", DUMP, job.folder, *words]
        job.start()
        self.assert_clean(job)
        found = {}
        for host in self.HOSTS:
            with open(os.path.join(job.folder, "dump-" + host), encoding="utf-8") as file:
                found[host] = ast.literal_eval(file.read())
        return found

    def test_every_value_arrives_byte_for_byte(self):
        values = {
            "X": "a b\n\"c\"\\'$HOME'`id`", "EMPTY": "", "UTF": "größe 東京", "LONG": "y" * 100_000,
            "EQUALS": "a=b=c", "TRAILING": "newline\n", "STAR": "* ; & | < > ( )",
            "BASH_FUNC_f%%": "() { :;\n}", "A.B": "1"}
        for host, dump in self.dumps(values).items():
            for name, value in values.items():
                if re.fullmatch(r"\w+", name):
                    self.assertEqual(dump["environment"].get(name.encode()), value.encode(),
                                     (host, name))

    def test_the_command_arrives_unchanged(self):
        words = ["a b", "", "\"quoted\" 'single'", "*", ";", "$HOME", "`id`", "\\", "new\nline",
                 "--", "-np"]
        for host, dump in self.dumps({}, words=words).items():
            self.assertEqual(dump["argv"], words, host)

    def test_which_gpus_are_seen_stays_on_its_machine(self):
        found = self.dumps({"CUDA_VISIBLE_DEVICES": "7"})
        self.assertEqual(found["localhost"]["environment"].get(b"CUDA_VISIBLE_DEVICES"), b"7")
        self.assertNotIn(b"CUDA_VISIBLE_DEVICES", found["hosta"]["environment"])

    def test_unless_asked_for(self):
        found = self.dumps({"CUDA_VISIBLE_DEVICES": "7"},
                           args=["--forward-environment", "CUDA_VISIBLE_DEVICES"])
        self.assertEqual(found["hosta"]["environment"].get(b"CUDA_VISIBLE_DEVICES"), b"7")


def protobuf_strings(data):
    """field number -> last value, of the length-delimited fields of a flat message."""
    def varint(at):
        value = shift = 0
        while True:
            byte = data[at]
            value |= (byte & 0x7F) << shift
            at += 1
            shift += 7
            if byte < 0x80:
                return value, at

    fields, at = {}, 0
    while at < len(data):
        tag, at = varint(at)
        if tag & 7 == 2:
            size, at = varint(at)
            fields[tag >> 3] = data[at:at + size]
            at += size
        elif tag & 7 == 0:
            _, at = varint(at)
        else:
            raise ValueError(f"wire type {tag & 7}")
    return fields


class Watcher:
    """Reads every command line on the machine, and the environments of a job, again and again."""

    def __init__(self, token):
        self.marker = f"{harness.TOKEN_NAME}={token}".encode()
        self.command_lines = set()
        self.environments = {}
        self.rounds = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        own = os.getpid()
        while not self._stop.wait(0.005):
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) != own:
                    self._look_at(name)
            self.rounds += 1

    def _look_at(self, pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                self.command_lines.add(file.read())
        environment = harness.process_environment(pid)
        if self.marker in environment:
            self.environments[environment] = harness.command_line(pid)


class Secrets(ShellTest):
    def test_no_command_line_has_a_secret_or_a_forwarded_value(self):
        marker = "marker-" + secrets.token_hex(8)
        # The bootstrap is read by the stub first, so that the test knows the secret.
        job = self.prepare('exec 3> "$STUB_FOLDER/bootstrap-$1"\n'
                           'tee /dev/fd/3 | (exec 3>&-; ' + RUN_AS_ELSEWHERE.strip() + ")\n",
                           hosts="localhost:1\nhosta:1\nhostb:1", np=3, min_np=3,
                           env={"FORWARDED": marker},
                           worker={"steps": 20, "sleep_ms": 10, "go_file": GO})
        with Watcher(job.token) as watcher:
            job.start()
            job.wait_size(3)
            rounds = watcher.rounds
            job.wait_for(lambda: watcher.rounds > rounds + 2, "a look at all while it runs")
            workers = [e.pid for e in job.world().values()]
            for pid in workers:
                self.assertIn(marker.encode(), harness.process_environment(pid))
            job.let_go()
            self.assert_clean(job)
        found = [self.secret_of(job, host) for host in ("hosta", "hostb")]
        self.assertEqual(found[0], found[1])
        self.assertGreaterEqual(len(found[0]), 16)
        self.assertTrue(any(b"test_worker" in line for line in watcher.command_lines))
        self.assertTrue(any(b"agent" in line for line in watcher.command_lines))
        for value in (marker.encode(), found[0]):
            self.assertEqual([c for c in watcher.command_lines if value in c], [])
        self.assertGreaterEqual(len(watcher.environments), 5)
        for environment, command in watcher.environments.items():
            self.assertNotIn(found[0], environment, command)

    @staticmethod
    def secret_of(job, host):
        with open(os.path.join(job.folder, "bootstrap-" + host), "rb") as file:
            data = file.read()
        size = int.from_bytes(data[:4], "little")
        return protobuf_strings(data[4:4 + size])[3]


if __name__ == "__main__":
    unittest.main(verbosity=2)
