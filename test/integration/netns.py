"""Hosts as network namespaces, with a real sshd in each and links that can be cut.

A Network is a switch (a namespace with a bridge) and hosts (a namespace each) on it:

    with Network(["nodea", "nodeb"]) as network:
        network.run("driver", ["ssh", "nodea", "true"], check=True)
        network.cut("nodea")

Nothing of it is visible outside its namespaces but their names and a folder in /etc/netns, so that
any number of networks can exist at a time, all with the same addresses. The hosts share the file
system and the process numbers with the test: traces, logs and kill() work as ever. A network is
removed by close(), at the exit of the test, or, if that was killed, by the next one that starts.

Needs root, iproute2 and OpenSSH; available() says what is missing.
"""

import atexit
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import harness

PREFIX = "muster-test-"
NETNS_FOLDER = "/run/netns"
HOSTS_FOLDER = "/etc/netns"
SSHD = "/usr/sbin/sshd"
SSH = "/usr/bin/ssh"
PORT_OF_SSH = 22
# Every network has these; they cannot meet.
IPV4 = "10.61.0.{}"
IPV6 = "fd00:6d75::{}"
MTU = 1500
# A bound against hangs.
LIMIT_S = 30

_open_networks = []


class Unsupported(Exception):
    """This kernel lacks what a link would need; the text is a reason to skip a test."""


def run(argv, check=True, **options):
    done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=LIMIT_S, check=False, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: code {done.returncode}: "
                           f"{done.stderr.strip()}")
    return done


_why_not = None


def available():
    """Empty, or a sentence that says why no namespaces can be made here."""
    global _why_not
    if _why_not is None:
        _why_not = _find_obstacle()
    return _why_not


def _find_obstacle():
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "bridge"):
        if shutil.which(program) is None:
            return f"there is no `{program}` (package iproute2)"
    for program in (SSHD, SSH, "ssh-keygen"):
        if shutil.which(program) is None:
            return f"there is no {program} (packages openssh-server, openssh-client)"
    probe = _name_prefix() + "probe"
    try:
        done = run(["ip", "netns", "add", probe], check=False)
        if done.returncode != 0:
            return f"no network namespace can be made: {done.stderr.strip()}"
        done = run(["ip", "-n", probe, "link", "add", "veth-a", "type", "veth", "peer", "name",
                    "veth-b"],
                   check=False)
        if done.returncode != 0:
            return f"no veth pair can be made: {done.stderr.strip()}"
        done = run(["ip", "-n", probe, "link", "add", "bridge-c", "type", "bridge"], check=False)
        if done.returncode != 0:
            return f"no bridge can be made: {done.stderr.strip()}"
        done = run(["ip", "netns", "exec", probe, "true"], check=False)
        if done.returncode != 0:
            return f"nothing can be run in a network namespace: {done.stderr.strip()}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no network namespace can be made: {error}"
    finally:
        run(["ip", "netns", "delete", probe], check=False)
    return ""


# ---- names that tell whose they are

def _start_time(pid):
    fields = harness.stat_fields(pid)
    return fields[19] if fields else ""


def _name_prefix():
    """Pid and start time of this test, so that leftovers of dead ones can be told."""
    return f"{PREFIX}{os.getpid()}-{_start_time(os.getpid())}-"


def _is_of_dead_test(name):
    match = re.match(re.escape(PREFIX) + r"(\d+)-(\d+)-", name)
    return bool(match) and _start_time(match[1]) != match[2]


def _names_in(folder):
    with contextlib.suppress(OSError):
        return os.listdir(folder)
    return []


def sweep():
    """Removes what tests left that were killed."""
    for name in filter(_is_of_dead_test, _names_in(NETNS_FOLDER)):
        _remove_namespace(name)
    for folder in (HOSTS_FOLDER, tempfile.gettempdir()):
        for name in filter(_is_of_dead_test, _names_in(folder)):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def _pids_in(namespace):
    """Of the processes in a namespace; zombies are in none."""
    with contextlib.suppress(OSError):
        inode = os.stat(os.path.join(NETNS_FOLDER, namespace)).st_ino
        return [int(name) for name in os.listdir("/proc")
                if name.isdigit() and _namespace_inode(name) == inode]
    return []


def _namespace_inode(pid):
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    return None


def _kill_all_in(namespace):
    deadline = time.monotonic() + LIMIT_S
    while True:
        pids = _pids_in(namespace)
        if not pids:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{pids} in {namespace} survive SIGKILL")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(harness.POLL_S)


def _remove_namespace(name):
    _kill_all_in(name)
    run(["ip", "netns", "delete", name], check=False)
    shutil.rmtree(os.path.join(HOSTS_FOLDER, name), ignore_errors=True)


@atexit.register
def _close_all():
    for network in list(_open_networks):
        network.close()


class Network:
    """`hosts` have an sshd each; `clients`, such as the one of the driver, have none."""

    def __init__(self, hosts=("nodea", "nodeb", "nodec"), clients=("driver",), ipv4=True,
                 ipv6=False, interfaces=None, variables=None):
        """`interfaces`: host -> name of its link, where that is not eth0. `variables`: what sshd
        adds to the environment of all that it starts."""
        self.hosts = list(hosts)
        self.clients = list(clients)
        self.ipv4 = ipv4
        self.ipv6 = ipv6
        self.interfaces = interfaces or {}
        # In the environment of all that sshd starts; never in sshd's own.
        self.token = secrets.token_hex(8)
        self.variables = {harness.TOKEN_NAME: self.token, **(variables or {})}
        self.prefix = _name_prefix() + secrets.token_hex(3) + "-"
        self.folder = None
        self._sshds = {}

    def __enter__(self):
        return self.open()

    def __exit__(self, *_):
        self.close()

    def open(self):
        sweep()
        _open_networks.append(self)
        try:
            self.folder = tempfile.mkdtemp(prefix=self.prefix)
            self._make_switch()
            for place, host in enumerate(self.hosts + self.clients):
                self._make_host(host, place + 1)
            self._make_ssh_client()
            for host in self.hosts:
                self._make_sshd_config(host)
                self.start_sshd(host)
        except BaseException:
            self.close()
            raise
        return self

    def close(self):
        if self not in _open_networks:
            return
        for host in self.hosts + self.clients:
            _kill_all_in(self.namespace(host))
        for process in self._sshds.values():
            process.wait(LIMIT_S)
        self._sshds = {}
        for host in self.hosts + self.clients:
            _remove_namespace(self.namespace(host))
        _remove_namespace(self.namespace("switch"))
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(HOSTS_FOLDER)
        _open_networks.remove(self)

    # ---- names, addresses, processes

    def namespace(self, host):
        return self.prefix + host

    def interface(self, host):
        return self.interfaces.get(host, "eth0")

    def address(self, host, ipv6=None):
        """IPv4 if the network has it, unless the other is asked for."""
        number = (self.hosts + self.clients).index(host) + 1
        use_ipv6 = not self.ipv4 if ipv6 is None else ipv6
        return (IPV6 if use_ipv6 else IPV4).format(number)

    def inside(self, host):
        """What to put before an argv. It execs: the process keeps its pid."""
        return ["ip", "netns", "exec", self.namespace(host)]

    def run(self, host, argv, check=False, **options):
        return run(self.inside(host) + list(argv), check=check, **options)

    def environment(self):
        """For whoever calls ssh on a host: the wrapper that knows the keys comes first."""
        return {"PATH": self.folder + "/bin:" + os.environ["PATH"]}

    def pids(self, host):
        return _pids_in(self.namespace(host))

    def sockets(self, host, *arguments):
        """Of `ss`: (local address, peer address, pids) of each TCP socket; an address is a tuple of
        literal and port, the port "*" where there is none."""
        found = []
        for line in self.run(host, ["ss", "-Htnp", *arguments], check=True).stdout.splitlines():
            words = line.split()
            ends = []
            for end in words[3:5]:
                literal, port = end.rsplit(":", 1)
                literal = literal.strip("[]").split("%")[0].removeprefix("::ffff:")
                ends.append((literal, int(port) if port.isdigit() else port))
            found.append((*ends, {int(pid) for pid in re.findall(r"pid=(\d+)", line)}))
        return found

    def host_of(self, pid):
        inode = _namespace_inode(pid)
        for host in self.hosts + self.clients:
            if inode == os.stat(os.path.join(NETNS_FOLDER, self.namespace(host))).st_ino:
                return host
        return None

    # ---- links

    def cut(self, host):
        """Takes the link down at the switch: the host sees that its carrier is gone."""
        self._switch(["link", "set", self._port(host), "down"])

    def black_hole(self, host):
        """Drops all frames; the link stays up, so nobody is told."""
        self._switch(["link", "set", self._port(host), "nomaster"])

    def slow(self, host, rate="1mbit"):
        """Both ways."""
        tbf = ["root", "tbf", "rate", rate, "burst", "16kb", "latency", "200ms"]
        self._each_end(host, ["qdisc", "replace"], tbf)

    def delay(self, host, milliseconds):
        """One way each, so a round trip takes twice that."""
        try:
            self._each_end(host, ["qdisc", "replace"],
                           ["root", "netem", "delay", f"{milliseconds}ms"])
        except RuntimeError as error:
            raise Unsupported(f"this kernel cannot delay packets (netem): {error}") from error

    def drop_port(self, host, port):
        """What this host sends from a TCP port vanishes: whoever connects to it hears nothing."""
        for family in self._families():
            done = run(["ip", "-n", self.namespace(host), family, "rule", "add", "pref", "10",
                        "ipproto", "tcp", "sport", port, "blackhole"], check=False)
            if done.returncode != 0:
                raise Unsupported(f"this kernel has no rules by port: {done.stderr.strip()}")

    def heal(self, host):
        """Undoes all of the above."""
        self._each_end(host, ["qdisc", "delete"], ["root"], check=False)
        for family in self._families():
            while run(["ip", "-n", self.namespace(host), family, "rule", "delete", "pref", "10"],
                      check=False).returncode == 0:
                pass
        self._switch(["link", "set", self._port(host), "master", "bridge", "up"])

    def add_docker0(self, host, address="172.17.0.1/16"):
        """A bridge of its own that is up and has a carrier, but leads nowhere."""
        namespace = self.namespace(host)
        self._batch(namespace, [
            "link add docker0 type bridge",
            f"address add {address} dev docker0",
            "link add docker-a type veth peer name docker-b",
            "link set docker-a master docker0 up",
            "link set docker-b up",
            "link set docker0 up"])

    # ---- sshd

    def start_sshd(self, host):
        with open(self._path("sshd-log", host), "ab") as log:
            process = subprocess.Popen(
                self.inside(host) + [SSHD, "-D", "-e", "-f", self._path("sshd", host)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True, preexec_fn=harness.die_with_the_harness)
        self._sshds[host] = process
        self._wait_for_sshd(host, process)

    def stop_sshd(self, host):
        """The listening process only: sessions go on."""
        process = self._sshds.pop(host)
        process.kill()
        process.wait(LIMIT_S)

    def sshd_pid(self, host):
        return self._sshds[host].pid

    def sshd_log(self, host):
        with open(self._path("sshd-log", host), encoding="utf-8", errors="replace") as file:
            return file.read()

    def halt(self, host):
        """Ends everything on the host at once, as a power cut would."""
        _kill_all_in(self.namespace(host))
        if host in self._sshds:
            self._sshds.pop(host).wait(LIMIT_S)

    # ---- making it

    def _path(self, kind, host):
        return os.path.join(self.folder, f"{kind}-{host}")

    def _families(self):
        return ["-4"] * self.ipv4 + ["-6"] * self.ipv6

    def _port(self, host):
        return f"to-{host}"[:15]

    def _switch(self, arguments):
        run(["ip", "-n", self.namespace("switch")] + arguments)

    def _each_end(self, host, command, arguments, check=True):
        for namespace, device in ((self.namespace("switch"), self._port(host)),
                                  (self.namespace(host), self.interface(host))):
            run(["tc", "-n", namespace] + command + ["dev", device] + arguments, check=check)

    def _batch(self, namespace, lines):
        done = subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines),
                              capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"ip in {namespace}: {done.stderr.strip()}")

    def _make_switch(self):
        namespace = self.namespace("switch")
        run(["ip", "netns", "add", namespace])
        self._batch(namespace, ["link add bridge type bridge", "link set bridge up"])

    def _make_host(self, host, number):
        namespace = self.namespace(host)
        interface = self.interface(host)
        os.makedirs(os.path.join(HOSTS_FOLDER, namespace))
        self.set_hosts_file(host, self._hosts_file())
        run(["ip", "netns", "add", namespace])
        self._switch(["link", "add", self._port(host), "mtu", MTU, "type", "veth", "peer", "name",
                      interface, "mtu", MTU, "netns", namespace])
        self._switch(["link", "set", self._port(host), "master", "bridge", "up"])
        lines = ["link set lo up", f"link set {interface} up"]
        if self.ipv4:
            lines.append(f"address add {IPV4.format(number)}/24 dev {interface}")
        if self.ipv6:
            lines.append(f"address add {IPV6.format(number)}/64 dev {interface} nodad")
        self._batch(namespace, lines)

    def _hosts_file(self):
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
        for host in self.hosts + self.clients:
            if self.ipv4:
                lines.append(f"{self.address(host, ipv6=False)} {host}")
            if self.ipv6:
                lines.append(f"{self.address(host, ipv6=True)} {host}")
        return "\n".join(lines) + "\n"

    def set_hosts_file(self, host, text):
        """What /etc/hosts is for whatever starts on this host from now on."""
        path = os.path.join(HOSTS_FOLDER, self.namespace(host), "hosts")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _make_key(self, name):
        path = os.path.join(self.folder, name)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path])
        with open(path + ".pub", encoding="utf-8") as file:
            return file.read().strip()

    def _make_ssh_client(self):
        self.identity = os.path.join(self.folder, "identity")
        self.known_hosts = os.path.join(self.folder, "known_hosts")
        self.ssh_config = os.path.join(self.folder, "ssh_config")
        public = self._make_key("identity")
        with open(os.path.join(self.folder, "authorized_keys"), "w", encoding="utf-8") as file:
            file.write(public + "\n")
        self.write_ssh_config(f"IdentityFile {self.identity}")
        os.mkdir(os.path.join(self.folder, "bin"))
        wrapper = os.path.join(self.folder, "bin", "ssh")
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {SSH} -F {self.ssh_config} "$@"\n')
        os.chmod(wrapper, 0o755)

    def write_ssh_config(self, *lines):
        """What the user's ~/.ssh/config would be; known hosts are always checked."""
        with open(self.ssh_config, "w", encoding="utf-8") as file:
            file.write("\n".join([
                f"UserKnownHostsFile {self.known_hosts}", "GlobalKnownHostsFile none",
                "StrictHostKeyChecking yes", "IdentitiesOnly yes", "IdentityAgent none",
                *lines]) + "\n")

    def _make_sshd_config(self, host):
        public = self._make_key(f"hostkey-{host}")
        with open(self.known_hosts, "a", encoding="utf-8") as file:
            names = [host] + [self.address(host, ipv6=v6)
                              for v6 in [False] * self.ipv4 + [True] * self.ipv6]
            file.write(f"{','.join(names)} {public}\n")
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        with open(self._path("sshd", host), "w", encoding="utf-8") as file:
            file.write("\n".join([
                f"Port {PORT_OF_SSH}", f"HostKey {self.folder}/hostkey-{host}",
                f"AuthorizedKeysFile {self.folder}/authorized_keys", "StrictModes no",
                "UsePAM no", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
                "PermitRootLogin prohibit-password", "UseDNS no", "PrintMotd no",
                "MaxStartups 100", f"PidFile {self._path('sshd-pid', host)}",
                "SetEnv " + " ".join(f"{k}={v}" for k, v in self.variables.items())]) + "\n")

    def _wait_for_sshd(self, host, process):
        """By its pid file, which it writes once it listens."""
        path = self._path("sshd-pid", host)
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
                if int(file.read()) == process.pid:
                    return
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no sshd on {host}:\n{self.sshd_log(host)}")
            time.sleep(harness.POLL_S)


class NetworkTest(harness.JobTest):
    """Tests on one network, made once per class and healed after each test."""

    HOSTS = ("nodea", "nodeb", "nodec")
    OPTIONS = {}
    network = None

    @classmethod
    def setUpClass(cls):
        why_not = available()
        if why_not:
            raise unittest.SkipTest(why_not)
        cls.network = Network(cls.HOSTS, **cls.OPTIONS).open()
        cls.addClassCleanup(cls.network.close)

    def setUp(self):
        self.addCleanup(self._repair)

    def _repair(self):
        for host in self.network.hosts + self.network.clients:
            self.network.heal(host)

    def job(self, **options):
        """The driver on `driver`, unless `driver_host` says otherwise."""
        return super().job(**{"network": self.network, **options})

    # ---- processes of a job, by host

    def processes(self, job, host):
        return [pid for pid in harness.descendants_by_token(job.token)
                if self.network.host_of(pid) == host]

    def agent(self, job, host):
        """The pid of the one agent proper of a host."""
        found = job.agents(host)
        self.assertEqual(len(found), 1, f"agents on {host}\n{job.report()}")
        return found[0]

    def ssh_clients(self, job):
        """host -> pid, of the remote shells that the driver holds."""
        clients = {}
        for pid in harness.descendants_by_token(job.token):
            words = harness.command_line(pid)
            if words and os.path.basename(words[0]) == "ssh":
                clients.update({word: pid for word in words if word in self.network.hosts})
        return clients

    def assert_kept_going(self, job, pids, limit=harness.LIMIT_S):
        """These train on, as the whole of a newer world or of the present one."""
        job.wait_size(len(pids), limit)
        self.assert_same_pids(job, pids)

    def assert_fenced(self, job, pids, new_generation):
        """They did nothing more once others trained without them."""
        resumed = min(e.t for e in job.events("step", generation=new_generation))
        self.assertTrue(pids, "nobody was lost")
        for pid in pids:
            self.assertTrue(job.events("init", pid=pid), f"{pid} never took part")
            for event in job.events(pid=pid):
                if event.event in ("step", "commit", "world", "sync"):
                    self.assertLess(event.generation, new_generation, f"{event}\n{job.report()}")
                    self.assertLess(event.t, resumed, f"{event}\n{job.report()}")
