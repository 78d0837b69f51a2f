"""Four hosts, a job of eight workers on them, and what disturbs it."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

import harness  # noqa: E402  (needs the path above)
import netns  # noqa: E402

HOSTS = ("nodea", "nodeb", "nodec", "noded")
SLOTS = 2
WORKERS = SLOTS * len(HOSTS)
WORKER = os.path.join(harness.BIN, "test_soak_worker")
MUSTER = os.path.join(harness.BIN, "muster")
# Long enough that a cut of 3 s may end with the agent's return, short enough that others end with
# the lease.
LEASE_S = 3
DISK_KB = 4096
CHAOS_ENDS_S = 30  # A hook may take 10 s to end.


class Stage:
    def __init__(self, step_ms, busy_loops):
        self.folder = tempfile.mkdtemp(prefix="muster-soak-")
        self.disk = os.path.join(self.folder, "disk")
        self.busy = []
        self.chaos = None
        self.job = None
        self.network = None
        self.write("mode", "")
        self.write("all-hosts", "".join(f"{host}:{SLOTS}\n" for host in HOSTS))
        self.write("hosts", self.read("all-hosts"))
        os.mkdir(self.disk)
        netns.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "soak", self.disk])
        try:
            # A home without a .bashrc: what stands in the user's runs at each start of an agent,
            # and may leave a lock behind when that is killed.
            self.network = netns.Network(HOSTS, variables={"TMPDIR": self.disk,
                                                           "HOME": self.folder}).open()
            self._make_job(step_ms)
            self.busy = [self._start_busy_loop() for _ in range(busy_loops)]
        except BaseException:
            self.close(keep=False)
            raise

    def own_folders(self):
        """Where the harness and the job may leave what they like."""
        return [self.folder, self.job.folder, self.network.folder]

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def _make_job(self, step_ms):
        self.job = harness.Job(
            np=WORKERS, min_np=1, max_np=WORKERS, network=self.network, program=WORKER,
            script=os.path.join(HERE, "discover.sh"),
            args=["--blacklist-cooldown-range", 1, 1, "--driver-grace", LEASE_S,
                  "--output-filename", os.path.join(self.disk, "output"), "--verbose"],
            worker={"step_ms": step_ms, "stop_file": self.path("stop")},
            env={"SOAK_FOLDER": self.folder, "TMPDIR": self.disk, "MUSTER_TRACE": ""})
        self.job.start()

    @staticmethod
    def _start_busy_loop():
        return subprocess.Popen(["sh", "-c", "while :; do :; done"], stdin=subprocess.DEVNULL,
                                preexec_fn=harness.die_with_the_harness)

    def job_id(self):
        [name] = os.listdir(self.job.environment["MUSTER_INCIDENT_DIR"])
        return name

    def start_chaos(self, options):
        environment = dict(os.environ)
        environment.update({
            "SOAK_FOLDER": self.folder, "SOAK_HOSTS": " ".join(HOSTS),
            "SOAK_PREFIX": self.network.prefix,
            "MUSTER_INCIDENT_DIR": self.job.environment["MUSTER_INCIDENT_DIR"]})
        argv = [MUSTER, "chaos", self.job_id(), "--log", self.path("chaos.jsonl"),
                "--hook-dir", os.path.join(HERE, "hooks"), *map(str, options)]
        with open(self.path("chaos.txt"), "wb") as out:
            self.chaos = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL,
                                          stdout=out, stderr=subprocess.STDOUT,
                                          preexec_fn=harness.die_with_the_harness)

    def stop_chaos(self):
        """It undoes what is under way; if it does not end, closing the network undoes the rest."""
        if self.chaos is None or self.chaos.poll() is not None:
            return
        self.chaos.terminate()
        try:
            self.chaos.wait(CHAOS_ENDS_S)
        except subprocess.TimeoutExpired:
            self.chaos.kill()
            self.chaos.wait(netns.LIMIT_S)

    def why(self, *options):
        return subprocess.run([MUSTER, "why", *options], env=self.job.environment,
                              capture_output=True, text=True, timeout=60, check=False).stdout

    def dump(self):
        """All that is known about a world that stands still, into the folder."""
        with open(self.path("stacks.txt"), "w", encoding="utf-8") as file:
            for pid in harness.descendants_by_token(self.job.token):
                file.write(f"==== {pid}: {' '.join(harness.command_line(pid))[:200]}\n")
                file.write(self._stacks(pid))
        self.write("why.txt", self.why())

    @staticmethod
    def _stacks(pid):
        if shutil.which("gdb") is None:
            return "no gdb here\n"
        try:
            return subprocess.run(
                ["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 25"],
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                check=False).stdout
        except subprocess.TimeoutExpired:
            return "gdb took too long\n"

    def end(self, limit_s):
        """Lets the job end by itself; gives its exit code, or None if it does not."""
        self.write("stop", "")
        try:
            return self.job.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None

    def processes_left(self, within_s):
        deadline = time.monotonic() + within_s
        while True:
            left = harness.descendants_by_token(self.job.token)
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(harness.POLL_S)

    def close(self, keep):
        """Each step, whatever comes of those before it."""
        with contextlib.ExitStack() as steps:  # The last one that is named comes first.
            if not keep:
                steps.callback(shutil.rmtree, self.folder, ignore_errors=True)
            steps.callback(netns.run, ["umount", "--lazy", self.disk], check=False)
            if self.network is not None:
                steps.callback(self.network.close)
            if self.job is not None:
                steps.callback(self.job.close, keep)
            for process in self.busy:
                steps.callback(process.wait, netns.LIMIT_S)
                steps.callback(process.kill)
            steps.callback(self.stop_chaos)
