"""Rule 12: each way in which a job ends has its code, and its first cause on the last line."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import GO

STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]


class Success(harness.JobTest):
    def test_elastic_job_without_events(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1,
                       worker={"steps": 20, "sleep_ms": 5})
        self.assert_clean(job)
        self.assert_finished(job, 20)
        self.assertEqual(len(job.events("world")), 2)

    def test_static_job(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2"],
                       worker={"steps": 20, "sleep_ms": 5, "plain": 1, "commit_every": 0})
        self.assert_clean(job)
        self.assert_finished(job, 20)

    def test_world_of_one(self):
        job = self.job(hosts="localhost:1", np=1, min_np=1, worker={"steps": 20, "sleep_ms": 1})
        self.assert_clean(job)
        self.assert_finished(job, 20)

    def test_program_that_never_calls_init(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2"], command=["true"])
        self.assert_clean(job)


class StaticFailure(harness.JobTest):
    def check(self, how, code):
        job = self.job(np=3, elastic=False, args=["-H", "localhost:2,127.0.0.1:1", "--grace", 2],
                       worker={"steps": 5000, "sleep_ms": 10, "plain": 1, "commit_every": 0,
                               "die": f"1@10:{how}"})
        self.assert_clean(job, code=code)
        self.assertRegex(job.last_line(), r"\b1\b", job.report())
        self.assertIn("localhost", job.last_line(), job.report())
        return job

    def test_code_of_the_first_failure(self):
        self.assertRegex(self.check("7", 7).last_line(), r"\b7\b")

    def test_signal_of_the_first_failure(self):
        self.assertRegex(self.check("KILL", 137).last_line(), r"(?i)signal 9|SIGKILL|\b137\b")

    def test_code_0_without_done(self):
        self.check("0", 70)


class StartFailures(harness.JobTest):
    def test_a_syntax_error_ends_the_job_within_seconds(self):
        job = self.job(hosts="localhost:2", min_np=1, command=[sys.executable, "-c", "x ="])
        self.assert_clean(job, code=1, limit=30)
        self.assertLessEqual(len(job.events("spawn")), 4, job.report())
        self.assertIn("SyntaxError", job.stderr() + job.stdout())

    def test_a_program_that_does_not_exist_ends_the_job(self):
        job = self.job(hosts="localhost:2", min_np=1, command=["/nonexistent/program"])
        self.assertNotEqual(job.wait_exit(30), 0)
        self.assert_message(job, "/nonexistent/program")
        self.assert_last_line(job)
        self.assert_no_process(job)

    def test_static_program_that_fails_at_once(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2"],
                       command=["sh", "-c", "exit 9"])
        self.assert_clean(job, code=9, limit=30)

    def test_code_0_before_init_is_a_failure_once_another_has_called_it(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2", "--grace", 1],
                       command=["sh", "-c", 'if [ "$HOROVOD_LOCAL_RANK" = 1 ]; then '
                                f'sleep 1; exit 0; fi; exec "{harness.WORKER}" --plain 1'])
        self.assert_clean(job, code=70)


class ElasticTimeout(harness.JobTest):
    def test_at_the_start(self):
        job = self.job(hosts="localhost:1", np=2, min_np=2, args=["--elastic-timeout", 3])
        self.assert_clean(job, code=75, limit=30)
        self.assertGreater(job.ended - job.started, 2.9)
        self.assert_message(job, r"\b3\b")
        self.assert_message(job, r"\b1\b.*\b2\b|\b2\b.*\b1\b")

    def test_after_a_loss(self):
        job = self.job(hosts="localhost:2", np=2, min_np=2,
                       args=["--elastic-timeout", 3] + STAYS_OUT,
                       worker={"steps": 5000, "sleep_ms": 10})
        job.wait_step(7)
        job.kill(job.pid_of_rank(1))
        code = job.wait_exit(60)
        # The hold cannot end: by rule 12 the code of the failure that made the world unformable
        # goes before 75.
        self.assertIn(code, (137, 75), job.report())
        self.assert_clean(job, code=code)


class Limits(harness.JobTest):
    HOSTS = "localhost:1\n127.0.0.1:1\n127.0.0.2:1"

    def start(self, *limits):
        job = self.job(hosts=self.HOSTS, np=3, min_np=1, max_np=3, args=list(limits) + STAYS_OUT,
                       worker={"steps": 5000, "sleep_ms": 10})
        job.wait_size(3)
        return job

    def test_reset_limit_of_0_ends_at_the_first_reset(self):
        job = self.start("--reset-limit", 0)
        job.kill(job.pid_of_rank(2))
        self.assert_clean(job, code=76)
        self.assertIn("reset", job.last_line(), job.report())

    def test_reset_limit_allows_so_many_resets(self):
        job = self.start("--reset-limit", 1)
        job.kill(job.pid_of_rank(2))
        job.wait_size(2)
        job.kill(job.pid_of_rank(1))
        self.assert_clean(job, code=76)

    def test_growth_is_a_reset(self):
        job = self.job(hosts="localhost:1", np=1, min_np=1, max_np=2, args=["--reset-limit", 0],
                       worker={"steps": 5000, "sleep_ms": 10})
        job.wait_step(3)
        job.set_hosts("localhost:2")
        self.assert_clean(job, code=76)

    def test_failure_limit_counts_losses(self):
        job = self.start("--failure-limit", 1)
        job.kill(job.pid_of_rank(2))
        job.wait_size(2)
        job.kill(job.pid_of_rank(1))
        self.assert_clean(job, code=76)


class Stopped(harness.JobTest):
    def check(self, how, code):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1, args=["--grace", 2],
                       worker={"steps": 5000, "sleep_ms": 10, "children": 1})
        job.wait_step(5)
        job.kill(job.pid, how)
        self.assert_clean(job, code=code, limit=30)

    def test_by_term(self):
        self.check(signal.SIGTERM, 143)

    def test_by_int(self):
        self.check(signal.SIGINT, 130)

    def test_by_hup(self):
        self.check(signal.SIGHUP, 129)

    def test_second_int_kills_at_once(self):
        job = self.job(hosts="localhost:2", min_np=1, args=["--grace", 300],
                       worker={"steps": 5000, "sleep_ms": 10, "ignore_term": 1})
        job.wait_step(5)
        job.kill(job.pid, signal.SIGINT)
        job.wait_for(lambda: len(job.logged("term")) == 2, "SIGTERM at the workers")
        job.kill(job.pid, signal.SIGINT)
        self.assert_clean(job, code=130, limit=30)

    def test_while_it_waits_for_hosts(self):
        job = self.job(hosts="", min_np=1)
        job.wait_for(lambda: job.events("discovered"), "the first poll")
        job.kill(job.pid, signal.SIGTERM)
        self.assert_clean(job, code=143, limit=30)


class StateLost(harness.JobTest):
    def test_no_holder_is_left(self):
        job = self.job(hosts="localhost:2", min_np=1, args=["--blacklist-cooldown-range", 1, 1],
                       worker={"steps": 5000, "sleep_ms": 10})
        job.wait_step(7)
        for event in job.world().values():
            job.kill(event.pid)
        code = job.wait_exit(60)
        self.assertIn(code, (137, 79), job.report())
        self.assert_clean(job, code=code)
        self.assertEqual(len([e for e in job.events("step") if e.step == 1]), 2, "started anew")


class Usage(harness.JobTest):
    def check(self, args, message, command=("true",)):
        job = self.job(np=None, elastic=False, args=args, command=list(command))
        self.assert_clean(job, code=2, limit=10)
        self.assert_message(job, message)

    def test_unknown_flag(self):
        self.check(["-np", 1, "--no-such-flag"], "no-such-flag")

    def test_no_command(self):
        self.check(["-np", 1, "-H", "localhost:1"], "command", command=())

    def test_mpi_is_refused(self):
        self.check(["-np", 1, "--mpi"], "mpi")


class SignalsPassThrough(harness.JobTest):
    """Case 61."""

    def test_usr1_and_usr2_reach_every_worker_once_and_end_nothing(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1,
                       worker={"steps": 20, "sleep_ms": 10, "go_file": GO})
        job.wait_size(2)
        pids = sorted(e.pid for e in job.world().values())
        for how, name in ((signal.SIGUSR1, "usr1"), (signal.SIGUSR2, "usr2")):
            job.kill(job.pid, how)
            job.wait_for(lambda n=name: len(job.logged(n)) == 2, f"{name} at both workers")
        job.wait_more_steps(10)
        job.let_go()
        self.assert_clean(job)
        for name in ("usr1", "usr2"):
            self.assertEqual(sorted(e.pid for e in job.logged(name)), pids, job.report())


class ClosedOutput(harness.JobTest):
    """`horovodrun ... >&-`: no descriptor of the driver's own may take the place of the closed one."""

    def check(self, redirection):
        with tempfile.TemporaryDirectory(prefix="muster-test-") as folder:
            program = "echo out; echo err >&2; echo bye"
            done = subprocess.run(
                ["sh", "-c", f'exec "$@" {redirection}', "sh", os.path.join(harness.BIN, "horovodrun"),
                 "-np", "2", "--output-filename", folder, "sh", "-c", program],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            for rank in range(2):
                said = {name: pathlib.Path(folder, f"rank.{rank}", name).read_text()
                        for name in ("stdout", "stderr")}
                self.assertEqual(said, {"stdout": "out\nbye\n", "stderr": "err\n"})

    def test_stdout(self):
        self.check(">&-")

    def test_stderr(self):
        self.check("2>&-")

    def test_all(self):
        self.check("<&- >&- 2>&-")


if __name__ == "__main__":
    unittest.main(verbosity=2)
