"""User cases 123 to 125: init() and shutdown() again and again, and what resets leave in a process."""

import os
import subprocess
import tempfile
import unittest

import harness
from harness import GO

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"


def resident_kb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(next(line for line in file if line.startswith("VmRSS")).split()[1])


def holdings(pid):
    return {"kB": resident_kb(pid), "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": len(os.listdir(f"/proc/{pid}/task"))}


class InitAgain(harness.JobTest):
    """Case 123. A worker of a job joins it once; alone, a process may begin anew."""

    def test_pairs_of_init_and_shutdown(self):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("MUSTER_", "HOROVOD_"))}
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            log = harness.Tail(os.path.join(folder, "log"))
            done = subprocess.run([harness.CASES, "--mode", "again", "--count", "100"],
                                  env=dict(environment, TEST_LOG=log.path), check=False,
                                  capture_output=True, text=True, timeout=harness.LIMIT_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            [result] = log.select("again")
        self.assertEqual(result.count, 100)
        self.assertEqual(result.threads, result.base)

    def test_a_second_init_in_a_job_is_told_to_be_one(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2", "--grace", 2],
                       program=harness.CASES, worker={"mode": "again"})
        self.assert_clean(job, code=1)
        self.assert_message(job, r"calls init\(\) once")


class ShutdownMeanwhile(harness.JobTest):
    """Case 124."""

    def test_what_is_pending_ends_and_what_comes_later_is_refused(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2"], program=harness.CASES,
                       worker={"mode": "shutdown_meanwhile"})
        self.assert_clean(job)
        pending, later = job.logged("waited")
        for waited, bound in ((pending, 1), (later, 0.1)):
            self.assertEqual(waited.how, "Error", job.report())
            self.assertLess(waited.seconds, bound, waited)
        self.assertIn("initialized", later.message)


class Resets(harness.JobTest):
    """Case 125."""

    RESETS = 50 if FULL else 10
    MEGABYTES = 64 if FULL else 16
    WARM = 3
    SLACK_KB = 32 * 1024

    def test_nothing_gathers_in_a_survivor_or_in_the_launcher(self):
        job = self.job(hosts="localhost:2", np=2, min_np=1, max_np=2, program=harness.CASES,
                       args=["--blacklist-cooldown-range", 0.1, 0.1],
                       worker={"mode": "in_flight", "mb": self.MEGABYTES, "go_file": GO})
        job.wait_size(2)
        survivor = job.pid_of_rank(0)
        processes = {"driver": job.pid, "agent": job.agents()[0], "survivor": survivor}
        seen = []
        # Each kill is two resets: a loss and an arrival.
        while job.generation() < self.RESETS:
            generation = job.generation()
            job.kill(job.pid_of_rank(1))
            job.wait_size(2, after_generation=generation)
            self.assertEqual(job.pid_of_rank(0), survivor)
            seen.append({name: holdings(pid) for name, pid in processes.items()})
        job.let_go()
        self.assert_clean(job)
        for name in processes:
            # gRPC's pools of threads grow and shrink with what they have to do.
            for what, slack in (("kB", self.SLACK_KB), ("descriptors", 0), ("threads", 4)):
                counts = [s[name][what] for s in seen]
                print(f"\n{what} of the {name}: {counts}", end="")
                # The least: while discovery runs, the driver has a few more for a moment.
                late = min(counts[-self.WARM:])
                self.assertLessEqual(late, max(counts[:self.WARM]) + slack, (name, what))


if __name__ == "__main__":
    unittest.main(verbosity=2)
