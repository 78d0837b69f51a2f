"""Jobs over hosts of their own, through a real sshd: an arrival, a departure or a kill costs the
host that it happens on, and nobody else."""

import re
import signal
import time
import unittest

import harness
import netns
import test_digits
from harness import GO

# So long that a lost slot stays empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
COMES_BACK = ["--blacklist-cooldown-range", 1, 1]
FULL = "nodea:1\nnodeb:1\nnodec:1"
# Of remote agents, in these tests; what ends by it may take a little longer than that.
DRIVER_GRACE_S = 3
BUILT_IN_GRACE_S = 10
SHORT_LEASE = ["--driver-grace", DRIVER_GRACE_S]
# An agent that is silent for so long is suspected; all news of a kill come sooner.
SUSPECTED_S = 2
# Children that have left the session, and everybody deaf to SIGTERM.
STUBBORN = {"steps": 100000, "sleep_ms": 20, "children": 1, "ignore_term": 1}


class DigitsOverSsh(netns.NetworkTest, test_digits.Digits):
    def test_three_hosts(self):
        job = self.train(hosts=FULL, np=3, min_np=3, max_np=3, step_ms=0)
        job.wait_size(3)
        first = min(e.t for e in job.events("step")) - job.started
        print(f"\nlauncher to first step over ssh: {first * 1000:.0f} ms")
        for event in job.world().values():
            self.assertIn(self.network.host_of(event.pid), (event.host, None), job.report())
        self.finish(job, {e.pid for e in job.world().values()})
        self.assertEqual(len(job.events("form")), 1, job.report())
        self.assertEqual({e.host for e in job.events("init")}, {"nodea", "nodeb", "nodec"})
        self.assertRegex(job.stdout(), r"(?m)^\[0\]<stdout>:.*accuracy")

    def test_growth_and_shrink(self):
        job = self.train(hosts="nodea:1\nnodeb:1", np=2, min_np=1, max_np=3, step_ms=12)
        job.wait_size(2)
        pids = {e.pid for e in job.world().values()}
        job.set_hosts(FULL)
        job.wait_size(3)
        self.assert_same_pids(job, pids)
        newcomer = [e.pid for e in job.world().values() if e.pid not in pids]
        self.assertEqual([self.network.host_of(pid) for pid in newcomer], ["nodec"])
        job.wait_more_steps(test_digits.COMMIT_EVERY + 2)
        # The host of rank 0 leaves: its state must go on elsewhere.
        leaving = job.world()[0]
        job.set_hosts("\n".join(h for h in FULL.split() if not h.startswith(leaving.host + ":")))
        job.wait_size(2)
        self.assertNotIn(leaving.pid, {e.pid for e in job.world().values()})
        job.wait_for(lambda: not self.processes(job, leaving.host), "the end of all on its host")
        self.finish(job, {e.pid for e in job.world().values()})
        self.assertEqual(job.events("lost"), [], job.report())


    def test_a_cut_host_costs_itself_alone(self):
        job = self.train(hosts=FULL, np=3, min_np=1, max_np=3, args=SHORT_LEASE, step_ms=15)
        job.wait_size(3)
        job.wait_step(test_digits.COMMIT_EVERY + 3)
        generation = job.generation()
        cut = [e.pid for e in job.world().values() if e.host == "nodea"]
        survivors = {e.pid for e in job.world().values() if e.host != "nodea"}
        self.network.cut("nodea")
        job.wait_size(2, after_generation=generation)
        self.assert_same_pids(job, survivors)
        resumed_in = job.generation()
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in cut), "the end of the lease")
        self.assert_fenced(job, cut, resumed_in)
        self.network.heal("nodea")
        job.wait_size(3, after_generation=resumed_in)
        self.finish(job, survivors)


class Kills(netns.NetworkTest):
    def start(self, args=STAYS_OUT, **options):
        worker = {"steps": 60, "sleep_ms": 20, "go_file": GO, "children": 1}
        job = self.job(hosts=FULL, np=3, min_np=1, max_np=3, args=[*SHORT_LEASE, *args],
                       worker=worker, **options)
        job.wait_size(3)
        job.wait_step(12)
        return job

    def check(self, victims_of, host="nodeb", within=SUSPECTED_S):
        """Only that host pays: its processes end, all others keep theirs and their state."""
        job = self.start()
        world = job.world()
        survivors = {e.pid for e in world.values() if e.host != host}
        others = [self.agent(job, h) for h in self.network.hosts if h != host]
        lost = {e.pid for e in world.values() if e.host == host}
        generation = job.generation()
        killed_at = time.monotonic()
        job.kill_all(victims_of(job, host))
        job.wait_size(2, after_generation=generation)
        first = min(e.t for e in job.events("step", generation=job.generation()))
        took = first - killed_at
        print(f"\nkill to the next world's first step: {took * 1000:.0f} ms")
        self.assertLess(took, within, job.report())
        self.assert_same_pids(job, survivors)
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost), "the end of its workers")
        self.assertEqual([self.agent(job, h) for h in self.network.hosts if h != host], others)
        self.assert_fenced(job, lost, job.generation())
        job.let_go()
        return job

    def finish(self, job):
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_a_worker(self):
        self.finish(self.check(lambda job, host: [e.pid for e in job.world().values()
                                                  if e.host == host]))

    def test_the_worker_of_rank_0(self):
        job = self.check(lambda job, host: [job.pid_of_rank(0)], host="nodea")
        self.finish(job)

    def test_an_agent(self):
        self.finish(self.check(lambda job, host: [self.agent(job, host)]))

    def test_a_reaper(self):
        self.finish(self.check(lambda job, host: [harness.parent_of(self.agent(job, host))]))

    def test_agent_and_reaper(self):
        # Nobody is left to tell, so this is noticed by silence.
        job = self.check(lambda job, host: [self.agent(job, host),
                                            harness.parent_of(self.agent(job, host))],
                         within=harness.LIMIT_S)
        job.wait_exit()
        # Nobody is left on that host who could find what its workers had started.
        for pid in self.processes(job, "nodeb"):
            self.assertEqual(harness.command_line(pid), ["sleep", "999"])
            job.kill(pid)
        self.finish(job)

    def test_a_killed_host_comes_back(self):
        job = self.start(args=COMES_BACK)
        agent = self.agent(job, "nodeb")
        generation = job.generation()
        job.kill(agent)
        job.wait_size(3, after_generation=generation)
        self.assertNotEqual(self.agent(job, "nodeb"), agent)
        job.let_go()
        self.finish(job)

    def test_all_ssh_clients_which_nobody_needs_once_the_agents_run(self):
        job = self.start()
        agents = [self.agent(job, host) for host in self.network.hosts]
        clients = self.ssh_clients(job)
        self.assertEqual(set(clients), set(self.network.hosts), job.report())
        generation = job.generation()
        pids = {e.pid for e in job.world().values()}
        for pid in clients.values():
            job.kill(pid)
        killed_at = job.events()[-1].t
        job.wait_for(lambda: job.events()[-1].t > killed_at + 3, "three more seconds of training")
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, pids)
        self.assertEqual([self.agent(job, host) for host in self.network.hosts], agents)
        # They are still led: a loss is handled.
        job.kill(job.pid_of_rank(2))
        job.wait_size(2, after_generation=generation)
        job.let_go()
        self.finish(job)


class DriverEnds(netns.NetworkTest):
    HOSTS = ("nodea", "nodeb")

    def start(self, args=()):
        job = self.job(hosts="nodea:2\nnodeb:1", np=3, min_np=1,
                       args=["--grace", 1, *SHORT_LEASE, *args], worker=STUBBORN)
        job.wait_size(3)
        for host in self.network.hosts:
            self.agent(job, host)
        # Each worker has a child, each agent a reaper.
        self.assertGreaterEqual(len(self.processes(job, "nodea")), 6, job.report())
        self.assertGreaterEqual(len(self.processes(job, "nodeb")), 4, job.report())
        return job

    def test_by_kill_everything_ends_with_the_lease(self):
        job = self.start()
        job.kill(job.pid)
        killed_at = time.monotonic()
        self.assertEqual(job.wait_exit(20), -signal.SIGKILL)
        self.assert_no_process(job, within=DRIVER_GRACE_S + harness.LEFTOVER_S)
        print(f"\nall gone {time.monotonic() - killed_at:.1f} s after the driver")

    def test_by_kill_while_the_agents_start(self):
        """They do not know their lease yet: the built-in one counts."""
        job = self.job(hosts="nodea:2\nnodeb:1", np=3, min_np=1, worker=STUBBORN)
        job.wait_for(lambda: any("agent" in harness.command_line(pid)[1:2]
                                 for pid in harness.descendants_by_token(job.token)), "an agent")
        job.kill(job.pid)
        self.assertEqual(job.wait_exit(20), -signal.SIGKILL)
        self.assert_no_process(job, within=BUILT_IN_GRACE_S + harness.LEFTOVER_S)

    def test_by_term(self):
        job = self.start()
        job.kill(job.pid, signal.SIGTERM)
        self.assert_clean(job, code=143)

    def test_by_int_while_the_agents_start(self):
        job = self.job(hosts="nodea:2\nnodeb:1", np=3, min_np=1, args=["--grace", 1, *SHORT_LEASE],
                       worker=STUBBORN)
        job.wait_for(lambda: self.ssh_clients(job), "an ssh client")
        job.kill(job.pid, signal.SIGINT)
        self.assert_clean(job, code=130)

    def test_by_the_code_of_a_worker(self):
        job = self.job(hosts="nodea:1\nnodeb:1", elastic=False, np=2,
                       args=["-H", "nodea:1,nodeb:1", "--grace", 1, *SHORT_LEASE],
                       worker={"steps": 100000, "sleep_ms": 20, "children": 1,
                               "die": "nodeb@10:7"})
        self.assert_clean(job, code=7)
        self.assertRegex(job.last_line(), re.compile(r"nodeb"))


class ManyWorkers(netns.NetworkTest):
    """Case 88: a worker process that comes back is a new member, as often as it takes."""

    HOSTS = ("nodea", "nodeb")
    ROUNDS = 3

    def test_a_killed_worker_rejoins_every_time(self):
        job = self.job(hosts="nodea:2\nnodeb:1", np=3, min_np=1, max_np=3, args=COMES_BACK,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(3)
        survivors = {e.pid for e in job.world().values() if e.host == "nodea"}
        agent = self.agent(job, "nodeb")
        seen = set()
        for _ in range(self.ROUNDS):
            generation = job.generation()
            victim = [e.pid for e in job.world().values() if e.host == "nodeb"]
            self.assertEqual(len(victim), 1, job.report())
            self.assertNotIn(victim[0], seen)
            seen.add(victim[0])
            job.kill(victim[0])
            job.wait_size(3, limit=15, after_generation=generation)
        self.assert_same_pids(job, survivors)
        self.assertEqual(self.agent(job, "nodeb"), agent)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
