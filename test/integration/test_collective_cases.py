"""User cases on collectives, fusion, groups, process sets and stalls, by their numbers."""

import os
import re
import signal
import statistics
import time
import unittest

import collectives
import harness
from collectives import FULL, STAYS_OUT

TWO_HOSTS = "localhost:2,127.0.0.1:2"


class WrongCalls(collectives.CollectivesTest):
    def test_case_90_mismatches(self):
        job = self.check(3, "mismatches")
        self.assert_no_reset(job)
        for event in job.logged("refused", rank=0):
            self.assertIn("'odd.", event.message, f"{event}\n{job.report()}")
            if "differ" in event.message:  # Else all ranks are wrong, and alike.
                self.assertRegex(event.message, r"rank", f"{event}\n{job.report()}")

    def test_case_90_mismatches_on_two_hosts(self):
        self.assert_no_reset(self.check(3, "mismatches", hosts="localhost:2,127.0.0.1:1"))

    def test_case_92_splits(self):
        self.assert_no_reset(self.check(3, "splits"))

    def test_case_94_scalars(self):
        self.assert_no_reset(self.check(2, "scalars"))

    def test_case_103_the_same_name_twice(self):
        self.assert_no_reset(self.check(2, "same_name"))
        self.assert_no_reset(self.check(3, "same_name", hosts="localhost:2,127.0.0.1:1"))


class Numbers(collectives.CollectivesTest):
    def test_case_91_empty_parts(self):
        self.check(4, "empty_parts")
        self.check(4, "empty_parts", hosts=TWO_HOSTS)

    def test_case_95_average_of_integers(self):
        self.check(2, "averages")
        self.check(3, "averages")
        self.check(3, "averages", hosts="localhost:2,127.0.0.1:1")

    def test_case_96_all_types_and_reductions(self):
        for np in (1, 2, 3, 5) if FULL else (3,):
            self.check(np, "matrix", count=1000003, limit=200)

    def test_case_97_bfloat16(self):
        self.check(5, "bfloat")
        self.check(5, "bfloat", hosts="localhost:2,127.0.0.1:3")

    def test_case_98_overflow_of_halves(self):
        self.check(4, "half_overflow")
        self.check(4, "half_overflow", hosts=TWO_HOSTS)

    def test_case_99_odd_counts_and_offsets(self):
        self.check(3, "odd_counts")
        self.check(3, "odd_counts", hosts="localhost:2,127.0.0.1:1")


class FusionAndNames(collectives.CollectivesTest):
    def test_case_100_fused_and_not(self):
        # 4096 is exactly one tensor of 1024 floats.
        for threshold in (0, 1000, 4096, 64 << 20):
            self.check(4, "random", rounds=2, cases=200, elements=5000, seed=threshold + 1,
                       env={"HOROVOD_FUSION_THRESHOLD": str(threshold)})

    def test_case_100_a_counter_shows_it(self):
        for threshold, fuses in ((0, False), (64 << 20, True)):
            job = self.check(2, "outstanding", count=2000, args=["--log-level", "info"],
                             env={"HOROVOD_FUSION_THRESHOLD": str(threshold)})
            counts = re.findall(r"(\d+) operation\(s\) moved data, in (\d+) step\(s\), "
                                r"(\d+) of them fused", job.stderr())
            self.assertEqual(len(counts), 1, job.report())
            operations, steps, fused = map(int, counts[0])
            self.assertGreaterEqual(operations, 2000, job.report())
            self.assertEqual(steps < operations, fuses, job.report())
            self.assertEqual(fused > 0, fuses, job.report())

    def test_case_101_reproducible(self):
        self.check(4, "reproducible")
        self.check(4, "reproducible", hosts=TWO_HOSTS)

    def test_case_101_half_a_group_runs_not(self):
        job = self.static(2, "late_group", until="{folder}/until",
                          args=["--stall-check-warning-time-seconds", 1])
        self.wait_logged(job, "waiting", 1)
        self.wait_stderr(job, "group")
        self.touch(job, "until")
        self.assert_checked(job, 2, "late_group")

    def test_case_102_groups(self):
        self.check(3, "groups")
        self.check(4, "groups", hosts=TWO_HOSTS)

    def test_case_104_changed_shapes_and_many_names(self):
        for capacity in ("0", "1", "100"):
            job = self.check(3, "renegotiation", env={"HOROVOD_CACHE_CAPACITY": capacity},
                             count=3000 if capacity == "100" else 300)
            self.assertLessEqual(len(re.findall(r"(?i)cache|evict", job.stderr())), 1, job.report())


class Reset(collectives.CollectivesTest):
    def test_cases_92_104_106_after_a_reset(self):
        """Splits for the old size, names with other shapes, and sets that have lost a worker."""
        for hosts in ("localhost:3", "localhost:2\n127.0.0.1:1"):
            job = self.elastic(3, "reset", hosts=hosts)
            self.wait_logged(job, "checked", 2)
            self.assert_checked(job, 2, "reset")
            self.assertEqual(len(job.events("reaped", code=137)), 1, job.report())
            lost = job.events("lost")
            self.assertEqual(len(lost), 2, job.report())
            self.assertEqual({e.size for e in job.events("world")}, {3, 2}, job.report())


class Joining(collectives.CollectivesTest):
    def test_case_105_batches(self):
        for capacity in ("0", "1024"):
            self.check(4, "join_batches", env={"HOROVOD_CACHE_CAPACITY": capacity})
        self.check(4, "join_batches", hosts=TWO_HOSTS)

    def test_case_105_a_joined_rank_is_killed(self):
        job = self.elastic(4, "joined_loss", count=4)
        victim = self.wait_logged(job, "victim", 1)[0]
        self.wait_logged(job, "waiting", 3)
        job.kill(victim.pid)
        self.assert_checked(job, 3, "joined_loss")
        self.assertEqual(len(job.events("lost")), 3, job.report())

    def test_case_116_different_numbers_of_steps(self):
        for late in ("0", "2"):
            job = self.check(3, "uneven_steps", late_ranks=late)
            self.assertEqual(len(job.logged("left_alone")), 2, job.report())
            self.assertIn(late, job.logged("left_alone")[0].message, job.report())

    def test_case_116_join(self):
        self.check(4, "uneven_join")


class Large(collectives.CollectivesTest):
    @unittest.skipUnless(FULL, "9 GB of memory and half a minute: with MUSTER_TEST_FULL=1")
    def test_case_107_beyond_2_gib(self):
        job = self.check(2, "big", limit=300)
        print(f"\npeak: {[e.peak_kb // 1024 for e in job.logged('big')]} MiB")
        job = self.check(2, "big_gather", limit=300)
        print(f"peak: {[e.peak_kb // 1024 for e in job.logged('big')]} MiB")

    @unittest.skipUnless(FULL, "9 GB of memory: with MUSTER_TEST_FULL=1")
    def test_case_107_beyond_2_gib_over_two_hosts(self):
        self.check(2, "big", hosts="localhost:1,127.0.0.1:1", limit=300)
        self.check(2, "big_gather", hosts="localhost:1,127.0.0.1:1", limit=300)

    def test_case_107_no_memory_for_the_result(self):
        job = self.check(3, "allocation_fails")
        self.assert_no_reset(job)


class Losses(collectives.CollectivesTest):
    """Case 108: whatever is pending when a peer dies ends with WorkersLost."""

    def check_ops(self, ops, hosts=None, backend="auto"):
        np = len(ops) + 1
        job = self.elastic(np, "pending_loss", hosts=hosts, op=",".join(ops), count=np,
                           args=[*STAYS_OUT, "--cpu-operations", backend])
        for index, op in enumerate(ops):
            size = np - index
            victim = self.wait_logged(job, "victim", 1, op=op)[0]
            self.wait_logged(job, "waiting", size - 1, op=op)
            job.kill(victim.pid)
            self.wait_logged(job, "caught", size - 1, op=op)
        self.assert_checked(job, 1, "pending_loss")
        self.assertEqual(len(job.events("reaped", code=137)), len(ops), job.report())
        # Each of the survivors went back to its commit, in each of the worlds.
        sizes = sorted(e.size for e in job.events("lost"))
        self.assertEqual(sizes, sorted(s for s in range(2, np + 1) for _ in range(s - 1)),
                         job.report())

    def test_case_108_allreduce_and_gather(self):
        self.check_ops(["allreduce", "grouped_allreduce", "allgather", "grouped_allgather",
                        "allgather_object"])

    def test_case_108_the_others(self):
        self.check_ops(["broadcast", "broadcast_from_victim", "alltoall", "reducescatter",
                        "grouped_reducescatter", "broadcast_object"])

    def test_case_108_barrier_join_sets(self):
        self.check_ops(["add_process_set", "process_set", "join", "barrier"])

    def test_case_108_over_two_hosts(self):
        self.check_ops(["alltoall", "allreduce", "process_set", "broadcast", "barrier"],
                       hosts="localhost:3\n127.0.0.1:3")

    def test_case_108_gloo(self):
        self.check_ops(["reducescatter", "allgather", "grouped_allreduce", "join"], backend="gloo")


class Stalls(collectives.CollectivesTest):
    """Cases 114 and 115."""

    def late(self, np=2, args=(), late_ranks=1, **options):
        job = self.static(np, "late_ranks", args=args, late_ranks=late_ranks,
                          until="{folder}/until", **options)
        self.wait_logged(job, "late", len(str(late_ranks).split(",")))
        return job

    def test_case_114_a_warning(self):
        job = self.late(args=["--stall-check-warning-time-seconds", 1])
        self.wait_stderr(job, "'b'")
        warnings = [line for line in job.stderr().splitlines() if "'b'" in line]
        self.assertRegex(warnings[0], r"\brank 1\b", job.report())
        self.assertNotIn("'a'", job.stderr(), job.report())
        self.touch(job, "until")
        self.assert_checked(job, 2, "late_ranks")

    def test_case_114_rank_0_may_be_the_late_one(self):
        job = self.late(args=["--stall-check-warning-time-seconds", 1], late_ranks=0)
        self.wait_stderr(job, "'b'")
        self.touch(job, "until")
        self.assert_checked(job, 2, "late_ranks")

    def test_case_114_switched_off(self):
        job = self.late(args=["--no-stall-check", "--stall-check-warning-time-seconds", 1,
                              "--stall-check-shutdown-time-seconds", 1])
        late_at = job.logged("late")[0].t
        job.wait_for(lambda: time.monotonic() > late_at + 2.5, "more than the warning time")
        self.touch(job, "until")
        self.assert_checked(job, 2, "late_ranks")
        self.assertNotIn("'b'", job.stderr(), job.report())

    def test_case_114_ends_a_static_job(self):
        job = self.late(np=3, args=["--stall-check-warning-time-seconds", 1,
                                    "--stall-check-shutdown-time-seconds", 3, "--grace", 2])
        late_at = job.logged("late")[0].t
        self.assertNotEqual(job.wait_exit(), 0, job.report())
        self.assertGreater(job.ended - late_at, 2.5, job.report())
        self.assertRegex(job.last_line(), r"\brank 1\b", job.report())
        self.assert_no_process(job)

    def test_case_114_an_elastic_job_goes_on_without_it(self):
        job = self.elastic(3, "elastic_late", late_ranks=1, count=3, until="{folder}/never",
                           args=[*STAYS_OUT, "--stall-check-warning-time-seconds", 1,
                                 "--stall-check-shutdown-time-seconds", 3])
        late = self.wait_logged(job, "late", 1)[0]
        self.assert_checked(job, 2, "elastic_late")
        self.assertIn("'b'", job.stderr(), job.report())
        lost = job.events("lost")
        self.assertEqual(len(lost), 2, job.report())
        self.assertGreater(min(e.t for e in lost) - late.t, 2.5, job.report())
        # Only the one that was late has been killed.
        self.assertEqual([e.code for e in job.events("reaped") if e.code != 0], [137],
                         job.report())
        self.assertEqual({e.size for e in job.events("world", generation=job.generation())}, {2})

    def test_case_115_missing_ranks_are_sorted_and_short(self):
        job = self.late(np=16, hosts="localhost:8,127.0.0.1:8", late_ranks="5,6,7,12",
                        args=["--stall-check-warning-time-seconds", 1])
        self.wait_stderr(job, "'b'")
        warning = [line for line in job.stderr().splitlines() if "'b'" in line][0]
        self.assertRegex(warning, r"\b5-7\D{1,6}12\b", job.report())
        self.assertLess(len(warning), 500, job.report())
        self.touch(job, "until")
        self.assert_checked(job, 16, "late_ranks")


def threads_of(pid):
    """name -> its ids."""
    found = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as file:
            found.setdefault(file.read().strip(), []).append(int(tid))
    return found


def allowed_cores(pid, tid):
    with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as file:
        return re.search(r"Cpus_allowed_list:\s*(\S+)", file.read()).group(1)


def cpu_seconds(pid):
    """User and system time of all threads, in nanosecond resolution."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="utf-8") as file:
            total += int(file.read().split()[0])
    return total / 1e9


class IdleAndAffinity(collectives.CollectivesTest):
    def idle(self, np, **options):
        job = self.static(np, "idle", **options)
        self.wait_logged(job, "idle", np)
        return job, sorted(job.logged("idle"), key=lambda e: e.rank)

    def end(self, job, events):
        for event in events:
            os.kill(event.pid, signal.SIGUSR1)
        self.assert_checked(job, len(events), "idle")

    def check_idle(self, np, seconds, share, **options):
        job, events = self.idle(np, **options)
        before = [cpu_seconds(e.pid) for e in events]
        start = time.monotonic()
        job.wait_for(lambda: time.monotonic() > start + seconds, "the time of the measurement")
        used = [cpu_seconds(e.pid) - b for e, b in zip(events, before)]
        took = time.monotonic() - start
        print(f"\n{np} idle ranks: at most {max(used) / took * 100:.3f} % of a core each")
        self.end(job, events)
        self.assertLess(max(used), took * share, f"{used} in {took} s\n{job.report()}")

    def test_case_121_idle(self):
        if FULL:
            self.check_idle(4, 10, 0.002)
            self.check_idle(8, 30, 0.02)
            self.check_idle(4, 10, 0.002, hosts=TWO_HOSTS)
        else:
            self.check_idle(4, 4, 0.02)

    def test_case_121_latency_of_a_lone_allreduce(self):
        job = self.check(2, "latency")
        median = statistics.median(e.median_s for e in job.logged("latency"))
        print(f"\na lone allreduce of 4 bytes: median {median * 1e6:.0f} us")
        self.assertLess(median, 0.005, job.report())

    def check_affinity(self, cores, expected):
        job, events = self.idle(2, args=[f"--thread-affinity={cores}"] if cores else [])
        free = allowed_cores(os.getpid(), os.getpid())
        for event, core in zip(events, expected or [free, free]):
            names = threads_of(event.pid)
            self.assertIn("muster-engine", names, job.report())
            for tid in names["muster-engine"]:
                self.assertEqual(allowed_cores(event.pid, tid), core, f"{cores}\n{job.report()}")
            self.assertEqual(allowed_cores(event.pid, event.pid), free, "the user's thread")
        self.end(job, events)
        warnings = [line for line in job.stderr().splitlines() if "affinity" in line.lower()]
        return job, warnings

    @unittest.skipIf(os.cpu_count() < 2, "there is one core")
    def test_case_122_affinity(self):
        _, warnings = self.check_affinity("0,1", ["0", "1"])
        self.assertEqual(warnings, [])
        _, warnings = self.check_affinity("1,0", ["1", "0"])
        self.assertEqual(warnings, [])

    @unittest.skipIf(os.cpu_count() < 2, "there is one core")
    def test_case_122_bad_lists_are_warned_of(self):
        for cores in ("0", "-1,1", "x,1", "9999,1"):
            job, warnings = self.check_affinity(f"{cores}", None)
            self.assertGreaterEqual(len(warnings), 1, f"{cores}\n{job.report()}")
            self.assertLessEqual(len(warnings), 2, f"{cores}: one per worker\n{job.report()}")


if __name__ == "__main__":
    harness.main()
