"""muster-bench recovery and muster-bench-control: they measure what they say, and when a job does not do
what a loss should cause, they say so and leave nothing behind. Nothing judges a time."""

import contextlib
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["MUSTER_BIN"]).absolute()
BENCH = BIN / "muster-bench"
CONTROL = BIN / "muster-bench-control"
# Bounds against hangs: two cores may be shared with a compiler.
LIMIT_S = 240
GONE_S = 20
POLL_S = 0.05
PHASES = ["kill to lost", "lost to restored", "restored to world", "world to synced",
          "synced to step"]


def processes_of(folder):
    """pid -> command line of all that run with this TMPDIR."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            with open(path + "/environ", "rb") as file:
                inside = b"TMPDIR=" + os.fsencode(folder) in file.read().split(b"\0")
            with open(path + "/cmdline", "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")]
            if inside and words[0]:
                found[int(os.path.basename(path))] = words
    return found


class BenchTest(unittest.TestCase):
    def setUp(self):
        # Short: sockets may lie below.
        self.folder = tempfile.mkdtemp(prefix="mr-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ, TMPDIR=self.folder)

    def run_program(self, *command):
        return subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=LIMIT_S, env=self.environment)

    def start_program(self, *command):
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self.environment)
        self.addCleanup(program.kill)
        return program

    def pids_of(self, program, word=None):
        return sorted(pid for pid, words in processes_of(self.folder).items()
                      if os.path.basename(words[0]) == program
                      and (word is None or word in words[1:2]))

    def finish(self, program):
        error = program.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(program.returncode, 1, error)
        self.assert_nothing_left()
        return error

    def wait_for(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(POLL_S)

    def assert_nothing_left(self):
        end = time.monotonic() + GONE_S
        while processes_of(self.folder) and time.monotonic() < end:
            time.sleep(POLL_S)
        self.assertEqual(processes_of(self.folder), {})
        self.assertEqual(glob.glob(self.folder + "/muster-bench-*"), [])


class Recovery(BenchTest):
    def run_bench(self, *arguments):
        return self.run_program(BENCH, "recovery", *arguments)

    def test_kills_and_stops_are_timed_phase_by_phase(self):
        path = self.folder + "/out.json"
        done = self.run_bench("--workers", "2", "--kind", "all", "--count", "3", "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, encoding="utf-8") as file:
            results = json.load(file)["results"]
        self.assertEqual([result["signal"] for result in results], ["SIGKILL", "SIGSTOP"])
        for result in results:
            self.assertIn(f"{result['signal']} of one of 2 workers, 1 host", done.stdout)
            self.assertEqual([phase["phase"] for phase in result["phases"]], PHASES)
            for times in (result["first_step"], result["full_size"], result["form"]):
                self.assertEqual(len(times["values_ms"]), 3)
                self.assertGreater(times["min_ms"], 0)
            # The phases are the last survivor's, and there is one survivor: they make up the whole.
            whole = sum(sum(phase["times"]["values_ms"]) for phase in result["phases"])
            self.assertAlmostEqual(whole, sum(result["first_step"]["values_ms"]), places=3)
        for name in ["first step of all survivors", "full size again"] + PHASES:
            rows = re.findall(rf"^ *{name}( +[\d.]+){{5}} +3$", done.stdout, re.M)
            self.assertEqual(len(rows), 2, done.stdout)
        # A stopped worker is noticed by its silence, which takes a second.
        self.assertGreater(results[1]["first_step"]["min_ms"], 1000)
        self.assert_nothing_left()

    def test_a_spare_brings_two_hosts_back_to_full_size_in_the_same_world(self):
        path = self.folder + "/out.json"
        done = self.run_bench("--workers", "2", "--hosts", "2", "--spares", "1", "--count", "2",
                              "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 hosts, 1 spare", done.stdout)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)["results"][0]
        self.assertEqual(len(result["full_size"]["values_ms"]), 2)
        self.assert_nothing_left()

    def test_wrong_usage_is_told_and_starts_nothing(self):
        for arguments, said in ((["--kind", "pause"], "--kind"), (["--workers", "1"], "--workers"),
                                (["--hosts", "3"], "--hosts"), (["--count", "0"], "--count")):
            with self.subTest(arguments):
                done = self.run_bench(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr + done.stdout)

    def start_long(self, *more):
        """A bench whose job has started to lose workers; one that it does not lose is the last."""
        bench = self.start_program(BENCH, "recovery", "--workers", "3", "--count", "10000", *more)
        self.wait_for(lambda: len(self.pids_of("digits")) == 3, "three workers")
        first = set(self.pids_of("digits"))
        # Then the driver has said what it knows of the loss.
        self.wait_for(lambda: set(self.pids_of("digits")) - first, "a successor of the first loss")
        return bench

    def test_a_worker_that_ends_without_being_killed_by_the_bench_is_an_error(self):
        bench = self.start_long()
        os.kill(self.pids_of("digits")[0], signal.SIGKILL)
        self.assertRegex(self.finish(bench), r"worker \d+ ended by signal 9; worker \d+ was to end")

    def test_a_job_that_does_not_recover_is_an_error(self):
        bench = self.start_long("--timeout", "3")
        os.kill(self.pids_of("muster", "run")[0], signal.SIGSTOP)
        self.assertIn("not within 3 s: ", self.finish(bench))

    def test_a_job_that_ends_is_an_error_with_its_last_words(self):
        bench = self.start_long()
        os.kill(self.pids_of("muster", "run")[0], signal.SIGKILL)
        # How, it knows if the exit came with the loss.
        self.assertRegex(self.finish(bench),
                         r"(?s)the job ended; .*standard error:.* was (lost|killed by signal 9)")

    def test_an_interrupt_ends_all(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            bench = self.start_long()
            bench.send_signal(number)
            self.assertIn("interrupted", self.finish(bench))

    def test_a_job_ends_with_a_bench_that_is_killed(self):
        bench = self.start_long()
        bench.kill()
        bench.communicate(timeout=LIMIT_S)
        end = time.monotonic() + GONE_S
        while processes_of(self.folder) and time.monotonic() < end:
            time.sleep(POLL_S)
        self.assertEqual(processes_of(self.folder), {})


class Control(BenchTest):
    def test_losses_and_growth_are_timed_and_their_orders_counted(self):
        path = self.folder + "/out.json"
        done = self.run_program(CONTROL, "--agents", "3", "--workers", "2", "--count", "2",
                                "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 agents of 2 workers", done.stdout)
        for change in ("loss", "growth"):
            self.assertRegex(done.stdout, rf"(?m)^{change}: at most \d+ bytes in \d+ orders")
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        told, formed = result["told"]["values_ms"], result["formed"]["values_ms"]
        self.assertEqual([len(told), len(formed), len(result["grown"]["values_ms"])], [2, 2, 2])
        self.assertTrue(all(before <= after for before, after in zip(told, formed)), result)
        for change in (result["loss"], result["growth"]):
            # A world's order at the least, with its key of 32 bytes.
            self.assertGreater(change["bytes_max"], 32)
            self.assertLessEqual(change["bytes_max"], change["bytes_total"])
        self.assert_nothing_left()

    def start_long(self, *more):
        control = self.start_program(CONTROL, "--agents", "2", "--workers", "2", "--count",
                                     "10000", *more)
        self.assertIn("2 agents of 2 workers", control.stdout.readline())
        return control

    def test_a_driver_that_ends_is_an_error(self):
        control = self.start_long()
        os.kill(self.pids_of("muster", "run")[0], signal.SIGKILL)
        self.assertRegex(self.finish(control), "the job ended|lost the driver")

    def test_a_driver_that_hangs_is_an_error(self):
        control = self.start_long("--timeout", "3")
        os.kill(self.pids_of("muster", "run")[0], signal.SIGSTOP)
        self.assertIn("not within 3 s: ", self.finish(control))

    def test_an_interrupt_ends_all(self):
        control = self.start_long()
        control.send_signal(signal.SIGINT)
        self.assertIn("interrupted", self.finish(control))

    def test_wrong_usage_is_told(self):
        done = self.run_program(CONTROL, "--workers", "1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--workers", done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main()
