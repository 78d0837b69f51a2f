"""User cases 58 and 126: the processes of a worker, what they inherit, and that none outlives it."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import unittest

import harness
from harness import GO

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"
# A shell around the worker, which does not pass signals on, and a helper in a session of its own.
WRAPPED = ["sh", "-c", 'setsid sleep 999 & "$@" & wait $!', "sh", harness.WORKER]
STAYS = {"steps": 60, "sleep_ms": 20, "go_file": GO}
# Tells on standard output what is open, but for the descriptor that it looks with.
LIST_OPEN = """
import os
with os.scandir("/proc/self/fd") as entries:
    numbers = sorted(int(entry.name) for entry in entries)
for number in numbers:
    try:
        print(number, os.readlink(f"/proc/self/fd/{number}"))
    except FileNotFoundError:
        pass
"""


def processes_of_host(job, host):
    """Command lines of all that carries the environment of a worker of this host."""
    found = {}
    for pid in harness.descendants_by_token(job.token):
        if f"MUSTER_HOST={host}".encode() in harness.process_environment(pid).split(b"\0"):
            found[pid] = " ".join(harness.command_line(pid)[:2])
    return found


class Wrapped(harness.JobTest):
    """Case 58."""

    def start(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2,
                       args=["--grace", 2], command=WRAPPED, worker=STAYS)
        job.wait_size(2)
        for host in ("localhost", "127.0.0.1"):
            found = processes_of_host(job, host)
            self.assertEqual(len(found), 3, f"shell, helper and worker: {found}")
            self.assertIn("sleep 999", found.values())
        return job

    def test_normal_end(self):
        job = self.start()
        job.let_go()
        self.assert_clean(job)
        self.assert_finished(job, job.max_step())

    def test_removal_of_the_host(self):
        job = self.start()
        survivor = job.pid_of_rank(0)
        job.set_hosts("localhost:1")
        job.wait_size(1)
        job.wait_for(lambda: not processes_of_host(job, "127.0.0.1"), "the end of all of them")
        self.assert_same_pids(job, [survivor])
        self.assertEqual(len(processes_of_host(job, "localhost")), 3)
        job.let_go()
        self.assert_clean(job)

    def test_stop(self):
        job = self.start()
        job.kill(job.pid, signal.SIGTERM)
        self.assert_clean(job, code=143)

    def test_interrupt_from_a_terminal(self):
        try:
            master, slave = pty.openpty()
        except OSError as error:
            self.skipTest(f"this machine gives no terminal (is /dev/pts mounted?): {error}")
        self.addCleanup(os.close, master)
        job = harness.Job(hosts="localhost:2", np=2, min_np=1, args=["--grace", 2],
                          command=WRAPPED, worker=STAYS)
        self.addCleanup(lambda: job.close(keep=self._failed()))

        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            harness.die_with_the_harness()

        job.started = harness.time.monotonic()
        with open(job.stdout_path, "wb") as out, open(job.stderr_path, "wb") as err:
            job.process = subprocess.Popen(job.argv, cwd=job.folder, env=job.environment,
                                           stdin=slave, stdout=out, stderr=err,
                                           preexec_fn=take_terminal)
        os.close(slave)
        job.wait_size(2)
        os.write(master, b"\x03")
        self.assert_clean(job, code=130)


class Starts(harness.JobTest):
    """Case 126."""

    def test_a_worker_inherits_its_three_streams_only(self):
        job = self.job(np=4, elastic=False, args=["-H", "localhost:2,127.0.0.1:2"],
                       command=[sys.executable, "-c", LIST_OPEN])
        self.assert_clean(job)
        for rank in range(4):
            said = [line.split(":", 1)[1] for line in job.stdout().splitlines()
                    if line.startswith(f"[{rank}]<stdout>:")]
            self.assertEqual([line.split()[0] for line in said], ["0", "1", "2"], said)
            self.assertEqual(said[0], "0 /dev/null")

    def test_many_short_workers(self):
        count = 500 if FULL else 60
        job = self.job(np=count, elastic=False,
                       args=["-H", f"localhost:{count // 2},127.0.0.1:{count - count // 2}"],
                       command=["true"])
        self.assert_clean(job, limit=120)
        self.assertEqual([e.code for e in job.events("reaped")], [0] * count)


if __name__ == "__main__":
    unittest.main(verbosity=2)
