"""User cases 10, 11, 12, 65, 76 to 82, 84 and 89: addresses, names, ports, interfaces, descriptors."""

import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import harness
import netns
from harness import GO

COMES_BACK = ["--blacklist-cooldown-range", 1, 1]
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
SHORT = {"steps": 20, "sleep_ms": 10}
STAYS = {"steps": 20, "sleep_ms": 10, "go_file": GO}
# `scripts/test --full` sets it: the counts that the cases name.
FULL_COUNTS = bool(os.environ.get("MUSTER_TEST_FULL"))


class Names(netns.NetworkTest):
    """Cases 10 and 65: which names are hosts, and which of them are this machine."""

    HOSTS = ()

    def run_on(self, hosts, np):
        job = self.job(hosts=hosts, np=np, min_np=np, worker=SHORT)
        self.assert_clean(job)
        self.assert_finished(job, SHORT["steps"])
        self.assertEqual(self.network.pids("driver"), [])
        return job

    def test_loopback_of_both_families(self):
        for host in ("127.0.0.1", "[::1]"):
            job = self.run_on(f"{host}:1", 1)
            self.assertEqual({e.host for e in job.events("init")}, {host.strip("[]")})

    def test_own_addresses_are_local(self):
        self.run_on(self.network.address("driver") + ":2", 2)

    def test_names_for_own_addresses_are_local(self):
        """There is no sshd here: whatever starts was not started through ssh."""
        self.network.set_hosts_file("driver", "127.0.0.1 localhost\n127.0.1.1 box.cluster box\n"
                                    f"{self.network.address('driver')} wire_1\n")
        job = self.run_on("box:1\nbox.cluster:1\nwire_1:1", 3)
        self.assertEqual({e.host for e in job.events("init")}, {"box", "box.cluster", "wire_1"})
        # Names are compared as written: several hosts on one machine.
        self.assertEqual({e.local_rank for e in job.events("world")}, {0})

    def test_the_machines_own_name_is_local(self):
        self.run_on(socket.gethostname() + ":1", 1)

    def test_a_name_that_resolves_to_both_families_meets_one_with_ipv4_only(self):
        self.network.set_hosts_file("driver", "::1 both\n127.0.0.1 both\n127.0.0.1 four\n")
        job = self.run_on("both:1\nfour:1", 2)
        self.assertEqual({e.host for e in job.events("init")}, {"both", "four"})


class Hostfile(harness.JobTest):
    """Case 12."""

    TEXT = "# c\n\nlocalhost slots=2\n127.0.0.1:1\n"

    def start(self, text):
        job = harness.Job(elastic=False, np=3, worker=SHORT)
        self.addCleanup(lambda: job.close(keep=self._failed()))
        path = os.path.join(job.folder, "hostfile")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        place = job.argv.index(harness.WORKER)
        job.argv[place:place] = ["--hostfile", path]
        return job.start(), path

    def test_both_forms_comments_and_blank_lines(self):
        job, _ = self.start(self.TEXT)
        self.assert_clean(job)
        sizes = {(e.host, e.local_size) for e in job.logged("entry")}
        self.assertEqual(sizes, {("localhost", 2), ("127.0.0.1", 1)}, job.report())

    def test_an_unknown_count_is_an_error_that_names_the_line(self):
        job, path = self.start(self.TEXT + "localhost slots=two\n")
        code = job.wait_exit()
        self.assertNotEqual(code, 0)
        self.assert_clean(job, code=code)
        self.assertIn(f"{path}:5", job.stderr())


class OnlyIpv6OnLoopback(netns.NetworkTest):
    """Case 11."""

    HOSTS = ()
    OPTIONS = {"ipv4": False, "ipv6": True}

    def test_every_listener_is_ipv6(self):
        self.network.run("driver", ["ip", "address", "delete", "127.0.0.1/8", "dev", "lo"])
        job = self.job(hosts="[::1]:2", np=2, min_np=2, worker={**STAYS, "steps": 50})
        job.wait_size(2)
        listeners = self.network.sockets("driver", "-l")
        self.assertGreaterEqual(len(listeners), 3, listeners)
        for local, _, _ in listeners:
            self.assertIn(":", local[0], listeners)
        job.let_go()
        self.assert_clean(job)
        self.assert_finished(job, 50)


class OnlyIpv6Between(netns.NetworkTest):
    """Case 11, over two hosts."""

    HOSTS = ("nodea", "nodeb")
    OPTIONS = {"ipv4": False, "ipv6": True}

    def test_two_hosts_train(self):
        job = self.job(hosts="nodea:1\nnodeb:1\nlocalhost:1", np=3, min_np=3, worker=SHORT)
        self.assert_clean(job)
        self.assert_finished(job, SHORT["steps"])

    def test_hosts_given_by_literals_train(self):
        hosts = [self.network.address(host) for host in self.HOSTS]
        job = self.job(hosts="".join(f"[{h}]:1\n" for h in hosts), np=2, min_np=2, worker=SHORT)
        self.assert_clean(job)
        self.assertEqual({e.host for e in job.events("init")}, set(hosts))


class BothFamilies(netns.NetworkTest):
    """Case 80: nodea has both, nodeb has IPv4 only."""

    HOSTS = ("nodea", "nodeb")
    OPTIONS = {"ipv6": True}

    def setUp(self):
        super().setUp()
        self.network.run("nodeb", ["ip", "-6", "address", "flush", "dev", "eth0"])
        address = self.network.address
        self.network.set_hosts_file(
            "driver", f"127.0.0.1 localhost\n{address('nodea', True)} nodea\n"
            f"{address('nodea', False)} nodea\n{address('nodeb', False)} nodeb\n")

    def test_they_meet(self):
        job = self.job(hosts="nodea:1\nnodeb:1", np=2, min_np=2, worker=SHORT)
        job.wait_size(2, limit=20)
        took = min(e.t for e in job.events("step")) - job.started
        self.assertLess(took, 10, job.report())
        self.assert_clean(job)

    def test_one_that_comes_later_meets_those_that_train(self):
        job = self.job(hosts="nodea:1\nlocalhost:1", np=2, min_np=1, worker=STAYS)
        job.wait_size(2)
        job.set_hosts("nodea:1\nlocalhost:1\nnodeb:1")
        job.wait_size(3)
        job.let_go()
        self.assert_clean(job)

    def test_a_family_may_be_forced(self):
        job = self.job(hosts="nodea:1\nlocalhost:1", np=2, min_np=2, worker=STAYS,
                       args=["--address-family", "ipv6"])
        job.wait_size(2)
        for local, peer, pids in self.network.sockets("nodea"):
            if pids & {e.pid for e in job.events("init")}:
                self.assertIn(":", local[0])
                self.assertIn(":", peer[0])
        job.let_go()
        self.assert_clean(job)

    def test_a_host_without_the_forced_family_is_named(self):
        job = self.job(hosts="nodea:1\nnodeb:1", np=2, min_np=2, worker=SHORT,
                       args=["--address-family", "ipv6", "--start-timeout", 3,
                             "--elastic-timeout", 4])
        code = job.wait_exit(30)
        self.assertNotEqual(code, 0)
        # What its agent has tried, all of that family.
        self.assert_message(job, r"nodeb.*\[fd00:6d75::3\]:\d+")


class Ports(netns.NetworkTest):
    """Cases 76 and 77. On a network of its own, so that nobody else takes a port."""

    HOSTS = ("nodea", "nodeb")
    JOBS = 8
    ROUNDS = 20 if FULL_COUNTS else 3

    def listeners(self, job, host):
        """(literal, port) of all that the job listens at on a host."""
        own = set(harness.descendants_by_token(job.token))
        if host == "driver":
            own = {pid for pid in own if self.descends_from(pid, job.pid)}
        return [local for local, _, pids in self.network.sockets(host, "-l") if pids & own]

    @staticmethod
    def descends_from(pid, ancestor):
        while pid > 1 and pid != ancestor:
            pid = harness.parent_of(pid)
        return pid == ancestor

    def assert_all_within(self, job, hosts, first, last, least):
        found = [local for host in hosts for local in self.listeners(job, host)]
        self.assertGreaterEqual(len(found), least, found)
        for _, port in found:
            self.assertTrue(first <= port <= last, f"{found}\n{job.report()}")

    def test_many_jobs_at_the_same_instant(self):
        for _ in range(self.ROUNDS):
            jobs = [self.job(hosts="localhost:2", np=2, min_np=2,
                             worker={"steps": 10, "sleep_ms": 1}) for _ in range(self.JOBS)]
            for job in jobs:
                self.assertEqual(job.wait_exit(), 0, job.report())
                self.assert_finished(job, 10)
        self.assertEqual(self.network.pids("driver"), [])

    def test_a_range_holds_every_listener_over_losses(self):
        job = self.job(hosts="localhost:3", np=3, min_np=1, max_np=3, worker=STAYS,
                       args=["--port-range", "41000-41009", *COMES_BACK])
        job.wait_size(3)
        for _ in range(5):
            self.assert_all_within(job, ["driver"], 41000, 41009, 4)
            generation = job.generation()
            job.kill(job.pid_of_rank(1))
            job.wait_size(3, after_generation=generation)
        self.assert_all_within(job, ["driver"], 41000, 41009, 4)
        job.let_go()
        self.assert_clean(job)

    def test_a_range_holds_on_every_host(self):
        job = self.job(hosts="nodea:1\nnodeb:1\nlocalhost:1", np=3, min_np=3, worker=STAYS,
                       args=["--port-range", "41000-41009"])
        job.wait_size(3)
        # Two servers of the driver, two listeners of its worker, one of each other worker.
        self.assert_all_within(job, ["driver", "nodea", "nodeb"], 41000, 41009, 6)
        job.let_go()
        self.assert_clean(job)

    def check_range_too_small(self, hosts, np, limit=20):
        job = self.job(hosts=hosts, np=np, min_np=np, worker=SHORT,
                       args=["--port-range", "41000-41001", "--start-timeout", 5,
                             "--elastic-timeout", 5])
        code = job.wait_exit(limit)
        self.assertNotEqual(code, 0)
        self.assert_message(job, "41000-41001")
        self.assert_clean(job, code=code)

    def test_a_range_that_is_used_up_is_named(self):
        self.check_range_too_small("localhost:3", 3)

    def test_a_range_that_is_used_up_on_a_remote_host_is_named(self):
        self.check_range_too_small("nodea:3", 3)

    def test_two_jobs_of_which_one_has_exactly_the_ports_that_it_needs(self):
        """One for the driver, one for each worker; the other job takes any."""
        other = self.job(hosts="localhost:2", np=2, min_np=2, worker=STAYS)
        other.wait_size(2)
        exact = self.job(hosts="localhost:3", np=3, min_np=3, worker=STAYS,
                         args=["--port-range", "41000-41003"])
        exact.wait_size(3)
        self.assertEqual(sorted({port for _, port in self.listeners(exact, "driver")}),
                         [41000, 41001, 41002, 41003])
        for job in (other, exact):
            job.let_go()
            self.assertEqual(job.wait_exit(), 0, job.report())

    def test_exactly_the_ports_that_remote_hosts_need(self):
        """The same: one for the driver on its machine, and everywhere one for each worker. What is
        reached by others too has the same number at both addresses."""
        job = self.job(hosts="nodea:2\nlocalhost:1", np=3, min_np=3, worker=STAYS,
                       args=["--port-range", "41000-41001"])
        job.wait_size(3)
        self.assert_all_within(job, ["driver", "nodea"], 41000, 41001, 6)
        job.let_go()
        self.assert_clean(job)

    def test_a_port_that_is_asked_for_and_taken_is_an_error_at_once(self):
        busy = subprocess.Popen(
            self.network.inside("driver") + [sys.executable, "-c",
                                             "import socket,time\n"
                                             "s = socket.create_server(('', 41500))\n"
                                             "print('listens', flush=True)\n"
                                             "time.sleep(600)"],
            stdout=subprocess.PIPE, text=True, preexec_fn=harness.die_with_the_harness)
        self.addCleanup(busy.stdout.close)
        self.addCleanup(busy.wait)
        self.addCleanup(busy.kill)
        self.assertEqual(busy.stdout.readline().strip(), "listens")
        with tempfile.NamedTemporaryFile("w") as secret:
            secret.write("0123456789abcdef" * 4)
            secret.flush()
            job = harness.Job(network=self.network, elastic=False, np=1, worker=SHORT,
                              args=["--min-np", 1, "--accept-agents", 41500, "--secret-file",
                                    secret.name])
            self.addCleanup(lambda: job.close(keep=self._failed()))
            job.start()
            code = job.wait_exit(20)
        self.assertNotEqual(code, 0)
        self.assertLess(job.ended - job.started, 3, job.report())
        self.assert_message(job, r"cannot listen at \d+\.\d+\.\d+\.\d+ on port 41500\b")


class Interfaces(netns.NetworkTest):
    """Cases 78 and 79."""

    HOSTS = ("nodea", "nodeb")
    OPTIONS = {"interfaces": {"nodea": "ethA", "nodeb": "ethB"}}

    def test_none_that_exists_is_an_error_that_lists_those_that_do(self):
        job = self.job(hosts="localhost:1", np=1, min_np=1, worker=SHORT,
                       args=["--network-interface", "nosuch0"])
        code = job.wait_exit(10)
        self.assertNotEqual(code, 0)
        self.assertNotEqual(code, 134)
        for name in ("nosuch0", "lo", "eth0"):
            self.assert_message(job, rf"\b{name}\b")

    def test_the_first_candidate_that_exists_is_taken(self):
        job = self.job(hosts="localhost:2", np=2, min_np=2, worker=SHORT,
                       args=["--network-interface", "nosuch0,lo"])
        self.assert_clean(job)
        self.assert_finished(job, SHORT["steps"])

    def test_candidates_that_differ_from_host_to_host(self):
        job = self.job(hosts="nodea:1\nnodeb:1", np=2, min_np=2, worker=SHORT,
                       args=["--network-interfaces", "ethA,ethB,eth0"])
        self.assert_clean(job)
        self.assert_finished(job, SHORT["steps"])

    def test_a_host_that_has_none_is_named_with_what_it_has(self):
        job = self.job(hosts="nodea:1\nnodeb:1", np=2, min_np=2, worker=SHORT,
                       args=["--network-interface", "ethA,eth0", "--start-timeout", 5,
                             "--elastic-timeout", 5])
        code = job.wait_exit(30)
        self.assertNotEqual(code, 0)
        self.assert_message(job, r"nodeb.*ethA.*ethB|nodeb.*ethB.*ethA")

    def test_a_bridge_that_leads_nowhere_is_passed_over(self):
        hosts = ("nodea", "nodeb", "driver")
        for host in hosts:
            self.network.add_docker0(host)
            self.addCleanup(self.network.run, host, ["ip", "link", "delete", "docker0"])
        job = self.job(hosts="nodea:1\nnodeb:1\nlocalhost:1", np=3, min_np=3, worker=STAYS)
        job.wait_size(3, limit=20)
        workers = {e.pid for e in job.events("init")}
        seen = 0
        for host in hosts:
            for local, peer, pids in self.network.sockets(host):
                if pids & workers:
                    seen += 1
                    self.assertNotIn("172.17.0.1", (local[0], peer[0]), job.report())
        self.assertGreaterEqual(seen, 4)
        job.let_go()
        self.assert_clean(job)


class AdvertisedAddress(netns.NetworkTest):
    """Case 81."""

    HOSTS = ()

    def test_a_host_name_that_nobody_can_resolve_does_no_harm(self):
        job = harness.Job(network=self.network, hosts="localhost:2", np=2, min_np=2, worker=SHORT)
        self.addCleanup(lambda: job.close(keep=self._failed()))
        job.argv = ["unshare", "--uts", "sh", "-c", 'hostname ghost.invalid && exec "$@"',
                    "sh"] + job.argv
        job.start()
        self.assert_clean(job)
        self.assert_finished(job, SHORT["steps"])

    def test_peers_connect_to_the_address_that_is_asked_for(self):
        job = self.job(hosts="localhost:2", np=2, min_np=2, worker=STAYS,
                       args=["--network-interface", "127.0.0.9"])
        job.wait_size(2)
        workers = {e.pid for e in job.events("init")}
        links = [(local, peer) for local, peer, pids in self.network.sockets("driver")
                 if pids & workers]
        self.assertGreaterEqual(len(links), 2, links)
        self.assertTrue(any(local[0] == "127.0.0.9" for local, _ in links), links)
        for local, peer in links:
            self.assertIn("127.0.0.9", (local[0], peer[0]), links)
        job.let_go()
        self.assert_clean(job)


class WithoutLauncher(unittest.TestCase):
    """Case 82."""

    def setUp(self):
        why_not = netns.available()
        if why_not:
            raise unittest.SkipTest(why_not)

    def test_a_machine_without_any_interface_is_a_world_of_one(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            done = subprocess.run(
                ["unshare", "--net", "env", "-i", "TEST_LOG=" + log, harness.WORKER, "--steps",
                 "10", "--sleep-ms", "0"], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            steps = harness.Tail(log).select("step")
            self.assertEqual([e.step for e in steps], list(range(1, 11)))
            self.assertEqual({(e.rank, e.size) for e in steps}, {(0, 1)})


class FailedMesh(netns.NetworkTest):
    """Case 84: what is said when one rank cannot connect to another."""

    HOSTS = ("nodea", "nodeb")

    def test_the_message_has_ranks_address_reason_and_times(self):
        job = harness.Job(network=self.network, hosts="nodea:1\nnodeb:1", np=2, min_np=1,
                          worker=STAYS, args=["--port-range", "41000-41000", *STAYS_OUT])
        self.addCleanup(lambda: job.close(keep=self._failed()))
        # Rank 0 hears the others and answers nothing.
        try:
            self.network.drop_port("nodea", 41000)
        except netns.Unsupported as why_not:
            self.skipTest(str(why_not))
        job.start()
        address = re.escape(f"{self.network.address('nodea')}:41000")
        job.wait_for(lambda: re.search(address, job.stderr() + job.stdout()), "the message")
        line = [line for line in (job.stderr() + job.stdout()).splitlines()
                if re.search(address, line)][0]
        print("\n" + line)
        self.assertRegex(line, r"rank 1\b")
        self.assertRegex(line, r"rank 0\b")
        self.assertRegex(line, r"timed out|unreachable|no route")
        self.assertRegex(line, r"\d+(\.\d+)? ?(ms|s)\b.*\d+(\.\d+)? ?(ms|s)\b")
        # One of the two goes on alone.
        job.wait_size(1)
        job.let_go()
        self.assert_clean(job)


class Descriptors(harness.JobTest):
    """Case 89."""

    WORKERS = 48 if FULL_COUNTS else 16
    SOFT = 256 if FULL_COUNTS else 64
    RESETS = 30

    def limited(self, limit, **options):
        job = harness.Job(**options)
        self.addCleanup(lambda: job.close(keep=self._failed()))
        job.argv = ["sh", "-c", f'ulimit {limit} && exec "$@"', "sh"] + job.argv
        return job.start()

    def test_a_low_soft_limit_does_no_harm(self):
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1024:
            self.skipTest("the hard limit of open files is low itself")
        job = self.limited(f"-Sn {self.SOFT}", hosts=f"localhost:{self.WORKERS}", np=self.WORKERS,
                           min_np=self.WORKERS, worker={"steps": 3, "sleep_ms": 0})
        self.assert_clean(job, limit=120)
        self.assert_finished(job, 3)

    def test_a_low_hard_limit_is_named(self):
        limit = 128 if FULL_COUNTS else 64
        job = self.limited(f"-n {limit}", hosts="localhost:48", np=48, min_np=48,
                           args=["--start-timeout", 3, "--elastic-timeout", 2, "--grace", 1],
                           worker={"steps": 3, "sleep_ms": 0})
        code = job.wait_exit(60)
        self.assertNotEqual(code, 0)
        self.assert_message(job, rf"too many open files.*{limit}")
        self.assert_clean(job, code=code)

    def test_resets_leak_none(self):
        job = self.job(hosts="localhost:2", np=2, min_np=1, max_np=2, worker=STAYS,
                       args=["--blacklist-cooldown-range", 0.1, 0.1])
        job.wait_size(2)
        survivor = job.pid_of_rank(0)
        processes = {"driver": job.pid, "agent": job.agents()[0], "reaper": job.reapers()[0],
                     "worker": survivor}
        counts = []
        # Each kill is two resets: a loss and an arrival.
        for _ in range(self.RESETS // 2):
            generation = job.generation()
            job.kill(job.pid_of_rank(1))
            job.wait_size(2, after_generation=generation)
            self.assertEqual(job.pid_of_rank(0), survivor)
            counts.append({name: len(os.listdir(f"/proc/{pid}/fd"))
                           for name, pid in processes.items()})
        self.assertGreaterEqual(job.generation(), self.RESETS)
        for name in processes:
            early = max(count[name] for count in counts[:5])
            late = min(count[name] for count in counts[-5:])
            self.assertLessEqual(late, early, f"{name}: {[c[name] for c in counts]}")
        job.let_go()
        self.assert_clean(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
