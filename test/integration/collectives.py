"""Runs the modes of test_collectives as jobs and asserts that every rank has checked them."""

import os

import harness

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"
# Thousands of operations in which all ranks have to get their turn: a compiler beside them slows
# that down far more than it takes of the time.
LIMIT_S = 240
# So long that a lost slot stays empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]


class CollectivesTest(harness.JobTest):
    def static(self, np, mode, hosts=None, args=(), env=None, **worker):
        """A job that fails with its first failure: of these nothing may be lost."""
        return self.job(np=np, elastic=False, args=["-H", hosts or f"localhost:{np}", *args],
                        program=harness.COLLECTIVES, worker={"mode": mode, **worker}, env=env)

    def elastic(self, np, mode, hosts=None, args=STAYS_OUT, env=None, min_np=1, **worker):
        return self.job(hosts=hosts or f"localhost:{np}", np=np, min_np=min_np, max_np=np,
                        args=args, program=harness.COLLECTIVES, worker={"mode": mode, **worker},
                        env=env)

    def assert_checked(self, job, size, mode, limit=LIMIT_S):
        """The job ended well, and each of `size` ranks has checked each mode."""
        self.assert_clean(job, limit=limit)
        for name in mode.split(","):
            checked = job.logged("checked", mode=name)
            self.assertEqual(sorted(e.rank for e in checked), list(range(size)), job.report())
            self.assertEqual({e.failures for e in checked}, {0}, job.report())
            self.assertGreater(min(e.checks for e in checked), 0, job.report())

    def check(self, np, mode, limit=LIMIT_S, **options):
        job = self.static(np, mode, **options)
        self.assert_checked(job, np, mode, limit)
        return job

    def assert_no_reset(self, job):
        """Nobody lost its world."""
        self.assertEqual(job.events("lost"), [], job.report())
        self.assertEqual(len(job.events("form")), 1, job.report())

    def wait_logged(self, job, kind, count, limit=harness.LIMIT_S, **wanted):
        return job.wait_for(lambda: len(job.logged(kind, **wanted)) >= count
                            and job.logged(kind, **wanted), f"{count} times {kind} {wanted}", limit)

    def wait_stderr(self, job, text, limit=harness.LIMIT_S):
        job.wait_for(lambda: text in job.stderr(), f"{text!r} on standard error", limit)

    def touch(self, job, name):
        with open(os.path.join(job.folder, name), "w", encoding="utf-8"):
            pass
