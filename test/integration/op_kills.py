#!/usr/bin/env python3
"""Kills workers in the middle of collectives and measures how soon every survivor knows.

  op_kills.py --op allreduce --backend shm --workers 8 --kills 1000
  op_kills.py --kills 3                all operations through all backends, 3 kills each

Each rank runs the operation in a loop inside elastic::run, with random sizes from 4 bytes to 1 MiB.
The time of a kill runs from before the kill(2) call to the `lost` event of each survivor, which its
runtime writes when a collective has thrown WorkersLost. Exit code 0: every survivor got WorkersLost
in the generation of the kill, nothing hung, and what lived on holds no more descriptors, threads or
segments than before.
"""

import argparse
import os
import random
import signal
import sys
import time
import unittest

import collectives
import harness
from kills import summary

OPS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "grouped",
       "join", "process_set")
BACKENDS = ("shm", "gloo", "hierarchical")
# Kills after which a process holds all that it will hold: the baseline of the audit.
WARM_KILLS = 2
# gRPC's pools grow and shrink with what they have to do. A thread leaked per reset would show all the
# same.
THREAD_SLACK = 4
# Until links that are on their way out are closed.
SETTLE_S = 10


def holdings(pid):
    """What a process must not gather over resets."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            segments = sum("memfd:" in line for line in file)
        return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")),
                "threads": len(os.listdir(f"/proc/{pid}/task")),
                "segments": segments}
    except OSError:
        return None


def grown(pid, baseline):
    """Of the holdings, those above the baseline: name -> (then, now)."""
    now = holdings(pid)
    slack = {"threads": THREAD_SLACK}
    return {} if now is None else {name: (baseline[name], now[name]) for name in now
                                   if now[name] > baseline[name] + slack.get(name, 0)}


class OpKills(collectives.CollectivesTest):
    settings = None
    op = None
    backend = None

    def start(self):
        settings = self.settings
        slots = settings.workers + settings.spares
        hosts = f"localhost:{slots}"
        if self.backend == "hierarchical":
            hosts = f"localhost:{slots - slots // 2}\n127.0.0.1:{slots // 2}"
        # A spare takes the place of whoever is killed: the next kill need not wait for the slot.
        job = self.elastic(settings.workers, "operations", hosts=hosts, op=self.op,
                           go_file=harness.GO,
                           args=["--blacklist-cooldown-range", 1, 1, "--spares", settings.spares,
                                 "--cpu-operations", self.backend])
        job.wait_size(settings.workers)
        return job

    def test_kills(self):
        settings = self.settings
        chance = random.Random(f"{settings.seed} {self.op} {self.backend}")
        job = self.start()
        self.audited = {}
        times, last = [], []
        killed_in = 0
        # For half of the time one process is spared, so that it lives through many resets; then
        # anybody may be killed, rank 0 too.
        spared = job.pid_of_rank(1)
        for index in range(settings.kills):
            if index == settings.kills // 2:
                spared = None
            # Not the world of the last kill, which is of the same size until the next one has formed.
            job.wait_size(settings.workers, after_generation=killed_in)
            self.audit(job, index)
            killed_in = job.generation()
            took = self.kill_one(job, chance, spared, index)
            times += took
            last.append(max(took))
            self.trim(job)
        job.wait_size(settings.workers, after_generation=killed_in)
        self.audit(job, settings.kills)
        lives = max(reset - first for first, reset in self.lives().values())
        job.let_go()
        self.assert_clean(job, limit=120)
        self.assertGreaterEqual(len(job.events("reaped", code=137)), settings.kills, job.report())
        where = f"{self.op} through {self.backend}, {settings.workers} workers"
        print(summary(f"\n{where}: kill to WorkersLost of a survivor", times))
        print(summary(f"{where}: the same of the last survivor", last))
        print(f"{where}: one process lived through {lives} resets")

    def kill_one(self, job, chance, spared, index):
        generation = job.generation()
        world = job.world()
        # A random place in the loop: a commit or an end of the trace's steps attracts nothing.
        until = time.monotonic() + chance.random() * 0.05
        job.wait_for(lambda: time.monotonic() >= until, "a random moment")
        victim = chance.choice([r for r in sorted(world) if world[r].pid != spared])
        survivors = {e.pid for rank, e in world.items() if rank != victim}
        killed_at = time.monotonic()
        job.kill(world[victim].pid)

        def all_lost():
            found = {e.pid: e for e in job.events("lost", generation=generation)
                     if e.pid in survivors}
            return found if set(found) == survivors else None
        lost = job.wait_for(all_lost, f"WorkersLost on all survivors of kill {index} (rank "
                            f"{victim}, generation {generation}, survivors {survivors})",
                            limit=self.settings.bound)
        if min(event.t for event in lost.values()) < killed_at:
            self.fail(f"WorkersLost before the kill\n{job.report()}")
        return [event.t - killed_at for event in lost.values()]

    # ---- what is held

    def lives(self):
        return {pid: (kept["since"], kept["last"]) for pid, kept in self.audited.items()}

    def audit(self, job, index):
        """Compares who is in a full world with what the same process held in one, in the same
        role: rank 0 has more links."""
        for rank, event in job.world().items():
            kept = self.audited.setdefault(event.pid, {"since": index, "last": index, "roles": {}})
            kept["last"] = index
            role = rank == 0
            if role not in kept["roles"] or index - kept["roles"][role][0] < WARM_KILLS:
                first = kept["roles"][role][0] if role in kept["roles"] else index
                now = holdings(event.pid) or {}
                before = kept["roles"].get(role, (first, {}))[1]
                kept["roles"][role] = (first, {name: max(value, before.get(name, 0))
                                               for name, value in now.items()})
                continue
            baseline = kept["roles"][role][1]
            job.wait_for(lambda pid=event.pid, known=baseline: not grown(pid, known),
                         f"rank {rank} to let go of {grown(event.pid, baseline)} after {index} "
                         f"kills, known since {kept['since']}", limit=SETTLE_S)

    def trim(self, job):
        """The trace of a thousand kills is long."""
        generation = job.generation()
        job.trace.forget(lambda e: e.event == "reaped" or e.generation in (None, generation))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", choices=OPS, action="append", help="several times: several (all)")
    parser.add_argument("--backend", choices=BACKENDS, action="append",
                        help="several times: several (shm for each operation, the others in turn)")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--spares", type=int, default=4)
    parser.add_argument("--bound", type=float, default=20.0,
                        help="seconds after which a survivor hangs")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    settings = parser.parse_args()
    print(f"seed {settings.seed}")
    suite = unittest.TestSuite()
    for index, op in enumerate(settings.op or OPS):
        for backend in settings.backend or (BACKENDS[0], BACKENDS[1 + index % 2]):
            name = f"{op.title().replace('_', '')}{backend.title()}"
            kind = type(name, (OpKills,), {"op": op, "backend": backend, "settings": settings})
            suite.addTest(kind("test_kills"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
