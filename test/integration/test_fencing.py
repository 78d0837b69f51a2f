"""The cut-off host: the link goes down at random moments in the middle of steps, again and again.
What runs there commits at most the step in flight at the cut, nothing after, and has ended itself
when the lease is over; what comes back is somebody new, or is ended before it can take part.

MUSTER_TEST_FULL=1 makes 20 cuts of each kind, otherwise 2. The seed is printed; SEED repeats it.
"""

import os
import random
import select
import time
import unittest

import harness
from harness import GO
from test_cuts import COMES_BACK, CutsTest, GO_ON_S, LONG_LEASE_S, SHORT_LEASE_S, SUSPECTED_S

CUTS = 20 if os.environ.get("MUSTER_TEST_FULL") else 2
SEED = int(os.environ.get("SEED") or time.time())
# The driver gives a host up so long after the lease: by then all there has ended.
DRIVER_MARGIN_S = 1
# Returned to within the lease, a host hears that its workers were refused.
REFUSED_WITHIN_S = 5
STEP_S = 0.005


class Ends:
    """When each of some processes has ended, by its pidfd: a look at /proc is too slow and stale."""

    def __init__(self, pids):
        self.times = {}
        self._poll = select.poll()
        self._open = {}
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            self._open[fd] = pid
            self._poll.register(fd, select.POLLIN)

    def all(self):
        for fd, _ in self._poll.poll(0):
            self.times[self._open.pop(fd)] = time.monotonic()
            self._poll.unregister(fd)
            os.close(fd)
        return not self._open

    def close(self):
        for fd in self._open:
            os.close(fd)


class FencingTest(CutsTest):
    hosts_text = None
    lease = SHORT_LEASE_S

    def setUp(self):
        super().setUp()
        self.chance = random.Random(SEED)
        print(f"\nseed {SEED}, {CUTS} cuts")
        # Each step commits, so that a commit too many would show.
        self.start_job(self.hosts_text)

    def start_job(self, hosts):
        self.hosts = [line.split(":")[0] for line in hosts.splitlines()]
        self.full = sum(int(line.split(":")[1]) for line in hosts.splitlines())
        self.job_ = self.job(hosts=hosts, np=self.full, min_np=1, max_np=self.full,
                             args=["--driver-grace", self.lease, *COMES_BACK],
                             worker={"steps": 20, "sleep_ms": int(STEP_S * 1000),
                                     "commit_every": 1, "go_file": GO, "children": 1})

    def cut_at_random(self):
        """(host, its members, the survivors, its processes' ends, the old generation, the times
        just before and after the cut)"""
        job, chance = self.job_, self.chance
        job.wait_size(self.full)
        job.wait_more_steps(chance.randrange(1, 10))
        host = chance.choice(self.hosts)
        world = job.world().values()
        lost = {e.pid for e in world if e.host == host}
        survivors = {e.pid for e in world} - lost
        ends = Ends(self.processes(job, host))
        self.addCleanup(ends.close)
        until = time.monotonic() + chance.random() * 4 * STEP_S
        while time.monotonic() < until:
            pass  # A sleep would end at a moment of its own choice.
        before = time.monotonic()
        self.network.cut(host)
        return host, lost, survivors, ends, job.generation(), before, time.monotonic()

    def await_survivors(self, survivors, generation, cut_at):
        self.job_.wait_size(len(survivors), limit=GO_ON_S, after_generation=generation)
        self.assert_same_pids(self.job_, survivors)
        resumed = min(e.t for e in self.job_.events("step", generation=self.job_.generation()))
        return resumed - cut_at

    def assert_at_most_the_step_in_flight(self, lost, generation, cut_at):
        """Of each process: one step and one commit, and nothing else at all."""
        job = self.job_
        self.assertTrue(lost, job.report())
        for pid in lost:
            after = [e for e in job.events(pid=pid) if e.t > cut_at]
            kinds = [e.event for e in after]
            what = f"{pid} after the cut: {after}\n{job.report()}"
            self.assertLessEqual(kinds.count("step"), 1, what)
            self.assertLessEqual(kinds.count("commit"), 1, what)
            self.assertEqual(set(kinds) - {"step", "commit"}, set(), what)
            self.assertLessEqual({e.generation for e in after}, {generation}, what)
        return max(sum(e.event == "step" and e.t > cut_at for e in job.events(pid=pid))
                   for pid in lost)

    def assert_never_a_member_again(self, lost, generation):
        """No world that the driver formed since has any of them."""
        job = self.job_
        numbers = {e.incarnation for e in job.events("init") if e.pid in lost}
        formed = [e for e in job.events("form") if e.generation > generation]
        self.assertTrue(formed, job.report())
        for event in formed:
            members = {m["incarnation"] for m in event.members}
            self.assertFalse(members & numbers, f"{event}\n{job.report()}")

    def finish_job(self):
        job = self.job_
        job.wait_size(self.full)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class BeyondTheLease:
    """Healed when all there has ended; the host is started anew."""

    def test_at_random_moments(self):
        resumed, ended, in_flight = [], [], 0
        for _ in range(CUTS):
            host, lost, survivors, ends, generation, before, cut_at = self.cut_at_random()
            resumed.append(self.await_survivors(survivors, generation, before))
            self.job_.wait_for(ends.all, f"the end of all on {host}", limit=self.lease + GO_ON_S)
            self.assertEqual(self.processes(self.job_, host), [], self.job_.report())
            last = max(ends.times.values())
            # No summary that was sent after the cut can have been acknowledged.
            self.assertLess(last, cut_at + self.lease + DRIVER_MARGIN_S, self.job_.report())
            ended.append(last - before)
            in_flight += self.assert_at_most_the_step_in_flight(lost, generation, cut_at)
            healed_at = time.monotonic()
            self.network.heal(host)
            self.job_.wait_size(self.full, after_generation=self.job_.generation())
            self.assert_at_most_the_step_in_flight(lost, generation, cut_at)
            self.assert_never_a_member_again(lost, generation)
            print(f"{host}: others stepped after {resumed[-1]:.2f} s, all ended after "
                  f"{ended[-1]:.2f} s, full size {time.monotonic() - healed_at:.1f} s after the heal",
                  flush=True)
        self.finish_job()
        print(f"{CUTS} cuts: others stepped after {min(resumed):.2f}-{max(resumed):.2f} s, all ended "
              f"after {min(ended):.2f}-{max(ended):.2f} s of a lease of {self.lease} s; "
              f"{in_flight} steps in flight were finished")


class TwoHosts(BeyondTheLease, FencingTest):
    """Two workers each: shared memory inside a host, links between the leaders."""

    HOSTS = ("nodea", "nodeb")
    hosts_text = "nodea:2\nnodeb:2"


class ThreeHosts(BeyondTheLease, FencingTest):
    hosts_text = "nodea:1\nnodeb:1\nnodec:1"


class WithinTheLease(FencingTest):
    """Healed when the others have gone on: its agent is who it was, its workers are refused."""

    hosts_text = "nodea:1\nnodeb:1\nnodec:1"
    lease = LONG_LEASE_S

    def test_at_random_moments(self):
        ended = []
        for _ in range(CUTS):
            host, lost, survivors, ends, generation, before, cut_at = self.cut_at_random()
            agent = self.agent(self.job_, host)
            self.await_survivors(survivors, generation, before)
            self.wait_seconds(self.job_, self.chance.random() * 2)
            self.assertGreater(time.monotonic() - before, SUSPECTED_S - 0.5)
            self.network.heal(host)
            healed_at = time.monotonic()
            self.job_.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost),
                               f"the end of the workers on {host}", limit=REFUSED_WITHIN_S)
            ended.append(time.monotonic() - healed_at)
            self.job_.wait_size(self.full, after_generation=self.job_.generation())
            self.assertEqual(self.agent(self.job_, host), agent)
            self.assert_at_most_the_step_in_flight(lost, generation, cut_at)
            self.assert_never_a_member_again(lost, generation)
        self.finish_job()
        print(f"{CUTS} cuts healed within the lease: its workers ended "
              f"{min(ended):.2f}-{max(ended):.2f} s after the heal")


if __name__ == "__main__":
    unittest.main(verbosity=2)
