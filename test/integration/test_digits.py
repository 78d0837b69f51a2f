"""Trains on the real digits while the world changes: exit 0, accuracy above 0.93, no committed step
lost, survivors keep their process, all ranks end with the same parameters."""

import re
import signal
import time
import unittest

import harness

FULL = "localhost:2\n127.0.0.1:2"
EPOCHS = 20
COMMIT_EVERY = 5
# A slot comes back soon, so that each event is over before the training is.
COOLDOWN = ["--blacklist-cooldown-range", 1, 1]


class Digits(harness.JobTest):
    def train(self, hosts=FULL, np=4, min_np=2, max_np=4, args=(), step_ms=5, env=None):
        command = [harness.DIGITS, "--epochs", EPOCHS, "--commit-every", COMMIT_EVERY,
                   "--step-ms", step_ms]
        return self.job(hosts=hosts, np=np, min_np=min_np, max_np=max_np,
                        args=list(args) + COOLDOWN, command=command, env=env)

    def finish(self, job, pids=()):
        """All that is promised of every run, whatever happened in it."""
        self.assert_clean(job, limit=180)
        text = job.stdout()
        accuracy = [float(a) for a in re.findall(r"accuracy[ =:]+([01]\.\d+)", text)]
        self.assertTrue(accuracy, job.report())
        self.assertGreater(accuracy[-1], 0.93, job.report())
        checksums = re.findall(r"checksum[ =:]+(\S+)", text)
        size = job.events("form")[-1].size
        self.assertEqual(len(checksums), size, job.report())
        self.assertEqual(len(set(checksums)), 1, job.report())
        self.assert_commits_kept(job)
        self.assert_same_pids(job, pids)

    def kill_ranks(self, job, ranks, apart_s=0.0):
        """Kills, and waits until a newer world trains; gives the pids of the survivors."""
        world = job.world()
        generation = job.generation()
        for index, rank in enumerate(ranks):
            if index > 0:
                time.sleep(apart_s)
            job.kill(world[rank].pid)
        survivors = {e.pid for rank, e in world.items() if rank not in ranks}
        job.wait_for(lambda: job.generation() > generation and job.size() > 0,
                     "a newer world that trains")
        # A victim may notice too, before its own turn comes.
        job.wait_for(lambda: survivors <= {e.pid for e in job.events("lost", generation=generation)},
                     "the loss, noticed by all survivors")
        return survivors


class WithoutEvents(Digits):
    def test_two_hosts(self):
        job = self.train(step_ms=0)
        job.wait_size(4)
        self.finish(job, {e.pid for e in job.world().values()})
        self.assertEqual(len(job.events("form")), 1, job.report())

    def test_world_of_one(self):
        self.finish(self.train(hosts="localhost:1", np=1, min_np=1, step_ms=0))


class ByDiscovery(Digits):
    def test_growth_from_2_to_4(self):
        job = self.train(hosts="localhost:2", np=2)
        job.wait_size(2)
        pids = {e.pid for e in job.world().values()}
        job.set_hosts(FULL)
        job.wait_size(4)
        self.finish(job, pids)
        self.assertEqual(job.events("lost"), [])

    def test_shrink_from_4_to_2(self):
        job = self.train()
        job.wait_size(4)
        pids = {e.pid for e in job.world().values() if e.host == "localhost"}
        job.set_hosts("localhost:2")
        job.wait_size(2)
        self.finish(job, pids)
        self.assertEqual(job.events("lost"), [])

    def test_host_of_rank_0_leaves(self):
        job = self.train()
        job.wait_size(4)
        leaving = job.world()[0].host
        pids = {e.pid for e in job.world().values() if e.host != leaving}
        job.set_hosts("\n".join(h for h in FULL.split() if not h.startswith(leaving + ":")))
        job.wait_size(2)
        self.finish(job, pids)


class Kills(Digits):
    def test_each_rank_in_turn(self):
        job = self.train(step_ms=10)
        for rank in (1, 2, 3, 0):
            job.wait_size(4)
            job.wait_more_steps(COMMIT_EVERY + 2)
            survivors = self.kill_ranks(job, [rank])
            self.assert_same_pids(job, survivors)
        job.wait_size(4)
        self.finish(job)
        self.assertEqual(len(job.events("reaped", code=137)), 4, job.report())

    def test_two_kills_5_ms_apart(self):
        job = self.train()
        job.wait_size(4)
        job.wait_step(COMMIT_EVERY + 3)
        self.finish(job, self.kill_ranks(job, [0, 2], apart_s=0.005))
        self.assertEqual(len(job.events("reaped", code=137)), 2, job.report())

    def test_three_of_four(self):
        job = self.train(min_np=1)
        job.wait_size(4)
        job.wait_step(COMMIT_EVERY + 3)
        self.finish(job, self.kill_ranks(job, [0, 1, 3]))

    def test_hold_below_min_np_and_recovery(self):
        job = self.train(min_np=4)
        job.wait_size(4)
        job.wait_step(COMMIT_EVERY + 3)
        world = job.world()
        generation = job.generation()
        job.kill(world[1].pid)
        survivors = {e.pid for rank, e in world.items() if rank != 1}
        job.wait_size(4, after_generation=generation)
        self.finish(job, survivors)
        self.assertEqual({e.size for e in job.events("form")}, {4}, job.report())


class Freezes(Digits):
    def test_a_stopped_worker_is_replaced(self):
        job = self.train()
        job.wait_size(4)
        job.wait_step(COMMIT_EVERY + 3)
        world = job.world()
        generation = job.generation()
        job.kill(world[2].pid, signal.SIGSTOP)
        job.wait_for(lambda: job.generation() > generation and job.size() > 0, "a newer world")
        survivors = {e.pid for rank, e in world.items() if rank != 2}
        self.assertNotIn(world[2].pid, {e.pid for e in job.world().values()})
        self.finish(job, survivors)

    def test_a_short_pause_costs_nothing(self):
        job = self.train()
        job.wait_size(4)
        job.wait_step(COMMIT_EVERY + 3)
        pids = {e.pid for e in job.world().values()}
        for rank in (1, 0):
            pid = job.pid_of_rank(rank)
            job.kill(pid, signal.SIGSTOP)
            until = time.monotonic() + 0.2
            job.wait_for(lambda t=until: time.monotonic() >= t, "200 ms")
            job.kill(pid, signal.SIGCONT)
            job.wait_more_steps(20)
        self.finish(job, pids)
        self.assertEqual(len(job.events("form")), 1, job.report())


class KillsAtExactPlaces(Digits):
    def check(self, fault, expected_lost=1):
        # As fast as it goes: the places are exact, however long a step takes.
        job = self.train(step_ms=0, env={"MUSTER_FAULT": fault})
        job.wait_for(lambda: len(job.events("reaped", code=137)) >= expected_lost, "the kill")
        generation = job.events("form")[-1].generation
        job.wait_for(lambda: job.generation() >= generation and job.size() > 0,
                     "a newer world that trains")
        self.finish(job)
        self.assertGreaterEqual(len(job.events("form")), 2, job.report())

    def test_in_the_first_formation(self):
        self.check("formation:2:kill")

    def test_of_rank_0_in_the_first_formation(self):
        self.check("formation:0:kill")

    def test_in_the_first_sync(self):
        self.check("sync:1:kill")

    def test_of_the_source_in_the_first_sync(self):
        self.check("sync_bulk:0:kill")

    def test_at_the_end_of_the_first_sync(self):
        self.check("sync_end:3:kill")

    def test_in_a_commit(self):
        self.check("commit:2:kill:4")

    def test_of_rank_0_in_the_copy_of_a_commit(self):
        self.check("commit_copy:0:kill:4")

    def test_in_the_formation_that_follows_a_loss(self):
        # Rank 3 dies in its seventh commit; rank 1 passes its second formation after that.
        self.check("commit:3:kill:7,formation:1:kill:2", expected_lost=2)

    def test_in_the_sync_that_follows_a_loss(self):
        self.check("commit:3:kill:7,sync:1:kill:2", expected_lost=2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
