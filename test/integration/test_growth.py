"""Growth, shrinking and what the running workers feel of it."""

import os
import unittest

import harness
from harness import GO

STALL_BOUND_S = float(os.environ.get("MUSTER_STALL_BOUND_S", "2"))


def longest_gap(job, pids, begin, end):
    """The longest time between two steps of one of these workers, within the interval."""
    longest = 0.0
    for pid in pids:
        times = [e.t for e in job.events("step", pid=pid) if begin <= e.t <= end]
        longest = max([longest] + [b - a for a, b in zip(times, times[1:])])
    return longest


class Growth(harness.JobTest):
    def test_running_workers_do_not_wait_for_a_slow_newcomer(self):
        job = self.job(hosts="localhost:2", np=2, min_np=1, max_np=4,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO,
                               "slow_file": "{folder}/slow"})
        job.wait_size(2)
        pids = {e.pid for e in job.world().values()}
        with open(os.path.join(job.folder, "slow"), "w", encoding="utf-8") as file:
            file.write("3000")
        begin = job.events()[-1].t
        job.set_hosts("localhost:2\n127.0.0.1:2")
        job.wait_size(4)
        job.wait_more_steps(10)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertGreater(job.events("step", size=4)[0].t, begin + 3)
        gap = longest_gap(job, pids, begin, job.events("step", size=4)[-1].t)
        print(f"\nlongest stall of the running workers: {gap * 1000:.0f} ms")
        self.assertLess(gap, STALL_BOUND_S, job.report())
        entered = {e.step for e in job.logged("entry", size=4)}
        self.assertEqual(len(entered), 1, "the ranks went on from different steps")

    def test_arrivals_close_together_are_one_change(self):
        job = self.job(hosts="localhost:1", np=1, min_np=1, max_np=4,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO})
        job.wait_size(1)
        job.set_hosts("localhost:1\n127.0.0.1:2\n127.0.0.2:1")
        job.wait_size(4)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertEqual([e.size for e in job.events("form")], [1, 4], job.report())

    def test_growth_up_to_max_np_only(self):
        job = self.job(hosts="localhost:1", np=1, min_np=1, max_np=2,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO})
        job.wait_size(1)
        job.set_hosts("localhost:4")
        job.wait_size(2)
        job.wait_more_steps(50)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(max(e.size for e in job.events("form")), 2, job.report())

    def test_counter_and_weights_of_newcomers_come_from_the_others(self):
        job = self.job(hosts="localhost:1", np=1, min_np=1, max_np=3,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO, "commit_every": 7})
        job.wait_step(24)
        job.set_hosts("localhost:3")
        job.wait_size(3)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(len({e.checksum for e in job.logged("done")}), 1)
        self.assertEqual(len(job.logged("done")), 3)


class Shrinking(harness.JobTest):
    def test_lowered_slots_take_the_highest(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:2", np=3, min_np=1, max_np=3,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO})
        job.wait_size(3)
        by_slot = {(e.host, e.slot): e.pid for e in job.logged("init")}
        job.set_hosts("localhost:1\n127.0.0.1:1")
        job.wait_size(2)
        self.assertEqual({e.pid for e in job.world().values()},
                         {by_slot["localhost", 0], by_slot["127.0.0.1", 0]})
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_drained_worker_runs_no_epilogue_and_is_not_blamed(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO, "epilogue": 1})
        job.wait_size(2)
        leaver = job.events("init", host="127.0.0.1")[0].pid
        job.set_hosts("localhost:1")
        job.wait_size(1)
        job.wait_for(lambda: job.events("reaped", host="127.0.0.1"), "its end")
        self.assertEqual(job.events("reaped", host="127.0.0.1")[0].code, 0, job.report())
        job.set_hosts("localhost:1\n127.0.0.1:1")
        job.wait_size(2)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertEqual(job.logged("metric", pid=leaver), [])
        self.assertEqual(len(job.logged("metric")), 2)

    def test_relisting_before_the_next_poll_changes_nothing(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO},
                       script=None)
        job.wait_size(2)
        generation = job.generation()
        job.set_hosts("127.0.0.1:1\nlocalhost:1")
        job.wait_more_steps(150)
        self.assertEqual(job.generation(), generation, "an order of lines is no change")
        job.let_go()
        self.assert_clean(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
