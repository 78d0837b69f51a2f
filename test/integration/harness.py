"""Runs jobs under the real launcher and follows what they do.

A Job is one `horovodrun` with a discovery script that prints a file of hosts, a trace file, a log
of the test worker, and a random token in the environment by which leftovers are found. Every wait
here is bounded; nothing asserts how fast something was, except where a bound is the promise.
"""

import contextlib
import ctypes
import glob
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ.get("MUSTER_BIN") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../build/release/bin")
BIN = os.path.abspath(BIN)
WORKER = os.path.join(BIN, "test_worker")
COLLECTIVES = os.path.join(BIN, "test_collectives")
CASES = os.path.join(BIN, "test_cases")
DIGITS = os.path.join(BIN, "examples", "digits")
TOKEN_NAME = "MUSTER_TEST_TOKEN"
# As --go-file: the workers stay in their loop until Job.let_go().
GO = "{folder}/go"
POLL_S = 0.01
# Nothing of a job may be left this long after its end.
LEFTOVER_S = 5
# A bound against hangs, not a measurement: two cores may be shared with a compiler.
LIMIT_S = 60


# Jobs that tests start without a Job keep their records here, not in the home of whoever tests.
_RECORDS = tempfile.TemporaryDirectory(prefix="muster-test-records-")
os.environ["MUSTER_INCIDENT_DIR"] = _RECORDS.name

_LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def die_with_the_harness():
    """In a job's first process: a test that ctest kills for its time leaves nothing behind."""
    _LIBC.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


class Event:
    """One line of a trace: fields as attributes, absent ones are None."""

    def __init__(self, fields):
        self.fields = fields

    def __getattr__(self, name):
        return self.fields.get(name)

    @property
    def t(self):
        return self.fields["t_ns"] / 1e9

    def __repr__(self):
        return json.dumps(self.fields)


class Tail:
    """Follows a file of JSON lines that others append to. Indexed, because waits ask again and
    again, on cores that the job needs."""

    def __init__(self, path):
        self.path = path
        self.events = []
        self._by_kind = {}
        self._by_generation = {}
        self._offset = 0

    def read(self):
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
            whole = data.rfind(b"\n") + 1
            self._offset += whole
            for line in data[:whole].splitlines():
                self._add(Event(json.loads(line)))
        return self.events

    def _add(self, event):
        self.events.append(event)
        self._by_kind.setdefault(event.event, []).append(event)
        self._by_generation.setdefault((event.event, event.generation), []).append(event)

    def select(self, kind=None, **wanted):
        self.read()
        if kind is None:
            return select(self.events, None, **wanted)
        if "generation" in wanted:
            found = self._by_generation.get((kind, wanted["generation"]), [])
        else:
            found = self._by_kind.get(kind, [])
        return select(found, kind, **wanted)

    def forget(self, keep):
        """Drops the events for which keep(event) is false."""
        kept = [e for e in self.events if keep(e)]
        self.events, self._by_kind, self._by_generation = [], {}, {}
        for event in kept:
            self._add(event)


def select(events, kind=None, **wanted):
    """The events of a kind (or of any) whose fields equal the wanted ones."""
    return [e for e in events
            if (kind is None or e.event == kind)
            and all(e.fields.get(name) == value for name, value in wanted.items())]


def process_environment(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def stat_fields(pid):
    """Fields of /proc/PID/stat from the third on (state, parent, group, ...)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode(errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return []


def parent_of(pid):
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0


def is_alive(pid):
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def descendants_by_token(token):
    """Living processes that carry the token in their environment; zombies have none."""
    marker = f"{TOKEN_NAME}={token}".encode()
    return [int(name) for name in os.listdir("/proc")
            if name.isdigit() and marker in process_environment(name) and is_alive(name)]


class Job:
    def __init__(self, hosts="localhost:2", np=2, min_np=None, max_np=None, args=(), worker=None,
                 command=None, env=None, script=None, elastic=True, network=None,
                 driver_host="driver", program=WORKER):
        """`worker`: the options of `program`. With a `network` (netns.Network) the driver runs on
        its host `driver_host`."""
        self.folder = tempfile.mkdtemp(prefix="muster-test-")
        self.network = network
        # What sshd starts has none of the job's environment, but the network's.
        self.token = network.token if network else secrets.token_hex(8)
        self.hosts_file = os.path.join(self.folder, "hosts")
        self.trace = Tail(os.path.join(self.folder, "trace.jsonl"))
        self.log = Tail(os.path.join(self.folder, "log.jsonl"))
        self.stdout_path = os.path.join(self.folder, "stdout")
        self.stderr_path = os.path.join(self.folder, "stderr")
        self.process = None
        self.started = None
        self.ended = None
        self.killed = []
        self.set_hosts(hosts)
        self.script = script or self.write_script('cat "$HOSTS"')
        self.argv = self._argv(np, min_np, max_np, args, [program] if command is None else command,
                               elastic)
        for name, value in (worker or {}).items():
            self.argv += ["--" + name.replace("_", "-"),
                          str(value).replace("{folder}", self.folder)]
        if network is not None:
            self.argv = network.inside(driver_host) + self.argv
        self.environment = dict(os.environ)
        for name in [n for n in self.environment if n.startswith(("MUSTER_", "HOROVOD_"))]:
            del self.environment[name]
        self.environment.update({
            TOKEN_NAME: self.token, "HOSTS": self.hosts_file, "MUSTER_TRACE": self.trace.path,
            "TEST_LOG": self.log.path,
            "MUSTER_INCIDENT_DIR": os.path.join(self.folder, "incidents")})
        if network is not None:
            self.environment.update(network.environment())
        self.environment.update(env or {})

    def _argv(self, np, min_np, max_np, args, command, elastic):
        argv = [os.path.join(BIN, "horovodrun")]
        if np is not None:
            argv += ["-np", str(np)]
        if min_np is not None:
            argv += ["--min-np", str(min_np)]
        if max_np is not None:
            argv += ["--max-np", str(max_np)]
        if elastic:
            argv += ["--host-discovery-script", self.script]
        argv += [str(a) for a in args]
        return argv + [str(c) for c in command]

    def let_go(self):
        with open(os.path.join(self.folder, "go"), "w", encoding="utf-8"):
            pass

    def write_script(self, body, name="discover.sh"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(path, 0o755)
        return path

    def set_hosts(self, text):
        """Replaces the list in one step, as a script of a scheduler would."""
        data = text if isinstance(text, bytes) else (text + "\n" if text else "").encode()
        temporary = self.hosts_file + ".new"
        with open(temporary, "wb") as file:
            file.write(data)
        os.rename(temporary, self.hosts_file)

    # ---- life

    def start(self):
        self.started = time.monotonic()
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
                preexec_fn=die_with_the_harness)
        return self

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        if self.process.poll() is None:
            return True
        if self.ended is None:
            self.ended = time.monotonic()
        return False

    def wait_exit(self, limit=LIMIT_S):
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job still runs after {limit} s\n{self.report()}") from None
        self.ended = self.ended or time.monotonic()
        return code

    def wait_for(self, predicate, what, limit=LIMIT_S, may_end=False):
        """Calls predicate() until it is true and returns its value."""
        deadline = time.monotonic() + limit
        while True:
            ended = not self.running()
            value = predicate()
            if value:
                return value
            if ended and not may_end:
                raise AssertionError(
                    f"the job ended ({self.process.returncode}) before: {what}\n{self.report()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {limit} s: {what}\n{self.report()}")
            time.sleep(POLL_S)

    def kill(self, pid, how=signal.SIGKILL):
        os.kill(pid, how)
        self.killed.append((pid, time.monotonic()))

    def kill_all(self, pids):
        """Kills one after the other. Those that end because the first one did need no kill."""
        self.kill(pids[0])
        for pid in pids[1:]:
            try:
                self.kill(pid)
            except ProcessLookupError:
                pass

    def close(self, keep):
        """Ends what is left of the job; on failure its folder stays for the reader."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT_S)
        for pid in descendants_by_token(self.token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what happened

    def stdout(self):
        with open(self.stdout_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stderr(self):
        with open(self.stderr_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def last_line(self):
        lines = [line for line in self.stderr().splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def events(self, kind=None, **wanted):
        return self.trace.select(kind, **wanted)

    def logged(self, kind=None, **wanted):
        return self.log.select(kind, **wanted)

    def generation(self):
        return max((e.generation for e in self.events("world")), default=0)

    def world(self):
        """rank -> the `world` event of the newest generation that a worker has entered."""
        newest = self.generation()
        return {e.rank: e for e in self.events("world", generation=newest)}

    def pid_of_rank(self, rank):
        return self.world()[rank].pid

    def size(self):
        """Size of the newest world in which every member has finished a step; else 0."""
        newest = self.generation()
        members = self.events("world", generation=newest)
        stepped = {e.pid for e in self.events("step", generation=newest)}
        if members and len(members) == members[0].size and {m.pid for m in members} == stepped:
            return members[0].size
        return 0

    def wait_size(self, size, limit=LIMIT_S, after_generation=0):
        """Until a world of this size has finished a step on every rank."""
        return self.wait_for(
            lambda: self.generation() > after_generation and self.size() == size,
            f"a world of {size} that trains", limit)

    def max_step(self):
        newest = self.generation()
        steps = (self.events("step", generation=newest)
                 or self.events("step"))
        return max((e.step for e in steps), default=0)

    def wait_step(self, step, limit=LIMIT_S):
        return self.wait_for(lambda: self.max_step() >= step, f"step {step}", limit)

    def wait_more_steps(self, count, limit=LIMIT_S):
        return self.wait_step(self.max_step() + count, limit)

    def agents(self, host=None):
        """Pids of the agents proper: each is the child of a reaper that has the same command."""
        found = []
        for pid in descendants_by_token(self.token):
            is_agent = "agent" in command_line(pid)[1:2]
            of_host = host is None or self._agent_host(pid) == host
            if is_agent and of_host and "agent" in command_line(parent_of(pid))[1:2]:
                found.append(pid)
        return found

    def reapers(self):
        return [parent_of(pid) for pid in self.agents()]

    def _agent_host(self, pid):
        """An agent's host stands in no command line: by its network namespace, or its workers."""
        if self.network is not None:
            return self.network.host_of(pid)
        for event in self.events("init"):
            ancestor = event.pid
            while ancestor > 1:
                ancestor = parent_of(ancestor)
                if ancestor == pid:
                    return event.host
        return None

    def report(self):
        lines = [f"command: {' '.join(self.argv)}", f"folder: {self.folder}"]
        for name, path, count in (("stderr", self.stderr_path, 30), ("stdout", self.stdout_path, 15),
                                  ("trace", self.trace.path, 40)):
            with contextlib.suppress(OSError), open(path, encoding="utf-8",
                                                    errors="replace") as file:
                tail = file.read().splitlines()[-count:]
                lines.append(f"--- last lines of {name}")
                lines += [line[:300] for line in tail]
        return "\n".join(lines)


class JobTest(unittest.TestCase):
    """Makes jobs and holds what is true of every one of them."""

    maxDiff = None

    def job(self, **options):
        job = Job(**options)

        def cleanup():
            job.close(keep=self._failed())

        self.addCleanup(cleanup)
        return job.start()

    def _failed(self):
        result = self._outcome.result
        return any(test is self for test, _ in result.failures + result.errors) or bool(
            getattr(self._outcome, "errors", None)
            and any(error for _, error in self._outcome.errors))

    def assert_clean(self, job, code=0, limit=LIMIT_S):
        """The stated exit code, and nothing left behind."""
        got = job.wait_exit(limit)
        self.assertEqual(got, code, job.report())
        self.assert_no_process(job)
        self.assertEqual(glob.glob(os.path.join(job.folder, "core*")), [])
        self.assertEqual(job.logged("wrong"), [], job.report())
        self.assertNotIn("internal error", job.stderr(), job.report())
        self.assertNotIn("terminate called", job.stderr() + job.stdout(), job.report())
        if code != 0:
            self.assert_last_line(job)

    def assert_no_process(self, job, within=LEFTOVER_S):
        deadline = time.monotonic() + within
        while True:
            left = descendants_by_token(job.token)
            if not left:
                return
            if time.monotonic() > deadline:
                lines = [f"{pid}: {' '.join(command_line(pid))}" for pid in left]
                self.fail(f"left {within} s after the end:\n" + "\n".join(lines)
                          + "\n" + job.report())
            time.sleep(POLL_S)

    def assert_last_line(self, job):
        self.assertRegex(job.last_line(), r"^muster: \S", job.report())

    def assert_message(self, job, pattern):
        self.assertRegex(job.stderr(), re.compile(pattern, re.IGNORECASE | re.DOTALL), job.report())

    # ---- state

    def assert_commits_kept(self, job):
        """No generation starts behind a commit that one of its members held, and no step is left
        out: what is lost is at most what was done since."""
        events = job.events()
        committed = self._committed_steps(events)
        first_steps = {}
        for event in select(events, "step"):
            first_steps.setdefault(event.generation, event)
        for generation, first in sorted(first_steps.items()):
            members = {e.pid for e in select(events, "world", generation=generation)}
            held = [step for pid, of, step in committed if pid in members and of < generation]
            reached = [e.step for e in select(events, "step")
                       if e.pid in members and e.generation < generation]
            if held:
                self.assertGreater(first.step, max(held),
                                   f"generation {generation} repeats a committed step\n"
                                   + job.report())
            if reached:
                self.assertLessEqual(first.step, max(reached) + 1,
                                     f"generation {generation} leaves a step out\n" + job.report())
        self._assert_steps_follow(events, job)

    @staticmethod
    def _committed_steps(events):
        """(pid, generation, step) of each commit: the step that the process had finished."""
        last = {}
        committed = []
        for event in events:
            if event.event == "step":
                last[event.pid] = event.step
            elif event.event == "commit" and event.pid in last:
                committed.append((event.pid, event.generation, last[event.pid]))
        return committed

    def _assert_steps_follow(self, events, job):
        last = {}
        for event in select(events, "step"):
            key = (event.pid, event.generation)
            if key in last:
                self.assertEqual(event.step, last[key] + 1, f"{event}\n{job.report()}")
            last[key] = event.step

    def assert_same_pids(self, job, pids):
        """These processes lived on and trained in the newest world."""
        newest = {e.pid for e in job.world().values()}
        self.assertTrue(set(pids) <= newest, f"{pids} are not all in {newest}\n{job.report()}")

    def assert_finished(self, job, steps, checksum=True):
        """Every rank of the last world did all steps and ended with the same weights."""
        done = job.logged("done")
        last = {e.pid: e for e in done}
        self.assertTrue(last, job.report())
        self.assertEqual({e.step for e in last.values()}, {steps}, job.report())
        if checksum:
            self.assertEqual(len({e.checksum for e in last.values()}), 1, job.report())


def main():
    unittest.main(verbosity=2)
