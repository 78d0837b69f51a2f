"""Rule 10: the end of a job, with losses and arrivals around it."""

import os
import unittest

import harness
from harness import GO

STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]


class Epilogue(harness.JobTest):
    def test_all_ranks_average_a_metric_after_the_run(self):
        job = self.job(hosts="localhost:2\n127.0.0.1:1", np=3, min_np=1,
                       worker={"steps": 10, "sleep_ms": 5, "epilogue": 1})
        self.assert_clean(job)
        self.assertEqual([e.value for e in job.logged("metric")], [1.0, 1.0, 1.0])
        self.assertEqual(len(job.logged("end")), 3)

    def test_slow_rank_is_waited_for(self):
        job = self.job(hosts="localhost:3", np=3, min_np=1,
                       worker={"steps": 10, "sleep_ms": 5, "epilogue": 1, "done_delay": "1@1500"})
        self.assert_clean(job)
        self.assertEqual([e.value for e in job.logged("metric")], [1.0, 1.0, 1.0])


class LossAfterFirstDone(harness.JobTest):
    def start(self, delay, args=()):
        job = self.job(hosts="localhost:3", np=3, min_np=3, max_np=3, args=list(args) + STAYS_OUT,
                       worker={"steps": 20, "sleep_ms": 5, "done_delay": delay})
        job.wait_for(lambda: job.logged("done"), "the first Done")
        return job

    def test_of_the_one_that_is_not_done(self):
        job = self.start("1@60000")
        job.wait_for(lambda: len(job.logged("done")) == 2, "two Done")
        job.kill(job.pid_of_rank(1))
        self.assert_clean(job)
        self.assertEqual(len(job.events("spawn")), 3, job.report())

    def test_of_one_of_two_that_are_not_done(self):
        # Also below --min-np, which no longer counts; rank 2 finishes what is left.
        job = self.job(hosts="localhost:3", np=3, min_np=3, max_np=3, args=STAYS_OUT,
                       worker={"steps": 20, "sleep_ms": 5, "go_file": GO,
                               "done_delay": "1@60000"})
        job.wait_size(3)
        job.let_go()
        job.wait_for(lambda: len(job.logged("done")) == 2, "two Done")
        job.kill(job.pid_of_rank(1))
        self.assert_clean(job)
        self.assertEqual({e.step for e in job.logged("done")} - {None},
                         {job.max_step()}, job.report())

    def test_of_rank_0_while_others_work(self):
        job = self.job(hosts="localhost:3", np=3, min_np=1, max_np=3, args=STAYS_OUT,
                       worker={"steps": 20, "sleep_ms": 5, "done_delay": "0@60000"})
        job.wait_for(lambda: len(job.logged("done")) == 2, "two Done")
        job.kill(job.pid_of_rank(0))
        self.assert_clean(job)


class NewcomerTooLate(harness.JobTest):
    def test_it_is_released_when_the_others_are_done(self):
        job = self.job(hosts="localhost:2", np=2, min_np=1, max_np=4,
                       worker={"steps": 30, "sleep_ms": 5, "go_file": GO, "epilogue": 1,
                               "slow_file": "{folder}/slow"})
        job.wait_size(2)
        with open(os.path.join(job.folder, "slow"), "w", encoding="utf-8") as file:
            file.write("3000")
        job.set_hosts("localhost:4")
        job.wait_for(lambda: len(job.logged("init")) == 4, "init() of both newcomers")
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(len(job.logged("metric")), 2, job.report())
        self.assertEqual(job.events("form")[-1].size, 2, job.report())


if __name__ == "__main__":
    unittest.main(verbosity=2)
