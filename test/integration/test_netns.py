"""The test kit itself: hosts answer, links break as asked, and nothing of a network stays behind."""

import os
import signal
import subprocess
import sys
import time
import unittest

import harness
import netns

# Sends a line, waits for its echo, as often as lines come on standard input.
ECHO_SERVER = """
import socket, sys
listener = socket.create_server(("", 4711))
print("listens", flush=True)
connection, _ = listener.accept()
while data := connection.recv(65536):
    connection.sendall(data)
"""
ECHO_CLIENT = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 4711), timeout=10)
payload = b"x" * int(sys.argv[2])
start = time.monotonic()
connection.sendall(payload)
got = 0
while got < len(payload):
    got += len(connection.recv(65536))
print(time.monotonic() - start)
"""


def skip_unless_available():
    why_not = netns.available()
    if why_not:
        raise unittest.SkipTest(why_not)


class Hosts(netns.NetworkTest):
    HOSTS = ("nodea", "nodeb")
    OPTIONS = {"ipv6": True}

    def reaches(self, host, to, family="-4", wait_s=1):
        address = self.network.address(to, ipv6=family == "-6")
        probe = ("import socket,sys\n"
                 f"socket.create_connection(({address!r}, {netns.PORT_OF_SSH}), {wait_s}).recv(3)")
        done = self.network.run(host, [sys.executable, "-c", probe])
        return done.returncode == 0

    def ssh(self, *arguments):
        return self.network.run("driver", ["ssh", *arguments],
                                env={**os.environ, **self.network.environment()})

    def test_each_host_answers_by_ssh_under_its_own_name(self):
        for host in self.network.hosts:
            done = self.ssh(host, "echo $SSH_CONNECTION; readlink /proc/self/ns/net")
            self.assertEqual(done.returncode, 0, done.stderr + self.network.sshd_log(host))
            self.assertIn(self.network.address(host, ipv6=True) + " 22", done.stdout)
            inode = os.stat(os.path.join(netns.NETNS_FOLDER, self.network.namespace(host))).st_ino
            self.assertIn(str(inode), done.stdout)

    def test_what_ssh_starts_carries_the_token_and_nothing_else_does(self):
        done = self.ssh("nodea", f"echo ${harness.TOKEN_NAME}")
        self.assertEqual(done.stdout.strip(), self.network.token)
        self.assertEqual(harness.descendants_by_token(self.network.token), [])

    def test_an_unknown_host_key_is_refused(self):
        with open(self.network.known_hosts, encoding="utf-8") as file:
            known = file.read()
        self.addCleanup(self.write_known_hosts, known)
        self.write_known_hosts("\n".join(line for line in known.splitlines()
                                         if not line.startswith("nodea")) + "\n")
        self.assertNotEqual(self.ssh("nodea", "true").returncode, 0)
        self.assertEqual(self.ssh("nodeb", "true").returncode, 0)

    def write_known_hosts(self, text):
        with open(self.network.known_hosts, "w", encoding="utf-8") as file:
            file.write(text)

    def test_both_families_reach_every_host(self):
        for family in ("-4", "-6"):
            for host in self.network.hosts:
                self.assertTrue(self.reaches("driver", host, family), (family, host))

    def test_a_cut_host_is_unreachable_until_it_is_healed(self):
        self.network.cut("nodea")
        state = self.network.run("nodea", ["ip", "link", "show", "eth0"]).stdout
        self.assertIn("NO-CARRIER", state)
        self.assertFalse(self.reaches("driver", "nodea", wait_s=0.3))
        self.assertFalse(self.reaches("nodea", "nodeb", wait_s=0.3))
        self.assertTrue(self.reaches("driver", "nodeb"))
        self.network.heal("nodea")
        for family in ("-4", "-6"):
            self.assertTrue(self.reaches("driver", "nodea", family, wait_s=5), family)

    def test_a_black_hole_swallows_while_the_link_is_up(self):
        self.network.black_hole("nodea")
        state = self.network.run("nodea", ["ip", "link", "show", "eth0"]).stdout
        self.assertIn("LOWER_UP", state)
        self.assertFalse(self.reaches("driver", "nodea", wait_s=0.3))
        self.network.heal("nodea")
        self.assertTrue(self.reaches("driver", "nodea", wait_s=5))

    def echo_seconds(self, size):
        server = subprocess.Popen(self.network.inside("nodea") + [sys.executable, "-c", ECHO_SERVER],
                                  stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                  preexec_fn=harness.die_with_the_harness)
        try:
            self.assertEqual(server.stdout.readline().strip(), "listens")
            done = self.network.run("nodeb", [sys.executable, "-c", ECHO_CLIENT,
                                              self.network.address("nodea"), size], check=True)
            return float(done.stdout)
        finally:
            server.kill()
            server.wait(netns.LIMIT_S)
            server.stdout.close()

    def test_a_slow_link_is_slow_and_fast_again_when_healed(self):
        self.network.slow("nodea", "2mbit")
        self.assertGreater(self.echo_seconds(200_000), 0.4)
        self.network.heal("nodea")
        self.assertLess(self.echo_seconds(200_000), 0.4)

    def test_a_dropped_port_is_silent_and_the_others_are_not(self):
        try:
            self.network.drop_port("nodea", netns.PORT_OF_SSH)
        except netns.Unsupported as why_not:
            self.skipTest(str(why_not))
        started = time.monotonic()
        self.assertFalse(self.reaches("nodeb", "nodea", wait_s=0.5))
        self.assertGreater(time.monotonic() - started, 0.5)
        self.assertGreater(self.echo_seconds(1000), 0)
        self.network.heal("nodea")
        self.assertTrue(self.reaches("nodeb", "nodea"))

    def test_docker0_is_up_with_the_same_address_on_two_hosts(self):
        for host in self.network.hosts:
            self.network.add_docker0(host)
            self.addCleanup(self.network.run, host, ["ip", "link", "delete", "docker0"])
            text = self.network.run(host, ["ip", "-o", "link", "show", "docker0"]).stdout
            self.assertIn("state UP", text)
        self.assertTrue(self.reaches("nodea", "nodeb"))

    def test_a_halted_host_comes_back_with_its_sshd(self):
        sleeper = subprocess.Popen(self.network.inside("nodea") + ["sleep", "600"])
        deadline = time.monotonic() + netns.LIMIT_S
        while sleeper.pid not in self.network.pids("nodea"):
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.network.host_of(sleeper.pid), "nodea")
        self.network.halt("nodea")
        self.assertEqual(sleeper.wait(netns.LIMIT_S), -signal.SIGKILL)
        self.assertNotEqual(self.ssh("nodea", "true").returncode, 0)
        self.network.start_sshd("nodea")
        self.assertEqual(self.ssh("nodea", "true").returncode, 0)


class NothingStays(unittest.TestCase):
    def setUp(self):
        skip_unless_available()

    def traces_of(self, prefix):
        """Namespaces, folders, and processes that name the network in their command."""
        found = [name for folder in (netns.NETNS_FOLDER, netns.HOSTS_FOLDER, "/tmp")
                 if os.path.isdir(folder) for name in os.listdir(folder)
                 if name.startswith(prefix)]
        for name in os.listdir("/proc"):
            if name.isdigit() and prefix in " ".join(harness.command_line(name)):
                found.append(f"{name}: {harness.command_line(name)}")
        return found

    def links(self):
        return netns.run(["ip", "-o", "link"]).stdout

    def test_after_a_network_is_closed(self):
        links = self.links()
        with netns.Network(["nodea"]) as network:
            prefix = network.prefix
            self.assertGreaterEqual(len(self.traces_of(prefix)), 4)
            left = subprocess.Popen(network.inside("nodea") + ["sleep", "600"])
        self.assertEqual(left.wait(netns.LIMIT_S), -signal.SIGKILL)
        self.assertEqual(self.traces_of(prefix), [])
        self.assertEqual(self.links(), links)

    def run_script(self, end):
        script = ("import os, sys, signal\n"
                  f"sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})\n"
                  "import netns\n"
                  "network = netns.Network(['nodea']).open()\n"
                  "print(network.prefix, flush=True)\n" + end)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              timeout=netns.LIMIT_S, check=False)
        prefix = done.stdout.strip()
        self.assertTrue(prefix.startswith(netns.PREFIX), done.stderr)
        return prefix

    def test_after_a_test_that_forgot_to_close_it(self):
        self.assertEqual(self.traces_of(self.run_script("raise SystemExit(1)")), [])

    def test_after_a_killed_test_once_the_next_one_starts(self):
        prefix = self.run_script("os.kill(os.getpid(), signal.SIGKILL)")
        self.assertNotEqual(self.traces_of(prefix), [])
        netns.sweep()
        self.assertEqual(self.traces_of(prefix), [])

    def test_a_sweep_leaves_living_networks_alone(self):
        with netns.Network(["nodea"]) as network:
            before = self.traces_of(network.prefix)
            netns.sweep()
            self.assertEqual(self.traces_of(network.prefix), before)

    def test_two_networks_do_not_meet(self):
        with netns.Network(["nodea"]) as one, netns.Network(["nodea"]) as other:
            self.assertNotEqual(one.prefix, other.prefix)
            for network in (one, other):
                done = network.run("driver", ["ssh", "nodea", f"echo ${harness.TOKEN_NAME}"],
                                   env={**os.environ, **network.environment()})
                self.assertEqual(done.stdout.strip(), network.token, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
