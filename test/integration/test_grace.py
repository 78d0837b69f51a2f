"""User case 59: the time between TERM and KILL is one option, and every path honours it."""

import os
import signal
import unittest

import harness

STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
FULL = os.environ.get("MUSTER_TEST_FULL") == "1"
SAVE_S = 12 if FULL else 2
LONG_GRACE = 20 if FULL else 8
SHORT_GRACE = 3 if FULL else 1


class Grace(harness.JobTest):
    """Case 59. A worker takes SAVE_S to save after SIGTERM; with the long grace it does, with the short
    one it is killed. Two workers per host: each has the whole grace."""

    def start(self, grace, **options):
        settings = {"steps": 100000, "sleep_ms": 20, "term_file": "{folder}",
                    "term_delay_ms": SAVE_S * 1000}
        settings.update(options.pop("worker", {}))
        args = ["--grace", grace] + list(options.pop("args", []))
        return self.job(args=args, worker=settings, **options)

    def saved(self, job, pids):
        return [pid for pid in pids if os.path.exists(os.path.join(job.folder, str(pid)))]

    def check_saved(self, job, pids, grace):
        self.assertTrue(pids)
        expected = sorted(pids) if grace == LONG_GRACE else []
        self.assertEqual(sorted(self.saved(job, pids)), expected, job.report())

    def check_stop(self, grace):
        job = self.start(grace, hosts="localhost:2", min_np=1)
        job.wait_size(2)
        pids = [e.pid for e in job.events("init")]
        job.kill(job.pid, signal.SIGTERM)
        self.assert_clean(job, code=143)
        self.check_saved(job, pids, grace)
        # Nobody is killed before the time is over.
        self.assertGreater(job.ended - job.killed[-1][1], min(grace, SAVE_S))

    def test_stop_with_time_to_save(self):
        self.check_stop(LONG_GRACE)

    def test_stop_without(self):
        self.check_stop(SHORT_GRACE)

    def check_removal(self, grace):
        # It never commits, so it never comes to the place where it would leave by itself.
        job = self.start(grace, hosts="localhost:1\n127.0.0.1:2", np=3, min_np=1, max_np=3,
                         worker={"commit_every": 0, "steps": 60, "go_file": harness.GO})
        job.wait_size(3)
        pids = [e.pid for e in job.events("init", host="127.0.0.1")]
        survivor = job.pid_of_rank(0)
        job.set_hosts("localhost:1")
        job.wait_size(1, limit=3 * LONG_GRACE + 30)
        self.assert_same_pids(job, [survivor])
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in pids), "their end")
        self.check_saved(job, pids, grace)
        self.assertEqual(len(job.logged("term")), 2, job.report())
        job.let_go()
        self.assert_clean(job)

    def test_removal_with_time_to_save(self):
        self.check_removal(LONG_GRACE)

    def test_removal_without(self):
        self.check_removal(SHORT_GRACE)

    def check_sibling(self, grace):
        job = self.start(grace, np=3, elastic=False, args=["-H", "localhost:3"],
                         worker={"plain": 1, "commit_every": 0, "die": "1@10:7"})
        self.assert_clean(job, code=7)
        dead = job.logged("dies")[0].pid
        self.check_saved(job, [e.pid for e in job.events("init") if e.pid != dead], grace)

    def test_failure_of_a_sibling_with_time_to_save(self):
        self.check_sibling(LONG_GRACE)

    def test_failure_of_a_sibling_without(self):
        self.check_sibling(SHORT_GRACE)

    def check_limit(self, grace):
        job = self.start(grace, hosts="localhost:3", np=3, min_np=1, max_np=3,
                         args=["--reset-limit", 0] + STAYS_OUT)
        job.wait_size(3)
        victim = job.pid_of_rank(2)
        job.kill(victim)
        self.assert_clean(job, code=76)
        self.check_saved(job, [e.pid for e in job.events("init") if e.pid != victim], grace)

    def test_reset_limit_with_time_to_save(self):
        self.check_limit(LONG_GRACE)

    def test_reset_limit_without(self):
        self.check_limit(SHORT_GRACE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
