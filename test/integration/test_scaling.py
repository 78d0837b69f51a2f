"""User cases 15 to 17, 19, 24 to 26, 30, 32 and 75: hosts and slots that come and go by discovery."""

import os
import random
import time
import unittest

import harness
from harness import GO

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"
# So long that a slot that was blamed would stay empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
THREE_HOSTS = ("localhost:1", "127.0.0.1:1", "127.0.0.2:1")
STAYS = {"steps": 60, "sleep_ms": 20, "go_file": GO}
# What the cases promise of a change.
CHANGE_LIMIT_S = 10


class ScalingTest(harness.JobTest):
    def train(self, hosts, np, worker=None, **options):
        options.setdefault("min_np", 1)
        options.setdefault("max_np", 4)
        job = self.job(hosts="\n".join(hosts), np=np, worker=dict(STAYS, **(worker or {})),
                       **options)
        job.wait_size(np)
        return job

    def pause(self, job, seconds):
        """The time between two changes of the list belongs to the case."""
        until = time.monotonic() + seconds
        job.wait_for(lambda: time.monotonic() >= until, f"{seconds} s")

    def finish(self, job):
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def assert_graceful(self, job):
        """Nobody was lost and no step was made twice."""
        self.assertEqual(job.events("lost"), [], job.report())
        by_step = {}
        for event in job.events("step"):
            by_step.setdefault(event.step, set()).add(event.generation)
        repeated = {step: found for step, found in by_step.items() if len(found) > 1}
        self.assertEqual(repeated, {}, job.report())

    def assert_same_start(self, job, size):
        """All members of the world of this size entered the loop at the same step."""
        entries = job.logged("entry", size=size)
        self.assertEqual(len({e.pid for e in entries}), size, job.report())
        self.assertEqual(len({e.step for e in entries}), 1, job.report())


class OneOfThreeLeaves(ScalingTest):
    """Case 15."""

    def check(self, leaver):
        job = self.train(THREE_HOSTS, 3, min_np=2)
        job.wait_step(8)
        world = job.world()
        host = world[leaver].host
        job.set_hosts("\n".join(h for h in THREE_HOSTS if h != f"{host}:1"))
        job.wait_size(2)
        self.assertNotIn(host, {e.host for e in job.world().values()})
        self.assert_same_pids(job, {e.pid for rank, e in world.items() if rank != leaver})
        job.wait_more_steps(10)
        self.finish(job)
        self.assert_graceful(job)
        self.assertEqual([e.size for e in job.events("form")], [3, 2], job.report())

    def test_the_first(self):
        self.check(0)

    def test_the_middle_one(self):
        self.check(1)

    def test_the_last(self):
        self.check(2)


class NewcomersAreInStep(ScalingTest):
    """Cases 16 and 17."""

    def grow(self, at_step, **worker):
        job = self.train(["localhost:2"], 2, worker=dict(worker, sleep_ms=10),
                         args=["--stall-check-warning-time-seconds", 5])
        job.wait_step(at_step)
        job.set_hosts("localhost:2\n127.0.0.1:2")
        job.wait_size(4, limit=CHANGE_LIMIT_S)
        job.wait_more_steps(20)
        self.finish(job)
        self.assert_graceful(job)
        self.assert_same_start(job, 4)
        self.assertNotIn("did not submit it", job.stderr(), job.report())
        return job

    def test_all_ranks_go_on_from_the_same_step(self):
        # The instant of the change relative to the commits is what the case is about.
        chance = random.Random(16)
        for _ in range(20 if FULL else 2):
            at_step = chance.randrange(3, 40)
            with self.subTest(at_step=at_step):
                self.grow(at_step)

    def test_commits_stay_at_the_same_steps_on_old_and_new_ranks(self):
        job = self.grow(24, commit_every=7)
        committed = {}
        for event in job.logged("commit"):
            committed.setdefault(event.pid, set()).add(event.step)
        self.assertEqual(len(committed), 4, job.report())
        joined_at = job.logged("entry", size=4)[0].step
        since = [{step for step in steps if step > joined_at} for steps in committed.values()]
        self.assertTrue(since[0], job.report())
        self.assertEqual(since, [since[0]] * 4, job.report())
        self.assertEqual({step % 7 for step in since[0]}, {0})


class OneChosenWorkerStops(ScalingTest):
    """Case 19."""

    def test_a_lowered_count_ends_the_highest_slot_of_that_host_only(self):
        job = self.train(["localhost:1", "127.0.0.1:2", "127.0.0.2:1"], 4)
        leaver = [e for e in job.logged("init") if (e.host, e.slot) == ("127.0.0.1", 1)][0].pid
        others = {e.pid for e in job.world().values()} - {leaver}
        self.assertEqual(len(others), 3, job.report())
        job.set_hosts("localhost:1\n127.0.0.1:1\n127.0.0.2:1")
        job.wait_size(3)
        self.assertEqual({e.pid for e in job.world().values()}, others)
        self.assertEqual(sorted(job.world()), [0, 1, 2])
        job.wait_for(lambda: job.events("reaped"), "the end of the leaver")
        self.assertFalse(harness.is_alive(leaver))
        job.wait_more_steps(5)
        self.assertEqual([e.code for e in job.events("reaped")], [0], job.report())
        self.finish(job)
        self.assert_graceful(job)


class HostsThatToggle(ScalingTest):
    """Case 24."""

    TOGGLES = 30 if FULL else 4

    def test_each_toggle_costs_one_change_at_most(self):
        job = self.train(THREE_HOSTS, 3, max_np=3)
        rest = {e.pid for e in job.world().values() if e.host != "127.0.0.2"}
        for toggle in range(self.TOGGLES):
            listed = THREE_HOSTS[:2] if toggle % 2 == 0 else THREE_HOSTS
            job.set_hosts("\n".join(listed))
            self.pause(job, 2)
        job.wait_size(3)
        self.assert_same_pids(job, rest)
        self.finish(job)
        self.assert_graceful(job)
        forms = job.events("form")
        self.assertGreater(len(forms), 1, "no toggle was noticed")
        self.assertLessEqual(len(forms) - 1, self.TOGGLES, job.report())
        self.assertEqual(len(job.logged("done", size=3)), 3, job.report())


class HostsMomentsApart(ScalingTest):
    """Case 25."""

    def test_three_that_come_within_a_second_cost_three_changes_at_most(self):
        job = self.train(["localhost:2"], 2, max_np=5)
        begin = job.events()[-1].t
        hosts = ["localhost:2"]
        for host, wait_before in (("127.0.0.1:1", 0), ("127.0.0.2:1", 0.5), ("127.0.0.3:1", 0.7)):
            self.pause(job, wait_before)
            hosts.append(host)
            job.set_hosts("\n".join(hosts))
        job.wait_size(5, limit=CHANGE_LIMIT_S)
        self.finish(job)
        self.assert_graceful(job)
        self.assertLessEqual(len(job.events("form")) - 1, 3, job.report())
        for pid in {e.pid for e in job.events("step", size=2)}:
            times = [e.t for e in job.events("step", pid=pid) if e.t >= begin]
            self.assertLess(max(b - a for a, b in zip(times, times[1:])), 10, job.report())


class AllHostsAreReplaced(ScalingTest):
    """Case 26."""

    def test_at_once_the_state_moves_first(self):
        job = self.train(["localhost:2"], 2)
        job.wait_step(12)
        job.set_hosts("127.0.0.1:2")
        job.wait_for(lambda: {e.host for e in job.world().values()} == {"127.0.0.1"}
                     and job.size() == 2, "the new hosts alone")
        job.wait_for(lambda: len(job.events("reaped", host="localhost", code=0)) == 2,
                     "the end of the old ones")
        job.wait_more_steps(10)
        self.finish(job)
        self.assert_graceful(job)
        self.assertEqual(len([e for e in job.events("step") if e.step == 1]), 2, job.report())


class RemovedByForce(ScalingTest):
    """Case 30."""

    def test_the_code_of_a_removed_worker_counts_against_nobody(self):
        # It hangs in a step, so that it comes to no commit, and is deaf to SIGTERM.
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2,
                       args=["--grace", 1, *STAYS_OUT],
                       worker=dict(STAYS, ignore_term=1, hang="127.0.0.1@10:600000"))
        job.wait_for(lambda: job.logged("hangs"), "the worker that hangs")
        survivor = job.pid_of_rank(0)
        job.set_hosts("localhost:1")
        reaped = job.wait_for(lambda: job.events("reaped", host="127.0.0.1"), "its end")
        self.assertEqual(reaped[0].code, 137, job.report())
        self.assertEqual(len(job.logged("term")), 1, "SIGTERM comes before SIGKILL")
        job.wait_size(1)
        job.wait_more_steps(5)
        job.set_hosts("localhost:1\n127.0.0.1:1")
        job.wait_size(2)
        self.assert_same_pids(job, [survivor])
        self.finish(job)


class GrowthFromOne(ScalingTest):
    """Case 32. What every collective does at size 1 is checked in test_collectives.py."""

    def test_to_three(self):
        job = self.train(["localhost:1"], 1, max_np=3)
        only = job.pid_of_rank(0)
        job.wait_step(30)
        job.set_hosts("localhost:1\n127.0.0.1:2")
        job.wait_size(3, limit=CHANGE_LIMIT_S)
        self.assertEqual(job.pid_of_rank(0), only)
        self.finish(job)
        self.assert_graceful(job)
        self.assert_same_start(job, 3)


def places(slots):
    """host -> (rank, size, local_rank, local_size, cross_rank, cross_size) of its workers."""
    table, rank, size = {}, 0, sum(count for _, count in slots)
    for index, (host, count) in enumerate(slots):
        for local in range(count):
            cross_size = sum(1 for _, other in slots if other > local)
            cross = sum(1 for _, other in slots[:index] if other > local)
            table.setdefault(host, set()).add((rank, size, local, count, cross, cross_size))
            rank += 1
    return table


class UnevenHosts(ScalingTest):
    """Case 75. That every sum is right is what test_worker checks in each step."""

    SLOTS = [("localhost", 1), ("127.0.0.1", 3), ("127.0.0.2", 2)]

    def check_places(self, job, slots):
        size = sum(count for _, count in slots)
        found = {}
        for e in job.logged("entry", size=size):
            found.setdefault(e.host, set()).add(
                (e.rank, e.size, e.local_rank, e.local_size, e.cross_rank, e.cross_size))
        self.assertEqual(found, places(slots), job.report())

    def check(self, *args):
        job = self.train([f"{host}:{count}" for host, count in self.SLOTS], 6, max_np=6, args=args)
        self.check_places(job, self.SLOTS)
        rest = [self.SLOTS[0], self.SLOTS[2]]
        job.set_hosts("\n".join(f"{host}:{count}" for host, count in rest))
        job.wait_size(3)
        job.wait_more_steps(10)
        self.finish(job)
        self.check_places(job, rest)
        self.assert_graceful(job)

    def test_before_and_after_the_middle_one_leaves(self):
        self.check()

    def test_reduced_in_two_levels(self):
        self.check("--cpu-operations", "hierarchical")


if __name__ == "__main__":
    unittest.main(verbosity=2)
