"""Links that break, hosts that freeze or are switched off: what cannot be reached is fenced, ends
itself with its lease, and takes part again only as somebody new, or within the lease as who it was.
"""

import re
import signal
import time
import unittest

import harness
import netns
from harness import GO

FULL = "nodea:1\nnodeb:1\nnodec:1"
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
COMES_BACK = ["--blacklist-cooldown-range", 1, 1]
SHORT_LEASE_S = 3
LONG_LEASE_S = 20
# An agent that is silent for this long is suspected.
SUSPECTED_S = 2
# From the end of a lease to the end of all on its host.
SWEEP_S = 4
# Within which the others go on: a bound against hangs; the figure is printed.
GO_ON_S = 15


class CutsTest(netns.NetworkTest):
    def start(self, lease=SHORT_LEASE_S, cooldown=STAYS_OUT, hosts=FULL, **options):
        worker = {"steps": 60, "sleep_ms": 20, "go_file": GO, "children": 1}
        worker.update(options.pop("worker", {}))
        return self.job(hosts=hosts, np=3, min_np=1, max_np=3,
                        args=["--driver-grace", lease, *cooldown], worker=worker, **options)

    def start_training(self, **options):
        job = self.start(**options)
        job.wait_size(3)
        job.wait_step(12)
        return job

    def pids_on(self, job, hosts):
        return {e.pid for e in job.events("init") if e.host in hosts}

    def wait_seconds(self, job, seconds):
        """Of the job's life, not of its training: events need not come."""
        until = time.monotonic() + seconds
        job.wait_for(lambda: time.monotonic() > until, f"{seconds} s")

    def wait_all_gone(self, job, hosts, since, within):
        """By themselves: nobody can reach them."""
        deadline = since + within
        for host in hosts:
            job.wait_for(lambda h=host: not self.processes(job, h),
                         f"the end of all on {host}", limit=max(1.0, deadline - time.monotonic()))
        print(f"\nall gone on {', '.join(hosts)} {time.monotonic() - since:.1f} s after the cut")

    def wait_resumed(self, job, pids, since, generation):
        job.wait_size(len(pids), limit=GO_ON_S, after_generation=generation)
        first = max(min(e.t for e in job.events("step", pid=pid, generation=job.generation()))
                    for pid in pids)
        print(f"\ncut to a step of all survivors: {(first - since) * 1000:.0f} ms")
        self.assert_same_pids(job, pids)

    def finish(self, job):
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class Cut(CutsTest):
    """For longer than the lease. The hosts come back as new ones once they can be reached."""

    def check(self, hosts, break_link=None, job=None, survivors=None):
        job = job or self.start_training(cooldown=COMES_BACK)
        rest = [h for h in self.network.hosts if h not in hosts]
        survivors = survivors if survivors is not None else self.pids_on(job, rest)
        lost = self.pids_on(job, hosts)
        generation = job.generation()
        agents = {host: self.agent(job, host) for host in hosts}
        cut_at = time.monotonic()
        for host in hosts:
            (break_link or self.network.cut)(host)
        self.wait_resumed(job, survivors, cut_at, generation)
        resumed_in = job.generation()
        self.wait_all_gone(job, hosts, cut_at, SHORT_LEASE_S + SWEEP_S)
        self.assert_fenced(job, lost, resumed_in)
        for host in hosts:
            self.network.heal(host)
        job.wait_size(3, after_generation=resumed_in)
        for host in hosts:
            self.assertNotEqual(self.agent(job, host), agents[host])
        self.assert_same_pids(job, survivors)
        self.assert_fenced(job, lost, resumed_in)
        self.finish(job)

    def test_one_host(self):
        self.check(["nodeb"])

    def test_the_host_of_rank_0(self):
        self.check(["nodea"])

    def test_two_hosts_at_once(self):
        self.check(["nodeb", "nodec"])

    def test_a_black_hole(self):
        self.check(["nodec"], self.network.black_hole)


class CutMeanwhile(CutsTest):
    """The link breaks while a world forms or syncs, which a delay at that place holds up."""

    def check_after_a_loss(self, fault, reached, cut="nodec"):
        """nodeb's worker is killed; the world of the other two is cut where `fault` holds it."""
        job = self.start_training(env={"MUSTER_FAULT": fault}, worker={"pad_mb": 2})
        survivors = self.pids_on(job, {"nodea", "nodec"} - {cut})
        lost = self.pids_on(job, {cut})
        generation = job.generation()
        job.kill([e.pid for e in job.world().values() if e.host == "nodeb"][0])
        job.wait_for(lambda: reached(job, generation + 1), "the place that is delayed")
        cut_at = time.monotonic()
        self.network.cut(cut)
        self.assertEqual(job.events("step", generation=generation + 1), [], job.report())
        self.wait_resumed(job, survivors, cut_at, generation + 1)
        self.wait_all_gone(job, [cut], cut_at, SHORT_LEASE_S + SWEEP_S)
        self.assert_fenced(job, lost, job.generation())
        self.finish(job)

    @staticmethod
    def formed_by_driver(job, generation):
        return job.events("form", generation=generation)

    @staticmethod
    def entered(job, generation):
        return len(job.events("world", generation=generation)) == 2

    def test_formation_after_a_loss(self):
        self.check_after_a_loss("formation:0:delay=1500:2", self.formed_by_driver)

    def test_formation_after_a_loss_of_the_host_of_rank_0(self):
        self.check_after_a_loss("formation:2:delay=1500:2", self.formed_by_driver, cut="nodea")

    def test_sync_after_a_loss(self):
        self.check_after_a_loss("sync:0:delay=1500:2", self.entered)

    def test_sync_after_a_loss_of_the_host_of_rank_0(self):
        self.check_after_a_loss("sync:2:delay=1500:2", self.entered, cut="nodea")

    def test_the_first_formation(self):
        job = self.start(env={"MUSTER_FAULT": "formation:0:delay=1500"})
        job.wait_for(lambda: job.events("form"), "the driver's first world")
        cut_at = time.monotonic()
        self.network.cut("nodec")
        self.assertEqual(job.events("world"), [], job.report())
        job.wait_size(2, limit=GO_ON_S)
        self.assertEqual({e.host for e in job.world().values()}, {"nodea", "nodeb"})
        self.wait_all_gone(job, ["nodec"], cut_at, SHORT_LEASE_S + SWEEP_S)
        self.finish(job)


class HealedWithinTheLease(CutsTest):
    def test_before_anybody_suspects_it_nothing_happens(self):
        job = self.start_training(lease=LONG_LEASE_S)
        generation = job.generation()
        pids = self.pids_on(job, self.network.hosts)
        agents = [self.agent(job, host) for host in self.network.hosts]
        self.network.cut("nodeb")
        self.wait_seconds(job, 0.5)
        self.network.heal("nodeb")
        job.wait_more_steps(30)
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, pids)
        self.assertEqual([self.agent(job, host) for host in self.network.hosts], agents)
        self.finish(job)

    def test_every_line_is_printed_once(self):
        # A program that calls no init(): no collective can end by the cut.
        script = ('i=0; while [ ! -e "${HOSTS%hosts}go" ]; do echo "R$HOROVOD_RANK-$i."; i=$((i+1)); '
                  'sleep 0.02; done; echo "R$HOROVOD_RANK-ends-$i."')
        job = self.job(np=2, args=["-H", "nodea:1,nodeb:1", "--driver-grace", LONG_LEASE_S],
                       command=["sh", "-c", script], elastic=False)
        job.wait_for(lambda: "R1-20." in job.stdout(), "the first lines")
        self.network.black_hole("nodeb")
        self.wait_seconds(job, 3)
        self.network.heal("nodeb")
        job.wait_for(lambda: "is attached again" in job.stderr(), "the return of the agent")
        printed = len(re.findall(r"R1-\d+\.", job.stdout()))
        job.wait_for(lambda: len(re.findall(r"R1-\d+\.", job.stdout())) > printed + 100,
                     "more lines after the return")
        job.let_go()
        self.assertEqual(job.wait_exit(), 0, job.report())
        for rank in (0, 1):
            numbers = [int(n) for n in re.findall(rf"R{rank}-(\d+)\.", job.stdout())]
            count = int(re.search(rf"R{rank}-ends-(\d+)\.", job.stdout())[1])
            self.assertEqual(numbers, list(range(count)))

    def check_reattached(self, host):
        job = self.start_training(lease=LONG_LEASE_S, cooldown=COMES_BACK)
        survivors = self.pids_on(job, set(self.network.hosts) - {host})
        lost = self.pids_on(job, {host})
        agent = self.agent(job, host)
        generation = job.generation()
        cut_at = time.monotonic()
        self.network.cut(host)
        self.wait_resumed(job, survivors, cut_at, generation)
        resumed_in = job.generation()
        self.assertLess(time.monotonic() - cut_at, LONG_LEASE_S)
        self.network.heal(host)
        job.wait_size(3, after_generation=resumed_in)
        print(f"\nfull size again {time.monotonic() - cut_at:.1f} s after the cut")
        self.assertEqual(self.agent(job, host), agent)
        self.assert_fenced(job, lost, resumed_in)
        self.assert_same_pids(job, survivors)
        self.finish(job)

    def test_the_agent_is_reattached_and_its_slot_is_filled_again(self):
        self.check_reattached("nodec")

    def test_also_on_the_host_of_rank_0(self):
        self.check_reattached("nodea")

    def test_a_driver_that_is_cut_off_for_less_than_the_lease_loses_nobody(self):
        job = self.start_training(lease=LONG_LEASE_S, cooldown=COMES_BACK)
        generation = job.generation()
        pids = self.pids_on(job, self.network.hosts)
        agents = [self.agent(job, host) for host in self.network.hosts]
        self.network.cut("driver")
        cut_at = job.events()[-1].t
        # All its agents are suspected by then, and stay what they are.
        job.wait_for(lambda: job.events()[-1].t > cut_at + SUSPECTED_S + 2,
                     "training without the driver")
        self.network.heal("driver")
        job.wait_more_steps(50)
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, pids)
        self.assertEqual([self.agent(job, host) for host in self.network.hosts], agents)
        # It leads again.
        job.kill(job.pid_of_rank(1))
        job.wait_size(3, after_generation=generation)
        self.assertEqual([self.agent(job, host) for host in self.network.hosts], agents)
        self.finish(job)

    def test_a_loss_while_the_driver_is_cut_off_is_handled_afterwards(self):
        job = self.start_training(lease=LONG_LEASE_S)
        generation = job.generation()
        world = job.world()
        self.network.cut("driver")
        job.kill(world[1].pid)
        self.wait_seconds(job, 1)
        self.network.heal("driver")
        job.wait_size(2, after_generation=generation)
        self.assert_same_pids(job, {world[0].pid, world[2].pid})
        self.finish(job)


class Severed(CutsTest):
    """Two hosts cannot reach each other, while the driver and the third one reach both: their link
    breaks at each formation, and nobody is dead."""

    def test_the_third_break_expels_one_of_the_two(self):
        self.network.run("nodeb", ["ip", "route", "add", "blackhole", self.network.address("nodec")],
                         check=True)
        self.addCleanup(self.network.run, "nodeb",
                        ["ip", "route", "delete", "blackhole", self.network.address("nodec")])
        job = self.start(lease=LONG_LEASE_S)
        job.wait_size(2)
        hosts = {e.host for e in job.world().values()}
        self.assertIn("nodea", hosts, job.report())
        gone, = {"nodeb", "nodec"} - hosts
        job.wait_for(lambda: job.events("reaped", host=gone), "the end of the expelled worker",
                     limit=SWEEP_S)
        # It ends itself, unless the order to kill it was faster.
        self.assertIn(job.events("reaped")[0].code, (70, 137), job.report())
        self.assertEqual(len(job.events("reaped")), 1, job.report())
        revoked = {e.generation for e in job.events("revoke")}
        self.assertEqual(revoked, {1, 2, 3}, job.report())
        self.finish(job)


class DriverCutOff(CutsTest):
    def test_for_longer_than_the_lease_everything_ends(self):
        job = self.start_training()
        cut_at = time.monotonic()
        self.network.cut("driver")
        self.wait_all_gone(job, self.network.hosts, cut_at, SHORT_LEASE_S + SWEEP_S)
        code = job.wait_exit()
        self.assertNotEqual(code, 0, job.report())
        self.assert_clean(job, code=code)
        self.assertRegex(job.last_line(), "state", job.report())


class Frozen(CutsTest):
    """The agent is stopped: its host says nothing, though its workers go on."""

    def test_for_a_moment_nothing_happens(self):
        job = self.start_training()
        generation = job.generation()
        pids = self.pids_on(job, self.network.hosts)
        agent = self.agent(job, "nodeb")
        job.kill(agent, signal.SIGSTOP)
        self.wait_seconds(job, 1.5)
        job.kill(agent, signal.SIGCONT)
        job.wait_more_steps(50)
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, pids)
        self.assertEqual(self.agent(job, "nodeb"), agent)
        self.finish(job)

    def test_within_the_lease_its_workers_are_lost_and_it_is_reattached(self):
        job = self.start_training(lease=LONG_LEASE_S, cooldown=COMES_BACK)
        survivors = self.pids_on(job, {"nodea", "nodec"})
        lost = self.pids_on(job, {"nodeb"})
        agent = self.agent(job, "nodeb")
        generation = job.generation()
        stopped_at = time.monotonic()
        job.kill(agent, signal.SIGSTOP)
        self.wait_resumed(job, survivors, stopped_at, generation)
        self.assertGreater(time.monotonic() - stopped_at, SUSPECTED_S - 0.5)
        resumed_in = job.generation()
        job.kill(agent, signal.SIGCONT)
        job.wait_size(3, after_generation=resumed_in)
        self.assertEqual(self.agent(job, "nodeb"), agent)
        self.assert_fenced(job, lost, resumed_in)
        self.finish(job)

    def test_beyond_the_lease_it_ends_itself_when_it_wakes(self):
        job = self.start_training(cooldown=COMES_BACK)
        survivors = self.pids_on(job, {"nodea", "nodec"})
        lost = self.pids_on(job, {"nodeb"})
        agent = self.agent(job, "nodeb")
        generation = job.generation()
        stopped_at = time.monotonic()
        job.kill(agent, signal.SIGSTOP)
        self.wait_resumed(job, survivors, stopped_at, generation)
        resumed_in = job.generation()
        self.wait_seconds(job, max(0.0, SHORT_LEASE_S + 2 - (time.monotonic() - stopped_at)))
        if harness.is_alive(agent):
            job.kill(agent, signal.SIGCONT)
        job.wait_for(lambda: not harness.is_alive(agent), "the end of the agent", limit=SWEEP_S)
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost), "the end of its workers",
                     limit=SWEEP_S)
        self.assert_fenced(job, lost, resumed_in)
        job.wait_size(3, after_generation=resumed_in)
        self.assert_same_pids(job, survivors)
        self.finish(job)

    def test_beyond_the_lease_it_is_ended_though_nobody_wakes_it(self):
        job = self.start(cooldown=COMES_BACK)
        job.wait_size(3)  # At once: its lease has hardly begun.
        lost = self.pids_on(job, {"nodeb"})
        agent = self.agent(job, "nodeb")
        job.kill(agent, signal.SIGSTOP)
        job.wait_for(lambda: not harness.is_alive(agent), "the end of the agent",
                     limit=SHORT_LEASE_S + SWEEP_S)
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost), "the end of its workers",
                     limit=SWEEP_S)
        job.wait_size(3, after_generation=job.generation())
        self.finish(job)

    def test_a_whole_host_beyond_the_lease(self):
        job = self.start_training(cooldown=COMES_BACK)
        survivors = self.pids_on(job, {"nodea", "nodec"})
        lost = self.pids_on(job, {"nodeb"})
        generation = job.generation()
        stopped_at = time.monotonic()
        frozen = self.processes(job, "nodeb")
        self.assertGreaterEqual(len(frozen), 4, job.report())
        for pid in frozen:
            job.kill(pid, signal.SIGSTOP)
        self.wait_resumed(job, survivors, stopped_at, generation)
        resumed_in = job.generation()
        self.wait_seconds(job, max(0.0, SHORT_LEASE_S + 2 - (time.monotonic() - stopped_at)))
        for pid in frozen:
            if harness.is_alive(pid):
                job.kill(pid, signal.SIGCONT)
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in frozen),
                     "the end of all that was frozen", limit=2 * SWEEP_S)
        self.assert_fenced(job, lost, resumed_in)
        job.wait_size(3, after_generation=resumed_in)
        self.finish(job)


class Rebooted(CutsTest):
    def check(self, host):
        job = self.start_training(cooldown=COMES_BACK)
        survivors = self.pids_on(job, set(self.network.hosts) - {host})
        lost = self.pids_on(job, {host})
        agent = self.agent(job, host)
        generation = job.generation()
        off_at = time.monotonic()
        # Nobody says goodbye on a link that is down.
        self.network.cut(host)
        self.network.halt(host)
        self.addCleanup(self._ensure_sshd, host)
        self.wait_resumed(job, survivors, off_at, generation)
        resumed_in = job.generation()
        self.network.heal(host)
        self.network.start_sshd(host)
        job.wait_size(3, after_generation=resumed_in)
        print(f"\nfull size again {time.monotonic() - off_at:.1f} s after the power cut")
        self.assertNotEqual(self.agent(job, host), agent)
        self.assert_fenced(job, lost, resumed_in)
        self.assert_same_pids(job, survivors)
        self.finish(job)

    def _ensure_sshd(self, host):
        self.network.halt(host)
        self.network.start_sshd(host)

    def test_a_host_joins_again(self):
        self.check("nodeb")

    def test_the_host_of_rank_0_joins_again(self):
        self.check("nodea")

    def test_all_processes_killed_while_the_link_is_up(self):
        job = self.start_training(cooldown=COMES_BACK)
        survivors = self.pids_on(job, {"nodea", "nodec"})
        generation = job.generation()
        off_at = time.monotonic()
        self.network.halt("nodeb")
        self.addCleanup(self._ensure_sshd, "nodeb")
        self.wait_resumed(job, survivors, off_at, generation)
        self.network.start_sshd("nodeb")
        job.wait_size(3, after_generation=job.generation())
        self.finish(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
