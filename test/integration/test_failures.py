"""User cases 20, 29, 35, 36, 37 and 40: workers, agents and hosts that fail."""

import os
import random
import unittest

import harness
from harness import GO

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"

# So long that a lost slot stays empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
THREE_HOSTS = "localhost:1\n127.0.0.1:1\n127.0.0.2:1"


class RankZeroLeaves(harness.JobTest):
    """Case 20."""

    def start(self, **options):
        job = self.job(hosts=THREE_HOSTS, np=3, min_np=2, max_np=3, args=STAYS_OUT,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO}, **options)
        job.wait_size(3)
        job.wait_step(12)
        return job

    def check(self, job, survivors):
        job.wait_size(2)
        self.assertIn(job.pid_of_rank(0), survivors)
        self.assert_same_pids(job, survivors)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertEqual(job.events("finish")[-1].code, 0)

    def test_its_host_is_unlisted(self):
        job = self.start()
        world = job.world()
        rest = [host for host in THREE_HOSTS.split() if not host.startswith(world[0].host + ":")]
        job.set_hosts("\n".join(rest))
        self.check(job, {world[1].pid, world[2].pid})

    def test_it_is_killed(self):
        job = self.start()
        world = job.world()
        job.kill(world[0].pid)
        self.check(job, {world[1].pid, world[2].pid})

    def test_it_is_killed_with_its_agent(self):
        job = self.start()
        world = job.world()
        agent = job.agents(world[0].host)
        self.assertEqual(len(agent), 1, job.report())
        job.kill(world[0].pid)
        job.kill(agent[0])
        self.check(job, {world[1].pid, world[2].pid})


class HealthyWorkersKeepTheirProcess(harness.JobTest):
    """Case 29."""

    def test_over_a_kill_a_removal_and_an_arrival(self):
        job = self.job(hosts=THREE_HOSTS, np=3, min_np=1, args=STAYS_OUT,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(3)
        world = job.world()
        untouched = world[0].pid
        job.wait_step(8)
        job.kill(world[1].pid)
        job.wait_size(2)
        rest = [h for h in THREE_HOSTS.split() if not h.startswith(world[2].host + ":")]
        job.set_hosts("\n".join(rest))
        job.wait_size(1)
        job.set_hosts("\n".join(rest + ["127.0.0.3:1"]))
        job.wait_size(2)
        self.assert_same_pids(job, [untouched])
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        counters = [e.counter for e in job.logged("step", pid=untouched)]
        self.assertEqual(counters, list(range(1, len(counters) + 1)))


class AllWorkersOfOneHostDie(harness.JobTest):
    """Case 35."""

    ROUNDS = 50 if FULL else 4

    def test_the_other_host_goes_on(self):
        job = self.job(hosts="localhost:2\n127.0.0.1:2", np=4, min_np=2, max_np=4,
                       args=["--blacklist-cooldown-range", 0.1, 0.1],
                       worker={"steps": 40, "sleep_ms": 10, "go_file": GO})
        job.wait_size(4)
        survivors = {e.pid for e in job.world().values() if e.host == "localhost"}
        chance = random.Random(35)
        for round_index in range(self.ROUNDS):
            job.wait_more_steps(chance.randrange(10))
            generation = job.generation()
            victims = [e.pid for e in job.world().values() if e.host == "127.0.0.1"]
            self.assertEqual(len(victims), 2, job.report())
            for pid in victims:
                job.kill(pid)
            job.wait_for(lambda g=generation: job.generation() > g, "a new world")
            job.wait_for(lambda g=generation: job.generation() > g and job.size() == 4,
                         f"full size again after round {round_index}")
        self.assert_same_pids(job, survivors)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertGreaterEqual(len(job.events("lost")), 2 * self.ROUNDS, job.report())

    def test_also_while_the_next_world_forms(self):
        job = self.job(hosts="localhost:2\n127.0.0.1:2", np=4, min_np=2, max_np=4, args=STAYS_OUT,
                       worker={"steps": 40, "sleep_ms": 10, "go_file": GO})
        job.wait_size(4)
        world = job.world()
        survivors = {e.pid for e in world.values() if e.host == "localhost"}
        victims = [e.pid for e in world.values() if e.host == "127.0.0.1"]
        forms = len(job.events("form"))
        job.kill(victims[0])
        job.wait_for(lambda: len(job.events("form")) > forms, "the driver's next world")
        job.kill(victims[1])
        job.wait_size(2)
        self.assert_same_pids(job, survivors)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class Cooldown(harness.JobTest):
    """Case 36."""

    def lives(self, job):
        return job.events("spawn", host="127.0.0.1")

    def test_gap_doubles_up_to_the_end_of_the_range(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1, max_np=2,
                       args=["--blacklist-cooldown-range", 1, 4],
                       worker={"steps": 20, "sleep_ms": 10, "go_file": GO,
                               "die_always": "127.0.0.1@10:1"})
        job.wait_for(lambda: len(self.lives(job)) >= 5, "five lives", limit=90)
        job.wait_for(lambda: len(job.events("reaped", host="127.0.0.1")) >= 5, "five deaths")
        job.set_hosts("localhost:1")
        job.wait_for(lambda: "127.0.0.1" not in job.events("discovered")[-1].hosts, "the removal")
        steps = job.max_step()
        job.wait_for(lambda: job.events()[-1].t > job.events("reaped")[-1].t + 6, "six seconds")
        self.assertGreater(job.max_step(), steps)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(len(self.lives(job)), 5, "an unlisted host was used again")
        deaths = job.events("reaped", host="127.0.0.1")
        gaps = [life.t - death.t for death, life in zip(deaths, self.lives(job)[1:])]
        for gap, least in zip(gaps, (1, 2, 4, 4)):
            # From the loss, which is a little earlier than the reaping, with some jitter on top.
            self.assertGreater(gap, least - 0.3, gaps)
            self.assertLess(gap, least + 10, gaps)

    def test_blame_host_without_a_range_bans_for_good(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1, max_np=2,
                       args=["--blame", "host"],
                       worker={"steps": 20, "sleep_ms": 10, "go_file": GO,
                               "die_always": "127.0.0.1@10:1"})
        job.wait_for(lambda: job.events("reaped", host="127.0.0.1"), "the death")
        death = job.events("reaped", host="127.0.0.1")[0].t
        job.wait_for(lambda: job.events()[-1].t > death + 4, "four seconds")
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(len(self.lives(job)), 1, job.report())


class SiblingsOfAFailedSlot(harness.JobTest):
    """Case 37, with `--blame host`."""

    def check(self, siblings):
        worker = {"steps": 60, "sleep_ms": 20, "go_file": GO, "die": "127.0.0.1/1@20:5"}
        for name, value in siblings.items():
            worker[name] = worker[name] + "," + value if name in worker else value
        job = self.job(hosts="localhost:2\n127.0.0.1:3", np=5, min_np=2, max_np=5,
                       args=["--blame", "host", "--grace", 3], worker=worker)
        job.wait_size(5)
        survivors = {e.pid for e in job.world().values() if e.host == "localhost"}
        job.wait_size(2)
        self.assert_same_pids(job, survivors)
        victims = {e.pid for e in job.events("init", host="127.0.0.1")}
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in victims),
                     "no process on the banned host", limit=20)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertEqual(len(job.events("spawn", host="127.0.0.1")), 3, job.report())

    def test_siblings_exit_with_0_a_second_later(self):
        self.check({"exit_later": "127.0.0.1/0@20:1000,127.0.0.1/2@20:1000"})

    def test_siblings_hang(self):
        self.check({"hang": "127.0.0.1/0@20:600000,127.0.0.1/2@20:600000"})

    def test_siblings_crash_at_the_same_instant(self):
        self.check({"die": "127.0.0.1/0@20:SEGV,127.0.0.1/2@20:ABRT"})


class SwallowedError(harness.JobTest):
    """Case 40."""

    def test_code_0_without_the_work_done_is_no_success(self):
        job = self.job(hosts="localhost:2", min_np=1, max_np=2, args=STAYS_OUT,
                       worker={"steps": 100, "sleep_ms": 10, "catch_lost": 1})
        job.wait_step(30)
        job.kill(job.pid_of_rank(1))
        code = job.wait_exit()
        self.assertEqual(len(job.logged("swallowed")), 1, job.report())
        self.assertNotEqual(code, 0, job.report())
        self.assert_clean(job, code=code)

    def test_a_worker_that_trains_on_is_joined_by_its_replacement(self):
        job = self.job(hosts="localhost:2", min_np=1, max_np=2,
                       args=["--blacklist-cooldown-range", 1, 1],
                       worker={"steps": 30, "sleep_ms": 10, "go_file": GO, "die": "1@10:0"})
        job.wait_size(2)
        job.wait_for(lambda: job.logged("dies"), "the exit with 0")
        generation = job.generation()
        job.wait_for(lambda: job.generation() > generation and job.size() == 2, "full size again")
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
