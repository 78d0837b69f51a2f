"""Every operation, type and size against a reference, at each size of world, on one host and on two,
through each backend."""

import os
import subprocess
import tempfile

import collectives
import harness
from collectives import FULL

# What the log says of a world's backend.
SHM = "work through shared memory"
GLOO = "work through gloo"
HIERARCHICAL = "work through hierarchical"
EVERYTHING = "matrix,random,objects,sets,join,threads,polling,absent"
# By size, so that both have work everywhere.
TWO_HOSTS = {3: "localhost:1,127.0.0.1:2", 4: "localhost:2,127.0.0.1:2", 5: "localhost:2,127.0.0.1:3"}


class OneHost(collectives.CollectivesTest):
    def check_size(self, np):
        # The reference of the largest tensors is what takes the time.
        self.check(np, EVERYTHING, sets=np % 2, seed=np, rounds=6, folder="{folder}",
                   count=1000003 if FULL else 20011, elements=20000)

    def test_1(self):
        self.check_size(1)

    def test_2(self):
        self.check_size(2)

    def test_3(self):
        self.check_size(3)

    def test_4(self):
        self.check_size(4)

    def test_5(self):
        self.check_size(5)

    def test_6(self):
        self.check_size(6)

    def test_7(self):
        self.check_size(7)

    def test_8(self):
        self.check_size(8)

    def test_program_alone(self):
        """Without a launcher it is a world of one."""
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("MUSTER_", "HOROVOD_"))}
        with tempfile.TemporaryDirectory() as folder:
            alone = subprocess.run([harness.COLLECTIVES, "--mode", EVERYTHING, "--count", "1001",
                                    "--folder", folder], capture_output=True, text=True,
                                   timeout=harness.LIMIT_S, check=False, env=environment)
        self.assertEqual(alone.returncode, 0, alone.stdout + alone.stderr)


class TwoHosts(collectives.CollectivesTest):
    """Two agents on this machine: they share no memory, and take each other for a network."""

    def check_hosts(self, np, **options):
        return self.check(np, EVERYTHING, hosts=TWO_HOSTS[np], sets=1, seed=np, rounds=4,
                          folder="{folder}", count=20011, **options)

    def test_uneven_5(self):
        self.check_hosts(5)

    def test_uneven_3(self):
        self.check_hosts(3)

    def test_even_4(self):
        self.check_hosts(4)

    def test_three_hosts(self):
        self.check(6, EVERYTHING, hosts="localhost:1,127.0.0.1:3,127.0.0.2:2", seed=6, rounds=4,
                   folder="{folder}", count=20011)


class Backends(collectives.CollectivesTest):
    """The choice is automatic, can be forced, and is logged once per world."""

    def check_backend(self, flag, name, np=3, hosts=None, mode=EVERYTHING):
        job = self.check(np, mode, hosts=hosts, rounds=4, count=5003, folder="{folder}",
                         args=["--cpu-operations", flag, "--log-level", "info"])
        self.assertEqual(job.stderr().count("work through"), 1, job.report())
        self.assertIn(name, job.stderr(), job.report())

    def test_auto_on_one_host(self):
        self.check_backend("auto", SHM, mode="random")

    def test_auto_on_two_hosts(self):
        self.check_backend("auto", HIERARCHICAL, hosts=TWO_HOSTS[3], mode="random")

    def test_shm(self):
        self.check_backend("shm", SHM, mode="random,sets")

    def test_gloo_on_one_host(self):
        self.check_backend("gloo", GLOO)

    def test_gloo_on_two_hosts(self):
        self.check_backend("gloo", GLOO, np=5, hosts=TWO_HOSTS[5], mode="random,sets,join")

    def test_hierarchical_on_two_hosts(self):
        self.check_backend("hierarchical", HIERARCHICAL, np=5, hosts=TWO_HOSTS[5],
                           mode="random,sets,join")

    def test_hierarchical_on_one_host(self):
        self.check_backend("hierarchical", HIERARCHICAL)

    def test_hosts_of_one_worker_share_nothing(self):
        self.check_backend("auto", GLOO, hosts="localhost:1,127.0.0.1:1,127.0.0.2:1")

    def test_shm_on_two_hosts_is_not_ignored_in_silence(self):
        job = self.static(3, "random", hosts=TWO_HOSTS[3], args=["--cpu-operations", "shm"])
        job.wait_exit()
        self.assert_message(job, "shm|shared memory")
        self.assert_no_process(job)

    def test_an_unknown_one_is_refused(self):
        job = self.static(2, "random", args=["--cpu-operations", "pigeon"])
        self.assertEqual(job.wait_exit(), 2, job.report())
        self.assert_message(job, "pigeon")


class Fusion(collectives.CollectivesTest):
    def check_threshold(self, threshold, **options):
        self.check(4, "random,reproducible,groups,odd_counts", rounds=4, cases=100,
                   env={"HOROVOD_FUSION_THRESHOLD": str(threshold)}, **options)

    def test_none(self):
        self.check_threshold(0)

    def test_1000_bytes(self):
        self.check_threshold(1000)

    def test_64_mb_on_two_hosts(self):
        self.check_threshold(64 << 20, hosts=TWO_HOSTS[4])


class Outstanding(collectives.CollectivesTest):
    """10,000 asynchronous tensors at once, in different orders."""

    # What the engine may need beside the tensors: about 5 kB for each.
    BOUND_KB = 50_000

    def check_outstanding(self, np, **options):
        job = self.check(np, "outstanding", limit=120, **options)
        for event in job.logged("memory"):
            grown = event.after_kb - event.before_kb
            print(f"\n{np} ranks, rank {event.rank}: {grown} kB above {event.before_kb} kB, "
                  f"submitted in {event.submitted_s:.3f} s, done in {event.took_s:.3f} s")
            self.assertLess(grown, self.BOUND_KB, job.report())

    def test_2_ranks(self):
        self.check_outstanding(2)

    def test_4_ranks(self):
        self.check_outstanding(4)

    def test_4_ranks_on_two_hosts(self):
        self.check_outstanding(4, hosts=TWO_HOSTS[4])


if __name__ == "__main__":
    harness.main()
