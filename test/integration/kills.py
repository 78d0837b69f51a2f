#!/usr/bin/env python3
"""Counts: kills random ranks at random times and prints how long the survivors went without a step.

  kills.py --kills 200 --workers 4     on two local hosts, with a cooldown range
  kills.py --kills 200 --remote        on two hosts of their own, through ssh; needs root
  kills.py --kills 200 --remote --spares 1   also the time until full size again
  kills.py --growth 10                 arrivals of a newcomer that sleeps 3 s before elastic::run

The time of a kill runs from the kill(2) call to the first step that every survivor has finished in
a newer generation. Exit code 0: no hang, none over the bound, nothing left behind.
"""

import argparse
import os
import random
import signal
import sys
import time
import unittest

import harness
import netns


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(name, values):
    return (f"{name}: median {percentile(values, 0.5) * 1000:.1f} ms, "
            f"p99 {percentile(values, 0.99) * 1000:.1f} ms, max {max(values) * 1000:.1f} ms "
            f"({len(values)} times)")


def recovery_time(job, survivors, generation, killed_at):
    """From the kill to the first step of the last survivor in a newer generation."""
    first = {}
    for event in job.events("step"):
        if event.generation > generation and event.pid in survivors and event.t >= killed_at:
            first.setdefault(event.pid, event.t)
    if set(first) < survivors:
        return None
    return max(first.values()) - killed_at


class Kills(harness.JobTest):
    settings = None

    def start(self):
        settings = self.settings
        half = settings.workers // 2
        hosts, network = ("localhost", "127.0.0.1"), None
        if settings.remote:
            hosts = ("nodea", "nodeb")
            network = netns.Network(hosts).open()
            self.addCleanup(network.close)
        # A spare has a slot on each host, so that it takes the place of whoever is killed.
        slots = (settings.workers - half + settings.spares, half + settings.spares)
        job = self.job(hosts="\n".join(f"{h}:{n}" for h, n in zip(hosts, slots)),
                       np=settings.workers, min_np=1, max_np=settings.workers,
                       args=["--blacklist-cooldown-range", 1, 1, "--spares", settings.spares],
                       worker={"steps": 20, "sleep_ms": 5, "go_file": harness.GO},
                       network=network)
        job.wait_size(settings.workers)
        print(f"\nlauncher to the first step of all: "
              f"{max(e.t for e in job.events('step', step=1)) - job.started:.3f} s")
        return job

    def test_kills(self):
        settings = self.settings
        chance = random.Random(settings.seed)
        print(f"\nseed {settings.seed}")
        job = self.start()
        times, full = [], []
        for index in range(settings.kills):
            job.wait_size(settings.workers)
            self.wait_spares(job)
            job.wait_more_steps(chance.randrange(1, 20))
            pause = time.monotonic() + chance.random() * 0.05
            job.wait_for(lambda until=pause: time.monotonic() >= until, "a random moment")
            world = job.world()
            victim = chance.choice(sorted(world))
            survivors = {e.pid for rank, e in world.items() if rank != victim}
            generation = job.generation()
            killed_at = time.monotonic()
            job.kill(world[victim].pid)
            took = job.wait_for(
                lambda s=survivors, g=generation, t=killed_at: recovery_time(job, s, g, t),
                f"a step of all survivors after kill {index} (rank {victim})", limit=30)
            times.append(took)
            self.assertLess(took, settings.bound, f"kill {index} of rank {victim}\n{job.report()}")
            if settings.spares:
                job.wait_size(settings.workers, after_generation=generation)
                full.append(max(min(e.t for e in job.events("step", generation=job.generation(),
                                                            pid=member.pid))
                                for member in job.world().values()) - killed_at)
            self.trim(job)
        job.wait_size(settings.workers)
        job.let_go()
        self.assert_clean(job, limit=120)
        self.assertGreaterEqual(len(job.events("reaped", code=137)), settings.kills)
        where = "two hosts over ssh" if settings.remote else "two local hosts"
        print(summary(f"{settings.workers} workers on {where}, kill to first step of all survivors",
                      times))
        if full:
            print(summary("with a spare, kill to first step of all at full size", full))

    def wait_spares(self, job):
        """Until as many as there are spares have called init() and are in no world."""
        def warm():
            members = {e.pid for e in job.world().values()}
            waiting = {e.pid for e in job.logged("init")} - members
            return sum(harness.is_alive(pid) for pid in waiting) >= self.settings.spares
        job.wait_for(warm, "warm spares")

    def trim(self, job):
        """The trace of 200 kills is long; only what the next round looks at is kept in memory."""
        generation = job.generation()
        job.trace.forget(lambda e: e.event == "reaped" or e.generation in (None, generation))
        job.log.forget(lambda e: e.event == "wrong" or (e.event == "init"
                                                        and harness.is_alive(e.pid)))


class Stalls(harness.JobTest):
    settings = None

    def test_growth(self):
        settings = self.settings
        job = self.job(hosts="localhost:2", np=2, min_np=1, max_np=4,
                       worker={"steps": 20, "sleep_ms": 5, "go_file": harness.GO,
                               "slow_file": "{folder}/slow"})
        job.wait_size(2)
        pids = {e.pid for e in job.world().values()}
        with open(os.path.join(job.folder, "slow"), "w", encoding="utf-8") as file:
            file.write("3000")
        stalls = []
        for _ in range(settings.growth):
            begin = job.events()[-1].t
            job.set_hosts("localhost:2\n127.0.0.1:2")
            job.wait_size(4)
            job.wait_more_steps(10)
            stalls.append(self.longest_stall(job, pids, begin))
            job.set_hosts("localhost:2")
            job.wait_size(2)
        job.let_go()
        self.assert_clean(job)
        print(summary("growth 2 to 4, longest stall of a running worker", stalls))
        self.assertLess(max(stalls), settings.stall_bound)

    @staticmethod
    def longest_stall(job, pids, begin):
        longest = 0.0
        for pid in pids:
            times = [e.t for e in job.events("step", pid=pid) if e.t >= begin]
            longest = max([longest] + [b - a for a, b in zip(times, times[1:])])
        return longest


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--remote", action="store_true",
                        help="the hosts are network namespaces, reached through sshd")
    parser.add_argument("--spares", type=int, default=0)
    parser.add_argument("--bound", type=float, default=2.0, help="seconds that no kill may exceed")
    parser.add_argument("--growth", type=int, default=0)
    parser.add_argument("--stall-bound", type=float, default=0.5, help="seconds")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    settings = parser.parse_args()
    Kills.settings = settings
    Stalls.settings = settings
    suite = unittest.TestSuite()
    if settings.remote and netns.available():
        print(f"skipped: {netns.available()}")
        return 0
    if settings.kills:
        suite.addTest(Kills("test_kills"))
    if settings.growth:
        suite.addTest(Stalls("test_growth"))
    if suite.countTestCases() == 0:
        parser.error("nothing to count: --kills or --growth")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
