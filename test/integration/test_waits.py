"""User cases 27, 28, 34, 83, 86 and 116: who waits for whom, for how long, and what is said then."""

import os
import time
import unittest

import harness
from harness import GO

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"
# So long that a lost slot stays empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
STAYS = {"steps": 60, "sleep_ms": 20, "go_file": GO}


class WaitTest(harness.JobTest):
    def wait_polls(self, job, count):
        """Until discovery has run so often, whatever it said."""
        job.wait_for(lambda: self.polls(job) >= count, f"{count} polls")

    @staticmethod
    def polls(job):
        try:
            return os.path.getsize(job.hosts_file + ".calls")
        except FileNotFoundError:
            return 0

    def counted(self, **options):
        """A job whose script leaves a byte per call; not started."""
        job = harness.Job(**options)
        self.addCleanup(lambda: job.close(keep=self._failed()))
        job.write_script('printf . >>"$HOSTS.calls"; cat "$HOSTS"')
        return job.start()


class SlotsThatComeLater(WaitTest):
    """Case 27."""

    def test_workers_start_when_all_of_np_are_there(self):
        job = self.counted(hosts="", np=2, min_np=1, worker=STAYS)
        self.wait_polls(job, 20 if FULL else 4)
        job.set_hosts("localhost:1")
        self.wait_polls(job, self.polls(job) + 4)
        self.assertEqual(job.events("spawn"), [], "one slot is not -np")
        job.set_hosts("localhost:2")
        job.wait_size(2)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual([e.size for e in job.events("form")], [2], job.report())


class ElasticTimeout(WaitTest):
    """Case 28."""

    def check_message(self, job, seconds):
        self.assertRegex(job.last_line(), rf"\b{seconds} s\b.*have 1\b.*need 2\b", job.report())

    def check_at_the_start(self, limit, **options):
        job = self.job(hosts="localhost:1", np=2, min_np=2, **options)
        self.assert_clean(job, code=75)
        took = job.ended - job.started
        self.assertGreater(took, limit)
        self.assertLess(took, limit + 4, job.report())
        self.check_message(job, limit)

    def test_at_the_start(self):
        limit = 8 if FULL else 2
        self.check_at_the_start(limit, args=["--elastic-timeout", limit])

    def test_as_a_variable(self):
        self.check_at_the_start(2, env={"HOROVOD_ELASTIC_TIMEOUT": "2"})

    def test_after_a_loss(self):
        limit = 8 if FULL else 2
        job = self.job(hosts="localhost:2", np=2, min_np=2, worker=STAYS,
                       args=["--elastic-timeout", limit, "--grace", 1, *STAYS_OUT])
        job.wait_size(2)
        job.kill(job.pid_of_rank(1))
        self.assert_clean(job, code=75)
        self.assertGreater(job.ended - job.killed[-1][1], limit)
        self.check_message(job, limit)

    def test_a_slot_that_comes_in_time(self):
        job = self.counted(hosts="localhost:1", np=2, min_np=2, worker=STAYS,
                           args=["--elastic-timeout", 30])
        self.wait_polls(job, 20 if FULL else 4)
        self.assertEqual(job.events("spawn"), [])
        job.set_hosts("localhost:2")
        job.wait_size(2)
        job.let_go()
        self.assert_clean(job)


class EndOfTheJob(WaitTest):
    """Case 34."""

    def check_linger(self, rank):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:1,127.0.0.1:1"],
                       worker={"steps": 10, "sleep_ms": 5, "plain": 1, "commit_every": 0,
                               "linger": f"{rank}@{20000 if FULL else 3000}"})
        self.assert_clean(job)
        self.assertEqual(len(job.logged("lingers")), 1, job.report())
        self.assertEqual(len(job.logged("end")), 2, job.report())
        # Nothing at all: who is through has nothing to say of who is not.
        self.assertEqual(job.stderr(), "", job.report())

    def test_rank_0_is_through_first(self):
        self.check_linger(1)

    def test_rank_0_is_through_last(self):
        self.check_linger(0)

    def test_no_barrier_holds_up_a_failure(self):
        job = self.job(np=3, elastic=False, args=["-H", "localhost:3"],
                       worker={"steps": 5000, "sleep_ms": 10, "plain": 1, "commit_every": 0,
                               "die": "2@10:3"})
        job.wait_for(lambda: job.logged("dies"), "the failure")
        self.assert_clean(job, code=3, limit=10)


class ManyWorkers(WaitTest):
    """Case 83."""

    HOSTS = 8 if FULL else 4
    SLOTS = 8 if FULL else 4
    LIMIT_S = 30 if (os.cpu_count() or 1) >= 16 else 120

    def test_all_of_one_host_are_killed_at_once(self):
        count = self.HOSTS * self.SLOTS
        job = self.job(hosts="\n".join(f"127.0.0.{i + 1}:{self.SLOTS}" for i in range(self.HOSTS)),
                       np=count, min_np=count - self.SLOTS, max_np=count,
                       args=[*STAYS_OUT, "--start-timeout", self.LIMIT_S], worker=STAYS)
        job.wait_size(count, limit=self.LIMIT_S)
        print(f"\n{count} workers train after {time.monotonic() - job.started:.1f} s")
        world = job.world()
        victims = [e.pid for e in world.values() if e.host == "127.0.0.2"]
        self.assertEqual(len(victims), self.SLOTS)
        job.kill_all(victims)
        killed_at = time.monotonic()
        job.wait_size(count - self.SLOTS, limit=self.LIMIT_S)
        print(f"the others train on after {time.monotonic() - killed_at:.1f} s")
        self.assert_same_pids(job, {e.pid for e in world.values()} - set(victims))
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class TimeLimitOfACollective(WaitTest):
    """Cases 83 and 86, as DESIGN.md has them: the limit of a collective runs only once all ranks have
    called it. Who is late is the stall check's to judge (cases 114 and 115)."""

    def test_it_does_not_count_while_a_rank_has_not_come(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2,
                       args=["--gloo-timeout-seconds", 1, *STAYS_OUT],
                       worker=dict(STAYS, hang="1@10:3000"))
        job.wait_for(lambda: job.logged("hangs"), "the rank that is late")
        job.wait_step(20)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(job.events("lost"), [], job.report())


class UnevenSteps(WaitTest):
    """Case 116. How join() is used instead is in test_collective_cases.py."""

    def test_a_rank_that_has_finished_is_named_to_the_others(self):
        job = self.job(np=2, elastic=False, args=["-H", "localhost:2", "--grace", 2],
                       command=["sh", "-c", f'exec "{harness.WORKER}" --plain 1 --commit-every 0 '
                                '--sleep-ms 5 --steps $((100 - 10 * HOROVOD_RANK))'])
        job.wait_for(lambda: job.logged("done", rank=1), "the end of rank 1", may_end=True)
        done_at = job.logged("done", rank=1)[0].t
        code = job.wait_exit()
        self.assertNotEqual(code, 0, job.report())
        self.assertLess(job.ended - done_at, 5, job.report())
        self.assert_clean(job, code=code)
        self.assertRegex(job.stderr(), r"\[0\]<stderr>:test_worker: .*rank 1\b", job.report())
        self.assertRegex(job.last_line(), r"rank 0\b", job.report())
        self.assertEqual(max(e.step for e in job.events("step")), 90)


if __name__ == "__main__":
    unittest.main(verbosity=2)
