"""Hostile clients against every listening socket of a job: nothing changes for it."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
import unittest

import harness
import hostile
import netns
import test_join
from harness import GO

# What the allocators of gRPC and OpenSSL keep of a first flood (some 70 to 100 MB; later ones add
# nothing).
GROWTH_MB_MAX = 192
# The longest that a silent guest may stay: the servers' handshake and idle limits, and some.
SETTLE_S = 30
COOLDOWN = ("--blacklist-cooldown-range", "0.1", "0.2")


class Attacks:
    """What a test of a job under attack needs."""

    def pids(self, job):
        return harness.descendants_by_token(job.token)

    def targets(self, job):
        found = hostile.listeners(self.pids(job))
        for target in found:
            target.tls = target.pid == job.pid and not target.host.startswith("127.")
        return found

    def ports(self, job):
        return {(target.host, target.port) for target in self.targets(job)}

    def footprint(self, job):
        return {pid: (hostile.descriptor_count(pid), hostile.resident_mb(pid))
                for pid in self.pids(job)}

    def assert_footprint(self, job, before):
        """Every descriptor that the attacks cost is given back."""
        def settled():
            now = self.footprint(job)
            return set(now) == set(before) and all(
                now[pid][0] <= before[pid][0] for pid in before)
        try:
            job.wait_for(settled, "the descriptors to be given back", limit=SETTLE_S)
        except AssertionError as error:
            raise AssertionError(f"{before}\n{self.footprint(job)}\n{error}") from None
        for pid, (_, grown) in self.footprint(job).items():
            self.assertLess(grown - before[pid][1], GROWTH_MB_MAX, f"memory of {pid}")

    def assert_undisturbed(self, job, generation):
        self.assertEqual(job.generation(), generation, job.report())
        self.assertEqual(len(job.events("form")), generation, job.report())
        self.assertEqual(job.events("lost"), [], job.report())

    def assault(self, job, targets):
        """Every attack on every port; the training goes on meanwhile."""
        for attack in hostile.SIEGES:
            with hostile.besiege(attack, targets):
                job.wait_more_steps(5)
        for attack in hostile.BLOWS:
            with self.subTest(attack=attack.__name__):
                begin = time.monotonic()
                self.assertTrue(hostile.strike(attack, targets), "the attack hangs")
                job.wait_more_steps(5)
                print(f"{attack.__name__}: {time.monotonic() - begin:.1f} s")


class HostileTest(Attacks, harness.JobTest):
    def job_under_attack(self, args=(), env=None):
        return self.job(hosts="localhost:4", np=4, min_np=2, max_np=4, args=[*COOLDOWN, *args],
                        worker={"steps": 50, "sleep_ms": 10, "go_file": GO}, env=env)


class WhileTraining(HostileTest):
    def test_every_attack_on_every_port(self):
        job = self.job_under_attack()
        job.wait_size(4)
        job.wait_more_steps(20)
        targets = self.targets(job)
        self.assertGreaterEqual(len(targets), 5, f"the driver and four workers: {targets}")
        for target in targets:
            self.assertTrue(target.host.startswith("127.") or target.host == "::1",
                            f"a job on one machine listens on loopback only: {target}")
        generation = job.generation()
        before = self.footprint(job)
        self.assault(job, targets)
        self.assert_footprint(job, before)
        self.assert_undisturbed(job, generation)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_a_call_without_the_secret_is_refused(self):
        job = self.job_under_attack()
        job.wait_size(4)
        driver = [t for t in self.targets(job) if t.pid == job.pid]
        self.assertTrue(driver)
        for target in driver:
            for method in ("Attach", "ForwardOutput"):
                for secret in (None, "", "0" * 64):
                    answer = hostile.call(target, f"/muster.v1.Agents/{method}", secret)
                    self.assertIn(b"grpc-status", answer, f"{method} with secret {secret!r}")
                    self.assertIn(b"secret is missing or wrong", answer.replace(b"%20", b" "))
        job.let_go()
        self.assert_clean(job)


class Sieges(HostileTest):
    # Handshakes have 2 s, calls 5 s to say hello, idle connections 5 s; links have 1 s.
    SHOWN_OUT_S = 20

    def assert_shown_out(self, attack, socks):
        """The other side ends every connection by itself."""
        deadline = time.monotonic() + self.SHOWN_OUT_S
        for sock in socks:
            while True:
                sock.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    if not sock.recv(65536):
                        break
                except TimeoutError:
                    self.fail(f"{attack.__name__}: {sock} stays")
                except OSError:
                    break

    def test_guests_that_wait_are_shown_out(self):
        job = self.job_under_attack()
        job.wait_size(4)
        targets = self.targets(job)
        with contextlib.ExitStack() as stack:
            held = [(attack, stack.enter_context(hostile.besiege(attack, targets)))
                    for attack in (hostile.half_preface, hostile.idle_http2,
                                   hostile.half_tls_hello, hostile.half_link_hello,
                                   hostile.whole_link_hello)]
            held.append((hostile.silent, stack.enter_context(
                hostile.besiege(lambda t: hostile.silent(t, 100), targets))))
            for attack, socks in held:
                self.assertTrue(socks, attack.__name__)
                self.assert_shown_out(attack, socks)
        self.assert_undisturbed(job, 1)
        job.let_go()
        self.assert_clean(job)

    def test_a_host_is_added_while_strangers_crowd_every_port(self):
        job = self.job(hosts="localhost:2", np=2, min_np=1, max_np=4, args=COOLDOWN,
                       worker={"steps": 50, "sleep_ms": 10, "go_file": GO})
        job.wait_size(2)
        with hostile.Crowd(self.targets(job), 400):
            job.set_hosts("localhost:2\n127.0.0.1:2")
            job.wait_size(4)
            job.kill(job.pid_of_rank(1))
            job.wait_size(4, after_generation=job.generation())
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_more_strangers_than_descriptors(self):
        """Discovery needs pipes at every poll, and a new worker needs them too."""
        job = harness.Job(hosts="localhost:2", np=2, min_np=1, max_np=4, args=COOLDOWN,
                          worker={"steps": 50, "sleep_ms": 10, "go_file": GO})
        self.addCleanup(lambda: job.close(keep=self._failed()))
        job.argv = ["prlimit", "--nofile=1024:1024", *job.argv]
        job.start()
        job.wait_size(2)
        with hostile.Crowd(self.targets(job), 1500):
            job.wait_more_steps(100)
            job.kill(job.pid_of_rank(1))
            job.wait_size(2, after_generation=job.generation())
        job.set_hosts("localhost:2\n127.0.0.1:2")
        job.wait_size(4)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class AcrossANetwork(Attacks, test_join.JoinTest):
    """The driver's second server speaks TLS, and workers listen where others can reach them."""

    STRANGER = "nodec"

    def from_outside(self):
        return hostile.inside(f"{netns.NETNS_FOLDER}/{self.network.namespace(self.STRANGER)}")

    def reachable(self, job):
        found = [t for t in self.targets(job) if not t.host.startswith("127.") and t.host != "::1"]
        self.assertTrue([t for t in found if t.tls], f"a TLS server among {found}")
        self.assertGreaterEqual(len(found), 3, f"the driver and two workers: {found}")
        return found

    def test_every_attack_on_every_port(self):
        job, agents = self.join_training()
        targets = self.reachable(job)
        generation = job.generation()
        before = self.footprint(job)
        with self.from_outside():
            self.assault(job, targets)
        self.assert_footprint(job, before)
        self.assert_undisturbed(job, generation)
        self.finish(job, agents.values())

    def test_a_call_without_the_secret_is_refused_inside_tls(self):
        job, agents = self.join_training()
        with self.from_outside():
            for target in [t for t in self.reachable(job) if t.tls]:
                for secret in (None, "", "0" * 64):
                    answer = hostile.call(target, secret=secret)
                    self.assertIn(b"secret is missing or wrong", answer.replace(b"%20", b" "))
        self.finish(job, agents.values())

    def test_an_agent_dials_in_through_a_crowd(self):
        job, agents = self.join_training()
        with self.from_outside():
            crowd = hostile.Crowd(self.reachable(job), 300)
            with crowd:
                agents["late"] = self.join("nodea", name="late")
                job.wait_size(3)
        self.finish(job, agents.values())


class AtTheStart(HostileTest):
    def test_first_formation_under_attack(self):
        job = self.job_under_attack(env={"MUSTER_FAULT": "formation:*:delay=2000"})
        with hostile.Harassment(lambda: self.pids(job)) as attack:
            job.wait_size(4)
            job.wait_more_steps(10)
        self.assertGreaterEqual(len(attack.struck), 5)
        self.assert_undisturbed(job, 1)
        job.let_go()
        self.assert_clean(job)


class DuringFormation(HostileTest):
    KILLS = 5

    def test_each_kill_costs_one_loss_and_one_growth(self):
        delays = ",".join(f"formation:1:delay=200:{n}" for n in range(2, 2 + 2 * self.KILLS))
        job = self.job_under_attack(env={"MUSTER_FAULT": delays})
        job.wait_size(4)
        with hostile.Harassment(lambda: self.pids(job)) as attack:
            for _ in range(self.KILLS):
                job.kill(job.pid_of_rank(2))
                job.wait_size(4, after_generation=job.generation())
                job.wait_for(lambda: self.ports(job) <= attack.struck, "blows at the new worker")
        forms = job.events("form")
        self.assertEqual([e.size for e in forms], [4] + [3, 4] * self.KILLS, job.report())
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class RecordedHandshake(HostileTest):
    def test_replay_opens_no_link(self):
        try:
            recorder = hostile.Recorder()
        except PermissionError:
            self.skipTest("no CAP_NET_RAW here: nothing can be recorded")
        self.addCleanup(recorder.close)
        # Through shared memory there would be no data links.
        job = self.job_under_attack(args=["--cpu-operations", "gloo"])
        job.wait_size(4)
        ports = {t.port for t in self.targets(job)}
        recorded = [h for h in recorder.handshakes() if h[0] in ports]
        self.assertGreaterEqual(len(recorded), 6 + 3, "links of four workers, and control links")
        generation = job.generation()
        before = self.footprint(job)
        for port, hello, rest in recorded:
            self.assertTrue(hostile.replay(port, hello, rest))
        job.wait_more_steps(10)
        self.assert_undisturbed(job, generation)
        self.assert_footprint(job, before)
        # In the generation that follows, and while it forms.
        job.kill(job.pid_of_rank(3))
        for _ in range(3):
            for port, hello, rest in recorded:
                hostile.replay(port, hello, rest)
        job.wait_size(4, after_generation=generation)
        self.assertEqual([e.size for e in job.events("form")], [4, 3, 4], job.report())
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class UnixSockets(HostileTest):
    def seqpacket(self, path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(10)
        sock.connect(path)
        return sock

    def stream(self, path):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(10)
        sock.connect(path)
        return sock

    def paths(self, job):
        paths = hostile.unix_paths(self.pids(job))
        grpc = [p for p in paths if p.endswith("/workers.sock")]
        page = [p for p in paths if p.endswith("/page.sock")]
        self.assertEqual((len(grpc), len(page)), (1, 1), paths)
        return grpc[0], page[0]

    def test_another_user_does_not_get_in(self):
        if os.geteuid() != 0:
            self.skipTest("not root: no other user to be")
        job = self.job_under_attack()
        job.wait_size(4)
        for path in self.paths(job):
            self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o777, 0o700)
            got = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c",
                 "import socket,sys\n"
                 "try:\n"
                 "  socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect(sys.argv[1])\n"
                 "except PermissionError:\n"
                 "  print('refused')\n", path],
                capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(got.stdout, "refused\n", got.stderr)
        job.let_go()
        self.assert_clean(job)

    def test_the_same_user_without_a_key_changes_nothing(self):
        job = self.job_under_attack()
        job.wait_size(4)
        grpc, page = self.paths(job)
        generation = job.generation()
        before = self.footprint(job)
        with contextlib.ExitStack() as stack:
            for _ in range(hostile.SILENT_CLIENTS // 2):
                with contextlib.suppress(OSError):
                    stack.enter_context(self.seqpacket(page))
                with contextlib.suppress(OSError):
                    stack.enter_context(self.stream(grpc))
            job.wait_more_steps(5)
        for request in (b"", b"x", os.urandom(71), os.urandom(72), os.urandom(4000),
                        struct.pack("<Q64s", 1, b"0" * 64), struct.pack("<Q64s", 2 ** 64 - 1, b"")):
            with contextlib.suppress(OSError), self.seqpacket(page) as sock:
                sock.send(request)
                answer = sock.recv(4096)
                self.assertTrue(answer == b"" or answer[0] != 0, "a page for nobody")
        for said in (os.urandom(5000), hostile.PREFACE, hostile.PREFACE[:7],
                     hostile.PREFACE + hostile.frame(hostile.SETTINGS) + hostile.frame(
                         hostile.HEADERS, hostile.END_HEADERS, 1,
                         hostile.call_headers("/muster.v1.Workers/Join"))
                     + hostile.frame(hostile.DATA, 0, 1, b"\0\0\0\0\4\x0a\2\x08\1")):
            with contextlib.suppress(OSError), self.stream(grpc) as sock:
                sock.sendall(said)
                hostile.read_for(sock, 0.5)
        job.wait_more_steps(5)
        self.assert_footprint(job, before)
        self.assert_undisturbed(job, generation)
        job.let_go()
        self.assert_clean(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
