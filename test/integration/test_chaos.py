"""`muster chaos` against a real job on three local hosts."""

import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import harness
from harness import GO

HOSTS = "localhost:1\n127.0.0.1:1\n127.0.0.2:1"
COMES_BACK = ["--blacklist-cooldown-range", 1, 1]
MUSTER = os.path.join(harness.BIN, "muster")


class ChaosTest(harness.JobTest):
    def start(self, command=None):
        job = self.job(hosts=HOSTS, np=3, min_np=1, max_np=3, args=COMES_BACK, command=command,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(3)
        return job

    def job_id(self, job):
        [name] = os.listdir(job.environment["MUSTER_INCIDENT_DIR"])
        return name

    def log_path(self, job):
        return os.path.join(job.folder, "chaos.jsonl")

    def argv(self, job, *options):
        return [MUSTER, "chaos", self.job_id(job), "--log", self.log_path(job), *map(str, options)]

    def chaos(self, job, *options):
        return subprocess.run(self.argv(job, *options), env=job.environment, capture_output=True,
                              text=True, timeout=harness.LIMIT_S, check=False)

    def start_chaos(self, job, *options):
        process = subprocess.Popen(self.argv(job, *options), env=job.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def logged(self, job):
        with open(self.log_path(job), encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def hook(self, job, name, body):
        folder = os.path.join(job.folder, "hooks")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + body)
        os.chmod(path, 0o755)
        return folder

    def finish(self, job, after=0):
        """`after`: the generation that something ended."""
        job.wait_size(3, after_generation=after)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class Kinds(ChaosTest):
    def test_a_kill_meets_a_member_and_the_job_goes_on(self):
        job = self.start()
        members = {e.pid for e in job.world().values()}
        generation = job.generation()
        job.wait_more_steps(150)  # 3 s: the workers may hold the state.
        done = self.chaos(job, "--kinds", "kill", "--every", 0.05, "--count", 1, "--seed", 1)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        [event] = self.logged(job)
        self.assertEqual((event["kind"], event["outcome"]), ("kill", "done"), event)
        self.assertIn(event["pid"], members)
        self.assertIn(f"worker {event['worker']}, slot 0, pid {event['pid']}", done.stdout)
        job.wait_for(lambda: job.events("reaped", code=137), "the end of the victim")
        self.finish(job, after=generation)

    def test_an_agent_and_a_reaper_are_found(self):
        for kind in ("agent", "reaper"):
            with self.subTest(kind):
                job = self.start()
                generation = job.generation()
                servers = job.agents() if kind == "agent" else job.reapers()
                job.wait_more_steps(150)
                done = self.chaos(job, "--kinds", kind, "--every", 0.05, "--count", 1)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                [event] = self.logged(job)
                self.assertEqual((event["role"], event["outcome"]), (kind, "done"), event)
                self.assertIn(event["pid"], servers)
                self.finish(job, after=generation)

    def test_pauses_and_exhausted_descriptors_cost_no_worker(self):
        job = self.start()
        generation = job.generation()
        members = {e.pid for e in job.world().values()}
        done = self.chaos(job, "--kinds", "pause,descriptors", "--every", 0.1, "--count", 12,
                          "--hook-max", 0.3, "--seed", 5)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # One is skipped if all whom it could meet are under way.
        events = [e for e in self.logged(job) if e["outcome"] != "skipped"]
        self.assertEqual({e["kind"] for e in events}, {"pause", "descriptors"}, done.stdout)
        self.assertTrue(all(e["end_ns"] > e["t_ns"] for e in events), done.stdout)
        job.wait_more_steps(10)
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, members)
        self.finish(job)


class Keeping(ChaosTest):
    def met(self, job, kind, pids):
        """How many times a burst of events meets one of these, if two workers are to be kept."""
        result = self.chaos(job, "--kinds", kind, "--every", 0.01, "--count", 20, "--keep", 2,
                            "--seed", 2)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return sum(e["outcome"] == "done" and e["pid"] in pids for e in self.logged(job))

    def test_a_burst_of_kills_leaves_those_that_are_to_be_kept(self):
        job = self.start()
        job.wait_more_steps(150)
        generation = job.generation()
        members = {e.pid for e in job.world().values()}
        self.assertEqual(self.met(job, "kill", members), 1)
        self.finish(job, after=generation)

    def test_workers_that_are_to_end_with_their_host_are_none_that_are_kept(self):
        # With an agent ends the shell that it started. The worker behind that ends by itself, or by
        # the reaper: unless they are stopped.
        job = self.start(["sh", "-c", '"$@"; exit $?', "sh", harness.WORKER])
        job.wait_more_steps(150)
        agents = job.agents()
        for pid in job.reapers() + [e.pid for e in job.world().values()]:
            job.kill(pid, signal.SIGSTOP)
        self.assertEqual(self.met(job, "agent", agents), 1)


class Undoing(ChaosTest):
    def test_a_signal_ends_the_hold_of_a_hook(self):
        job = self.start()
        folder = self.hook(job, "weather", 'echo "$1" >> "$HOSTS-weather"\necho rain\n')
        process = self.start_chaos(job, "--kinds", "weather", "--hook-dir", folder, "--every", 0.05,
                                   "--hook-max", 3600, "--seed", 1)
        calls = job.hosts_file + "-weather"
        job.wait_for(lambda: os.path.exists(calls), "the beginning")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(harness.LIMIT_S), 0)
        with open(calls, encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["begin", "end"])
        [event] = self.logged(job)
        self.assertEqual((event["kind"], event["note"]), ("weather", "rain"))
        self.finish(job)

    def test_a_hook_that_fails_is_ended_all_the_same_and_told(self):
        job = self.start()
        folder = self.hook(job, "weather", 'echo "$1" >> "$HOSTS-weather"\n[ "$1" = end ]\n')
        done = self.chaos(job, "--kinds", "weather", "--hook-dir", folder, "--every", 0.05,
                          "--count", 1)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("1 FAILED", done.stdout)
        with open(job.hosts_file + "-weather", encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["begin", "end"])
        self.finish(job)

    def test_what_is_stopped_for_good_and_still_there_goes_on_at_the_end(self):
        job = self.start()
        job.wait_more_steps(150)
        members = {e.pid for e in job.world().values()}
        # Ended by the count within milliseconds, long before the job notices the stop.
        done = self.chaos(job, "--kinds", "stop", "--every", 0.05, "--count", 1, "--seed", 3)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        [event] = self.logged(job)
        self.assertEqual((event["kind"], event["outcome"]), ("stop", "done"))
        job.wait_more_steps(20)
        self.assert_same_pids(job, members)
        self.finish(job)


class Which(ChaosTest):
    def test_nothing_happens_in_a_dry_run(self):
        job = self.start()
        job.wait_more_steps(150)
        generation = job.generation()
        done = self.chaos(job, "--kinds", "kill,agent", "--every", 0.02, "--count", 20, "--dry-run")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = [line for line in done.stdout.splitlines() if " would " in line]
        self.assertEqual(len(told), 20, done.stdout)
        for line in told:
            self.assertRegex(line, r"would (kill: worker \d+, slot 0,|agent: agent) pid \d+ on ")
        job.wait_more_steps(10)
        self.assertEqual(job.generation(), generation, job.report())
        self.finish(job)

    def test_it_ends_with_the_job(self):
        job = self.start()
        process = self.start_chaos(job, "--kinds", "pause", "--every", 1)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(process.wait(harness.LIMIT_S), 0)

    def test_a_hook_is_ended_though_the_job_is_over(self):
        job = self.start()
        folder = self.hook(job, "weather", 'echo "$1" >> "$HOSTS-weather"\n')
        process = self.start_chaos(job, "--kinds", "weather", "--hook-dir", folder, "--every", 0.05,
                                   "--hook-max", 3600)
        calls = job.hosts_file + "-weather"
        job.wait_for(lambda: os.path.exists(calls), "the beginning")
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(process.wait(harness.LIMIT_S), 0)
        with open(calls, encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["begin", "end"])

    def test_it_refuses_what_is_not_there(self):
        job = self.start()
        for options, code, text in ((["--kinds", "nosuchkind"], 2, "neither a built-in kind"),
                                    (["--hook-dir", "/nosuchfolder"], 2, "/nosuchfolder"),
                                    (["--log", "/nosuchfolder/log"], 2, "/nosuchfolder/log")):
            done = self.chaos(job, *options)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            self.assertRegex(done.stderr, f"^muster: .*{text}")
        done = subprocess.run([MUSTER, "chaos", "nosuchjob"], capture_output=True, text=True,
                              timeout=harness.LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^muster: no job nosuchjob")
        self.finish(job)

    def test_a_job_of_somebody_else_is_refused_but_takes_no_name_from_ones_own(self):
        if os.geteuid() != 0:
            self.skipTest("only root can see the processes of others")
        job = secrets.token_hex(8)

        def start_as(user, name):
            process = subprocess.Popen(["sleep", "600"], user=user, stdin=subprocess.DEVNULL,
                                       env={"MUSTER_JOB": name, "MUSTER_INCARNATION": "1",
                                            "PATH": "/usr/bin:/bin"})
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)

        def chaos():
            return subprocess.run([MUSTER, "chaos", job, "--count", "1", "--every", "0.01"],
                                  capture_output=True, text=True, timeout=harness.LIMIT_S,
                                  check=False)

        start_as(65534, job + "\x1b[2J")
        done = chaos()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("belongs to the user with the number 65534", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        start_as(0, job)
        self.assertEqual(chaos().returncode, 0)


# Lets its child be what it is told to; the child looks like a worker that has taken its page.
AGENT = """import subprocess, sys
subprocess.run([sys.executable, "-c", sys.stdin.read()], check=False)
"""
WORKER = """import mmap, os, time
memory = os.memfd_create("muster-page")
os.ftruncate(memory, 4096)
page = mmap.mmap(memory, 4096)
print("ready", flush=True)
time.sleep(600)
"""


class LooksLikeAJob(unittest.TestCase):
    """Processes that look like those of a job, but are none."""

    def setUp(self):
        self.job = secrets.token_hex(8)
        self.marks = {"MUSTER_JOB": self.job, "MUSTER_INCARNATION": "1", "MUSTER_HOST": "nodea",
                      "MUSTER_SLOT": "0"}

    def start(self, argv, **options):
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, preexec_fn=harness.die_with_the_harness, **options)
        self.addCleanup(process.wait)
        self.addCleanup(os.killpg, process.pid, signal.SIGKILL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        return process

    def start_worker(self):
        worker = self.start([sys.executable, "-c", WORKER], env=self.marks)
        self.assertEqual(worker.stdout.readline(), "ready\n")
        return worker

    def start_chaos(self, *options, **streams):
        chaos = subprocess.Popen([MUSTER, "chaos", self.job, *map(str, options)],
                                 stderr=subprocess.DEVNULL,
                                 **{"stdout": subprocess.DEVNULL, **streams})
        self.addCleanup(chaos.wait)
        self.addCleanup(chaos.kill)
        return chaos

    def wait_for(self, predicate):
        deadline = time.monotonic() + harness.LIMIT_S
        while not predicate():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(harness.POLL_S)


class UndoingBySignal(LooksLikeAJob):
    def test_a_signal_ends_a_pause_and_the_run(self):
        worker = self.start_worker()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT,
                       signal.SIGTSTP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
            with self.subTest(number.name):
                chaos = self.start_chaos("--kinds", "pause", "--every", 0.1, "--pause-max", 0.9)
                self.wait_for(lambda: harness.stat_fields(worker.pid)[0] == "T")
                chaos.send_signal(number)
                self.assertEqual(chaos.wait(harness.LIMIT_S), 0)
                self.assertNotEqual(harness.stat_fields(worker.pid)[0], "T")

    def test_a_signal_brings_a_limit_back(self):
        worker = self.start_worker()
        before = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
        chaos = self.start_chaos("--kinds", "descriptors", "--every", 0.1)
        self.wait_for(lambda: resource.prlimit(worker.pid, resource.RLIMIT_NOFILE) != before)
        chaos.terminate()
        self.assertEqual(chaos.wait(harness.LIMIT_S), 0)
        self.assertEqual(resource.prlimit(worker.pid, resource.RLIMIT_NOFILE), before)


class HeldUp(LooksLikeAJob):
    def test_an_output_that_takes_nothing_holds_up_no_event(self):
        self.start_worker()
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        self.addCleanup(os.close, writing)
        os.set_blocking(writing, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writing, bytes(4096))
        os.set_blocking(writing, True)
        log = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "log")
        chaos = self.start_chaos("--kinds", "pause", "--every", 0.1, "--count", 5, "--log", log,
                                 stdout=writing)
        self.assertEqual(chaos.wait(harness.LIMIT_S), 0)
        with open(log, encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 5)

    def test_a_log_that_nobody_reads_is_refused(self):
        self.start_worker()
        log = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "log")
        os.mkfifo(log)
        self.assertEqual(self.start_chaos("--log", log, "--count", 1).wait(harness.LIMIT_S), 2)


class Strangers(LooksLikeAJob):
    def test_what_calls_itself_agent_above_a_worker_is_left_alone(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(os.path.join(folder, "agent"), "w", encoding="utf-8") as file:
            file.write(AGENT)
        stranger = self.start([sys.executable, "agent"], cwd=folder)
        program = [sys.executable, "-c", WORKER]
        stranger.stdin.write(f"import os; os.environ.update({self.marks})\n"
                             f"os.execv({program[0]!r}, {program!r})")
        stranger.stdin.close()
        self.assertEqual(stranger.stdout.readline(), "ready\n")
        done = subprocess.run([MUSTER, "chaos", self.job, "--kinds", "descriptors", "--every",
                               "0.01", "--count", "20", "--dry-run"], capture_output=True,
                              text=True, timeout=harness.LIMIT_S, check=False)
        self.assertEqual(done.stdout.count("would descriptors: worker 1, slot 0, pid "), 20,
                         done.stdout)

    def test_chaos_with_the_marks_of_a_worker_is_no_job(self):
        # As from the shell of a worker; the shell outlives the job here.
        done = subprocess.run(["sh", "-c", '"$@"; exit $?', "sh", MUSTER, "chaos", self.job,
                               "--count", "1", "--every", "0.01"], capture_output=True, text=True,
                              env=self.marks, timeout=harness.LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, "^muster: no job ")


if __name__ == "__main__":
    harness.main()
