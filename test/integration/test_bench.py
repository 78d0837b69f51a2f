"""muster-bench: its tables and files have the shape that people and scripts rely on, and whatever
happens to a rank or to the bench, it says so and leaves nothing behind. Nothing judges a time."""

import contextlib
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["MUSTER_BIN"]).absolute()
BENCH = BIN / "muster-bench"
PLOT = pathlib.Path(__file__).absolute().parents[2] / "scripts/plot_bench"
HAS_MPI = (BIN / "muster-bench-mpi").exists() and shutil.which("mpirun") is not None
# Bounds against hangs: two cores may be shared with a compiler. The bench's own bound is the
# smaller one: it says which contestant hangs.
ORDER_LIMIT_S = "90"
LIMIT_S = 240
GONE_S = 20


def ranks_of(folder):
    """The ranks that report to a bench with this TMPDIR."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
            program = os.path.basename(words[0])
            is_rank = program == b"muster-bench-mpi" or (program == b"muster-bench" and
                                                         b"rank" in words[1:2])
            if is_rank and any(word.startswith(os.fsencode(folder)) for word in words):
                found.append(int(path.split("/")[2]))
    return sorted(found)


class Bench(unittest.TestCase):
    def setUp(self):
        # Short: sockets lie below.
        self.folder = tempfile.mkdtemp(prefix="mb-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ, TMPDIR=self.folder)

    def run_bench(self, *arguments, **options):
        if arguments and "--timeout" not in arguments:
            arguments += ("--timeout", ORDER_LIMIT_S)
        return subprocess.run([BENCH, *arguments], capture_output=True, text=True, check=False,
                              timeout=LIMIT_S, env=self.environment, **options)

    def assert_nothing_left(self):
        end = time.monotonic() + GONE_S
        while ranks_of(self.folder) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(ranks_of(self.folder), [])
        # Open MPI's own folder may stay a moment longer; it is not the bench's.
        self.assertEqual(glob.glob(self.folder + "/muster-bench-*"), [])

    def lines_of(self, output, head):
        """The cells of the table's lines after its head."""
        lines = output.splitlines()
        start = next(i for i, line in enumerate(lines) if line.split()[:len(head)] == head)
        rows = []
        for line in lines[start + 1:]:
            if not line.strip():
                break
            rows.append(re.split(r"\s{2,}|(?<=\d)\s+(?=-)", line.strip()))
        return rows

    def test_collectives_print_a_row_per_size_and_write_json(self):
        path = self.folder + "/out.json"
        done = self.run_bench("collectives", "--ranks", "2", "--sizes", "4,65536", "--rounds", "1",
                              "--iterations", "20", "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("allreduce, 2 ranks, 1 host", done.stdout)
        rows = self.lines_of(done.stdout, ["size", "muster", "gloo"])
        self.assertEqual([row[0] for row in rows], ["4 B", "4 B, back to back", "64 KiB"])
        for row in rows:
            self.assertEqual(len(row), 8, row)
            self.assertRegex(row[1], r"^\d+(\.\d+)?$")
            self.assertIn(row[3], ("ring", "bcube", "halving_doubling"))
            self.assertRegex(row[4], r"^\d+(\.\d+)?$" if HAS_MPI else "^-$")
            self.assertRegex(row[7], r"^\d+\.\d\d$")
        self.assertEqual("without mpi" in done.stdout, not HAS_MPI)
        with open(path, encoding="utf-8") as file:
            results = json.load(file)["results"]
        self.assertEqual([row["bytes"] for row in results], [4, 4, 65536])
        contestants = {timing["contestant"] for timing in results[2]["timings"]}
        self.assertEqual(contestants, {"muster", "gloo", "shm"} | ({"mpi"} if HAS_MPI else set()))
        self.assert_nothing_left()

        table = subprocess.run([sys.executable, PLOT, path], capture_output=True, text=True,
                               check=True, timeout=LIMIT_S).stdout
        self.assertEqual(len([line for line in table.splitlines() if line.startswith("| ")]), 4)

    def test_every_operation_is_right_with_an_odd_number_of_ranks(self):
        done = self.run_bench("collectives", "--ranks", "3", "--sizes", "4,40004", "--rounds", "1",
                              "--iterations", "3", "--ops",
                              "allreduce,allgather,broadcast,alltoall,reducescatter")
        self.assertEqual(done.returncode, 0, done.stderr)
        for operation in ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter"):
            self.assertIn(f"{operation}, 3 ranks, 1 host", done.stdout)

    def test_two_hosts_leave_out_what_would_not_use_the_network(self):
        done = self.run_bench("collectives", "--ranks", "2", "--hosts", "2", "--sizes", "65536",
                              "--rounds", "1", "--iterations", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("without mpi", done.stdout)
        self.assertIn("without shm", done.stdout)
        row = self.lines_of(done.stdout, ["size", "muster", "gloo"])[0]
        self.assertRegex(row[1], r"^\d")
        self.assertEqual(row[4:7], ["-", "-", "-"])

    def test_many_small_tensors(self):
        done = self.run_bench("small", "--count", "20", "--ranks", "2", "--rounds", "1",
                              "--iterations", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("20 allreduces of 4 KiB, 2 ranks", done.stdout)
        self.assertRegex(done.stdout, r"muster  asynchronous, named, then wait +[\d.]+ +[\d.]+")

    def test_idle_shows_each_rank(self):
        done = self.run_bench("idle", "--ranks", "2", "--seconds", "1", "--iterations", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"^ +muster +[01] .*%$", done.stdout, re.M)), 2)

    def test_wrong_usage_is_told_and_starts_nothing(self):
        for arguments, said in ((["collectives", "--sizes", "3"], "multiple of 4"),
                                (["collectives", "--sizes", "64..4"], "is empty"),
                                (["collectives", "--ranks", "0"], "--ranks"),
                                (["collectives", "--ops", "allreduction"], "--ops"),
                                (["collectives", "--contestants", "nccl"], "--contestants"),
                                (["collectives", "--hosts", "3"], "--hosts"),
                                (["small", "--count", "1"], "--count"),
                                ([], "subcommand")):
            with self.subTest(arguments):
                done = self.run_bench(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(said, done.stderr + done.stdout)

    def start_long(self, contestant, *more):
        bench = subprocess.Popen([BENCH, "collectives", "--contestants", contestant, "--ranks",
                                  "2", "--sizes", "4MiB", "--rounds", "1000", *more],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=self.environment)
        self.addCleanup(bench.kill)
        # The head of the table is there once all ranks are.
        for line in bench.stdout:
            if "muster/gloo" in line:
                return bench
        self.fail("the bench did not start: " + bench.stderr.read())

    def finish(self, bench):
        error = bench.communicate(timeout=LIMIT_S)[1]
        self.assertEqual(bench.returncode, 1, error)
        self.assert_nothing_left()
        return error

    def test_a_rank_that_dies_ends_the_bench(self):
        for contestant in ["muster", "gloo", "shm"] + (["mpi"] if HAS_MPI else []):
            with self.subTest(contestant):
                bench = self.start_long(contestant)
                os.kill(ranks_of(self.folder)[-1], signal.SIGKILL)
                self.assertRegex(self.finish(bench), f"{contestant} with 2 ranks: (rank [01]|a "
                                 r"process) (ended|failed) (during|before) allreduce .*of 4194304")

    def test_a_rank_that_hangs_ends_the_bench(self):
        bench = self.start_long("shm", "--timeout", "3")
        os.kill(ranks_of(self.folder)[-1], signal.SIGSTOP)
        self.assertRegex(self.finish(bench), "no answer in time during allreduce of 4194304 bytes; "
                         "missing: rank 0 1")

    def test_an_interrupt_ends_all(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            bench = self.start_long("muster")
            bench.send_signal(number)
            self.assertIn("interrupted during", self.finish(bench))

    def test_ranks_end_with_a_bench_that_is_killed(self):
        bench = self.start_long("gloo")
        bench.kill()
        bench.communicate(timeout=LIMIT_S)
        end = time.monotonic() + GONE_S
        while ranks_of(self.folder) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(ranks_of(self.folder), [])


if __name__ == "__main__":
    unittest.main()
