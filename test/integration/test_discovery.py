"""User cases 1 to 4, 6 to 9 and 13: what a discovery script may do, and what a host list may say."""

import os
import shutil
import time
import unittest

import harness
from harness import GO


class EmptyList(harness.JobTest):
    """Case 1."""

    def check(self, empty):
        job = self.job(hosts="", np=2, min_np=2, max_np=4, args=["--elastic-timeout", 60],
                       worker={"steps": 20, "sleep_ms": 10})
        job.set_hosts(empty)
        job.wait_for(lambda: time.monotonic() > job.started + 3, "three seconds without hosts")
        self.assertEqual(job.events("spawn"), [])
        job.set_hosts("localhost:2")
        job.wait_size(2)
        self.assert_clean(job)
        self.assertNotIn("ssh", job.stderr())

    def test_nothing_means_no_hosts_now(self):
        self.check(b"")

    def test_blank_lines_mean_no_hosts_now(self):
        self.check(b"\n  \n\t\n   ")


class BadOutput(harness.JobTest):
    """Case 2."""

    def test_bad_poll_is_warned_about_and_skipped(self):
        job = self.job(hosts="localhost:2", min_np=1, max_np=4,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(2)
        generation = job.generation()
        for bad, named in ((b"localhost:abc\n", "localhost:abc"), (b"::1:4:x\n", "::1:4:x"),
                           (os.urandom(1 << 20), None)):
            before = job.stderr().count("\n")
            job.set_hosts(bad)
            job.wait_for(lambda n=before: job.stderr().count("\n") > n, f"a warning of {named}")
            if named:
                job.wait_for(lambda n=named: n in job.stderr(), f"a warning that names {named}")
            job.wait_more_steps(2)
        self.assertEqual(job.generation(), generation, job.report())
        self.assertEqual(job.stderr().count("localhost:abc"), 1, job.report())
        job.set_hosts("localhost:2\n127.0.0.1:1")
        job.wait_size(3)
        job.let_go()
        self.assert_clean(job)


class FailingScript(harness.JobTest):
    """Case 3."""

    def test_first_failure_ends_the_job(self):
        job = self.job(script=self.script("exit_seven", "echo no nodes here >&2; exit 7"))
        self.assert_clean(job, code=78, limit=10)
        self.assert_message(job, r"exit_seven.*7")
        self.assert_message(job, "no nodes here")

    def test_script_that_cannot_be_executed_ends_the_job(self):
        path = self.script("no_mode", "echo localhost:2")
        os.chmod(path, 0o644)
        job = self.job(script=path)
        self.assert_clean(job, code=78, limit=10)
        self.assert_message(job, r"no_mode.*permission")

    def test_later_failures_keep_the_last_list(self):
        job = self.job(hosts="localhost:2", min_np=1, max_np=4,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO},
                       script=self.script(
                           "sometimes", 'echo x >>"$HOSTS.calls"; '
                           '[ -e "$HOSTS.bad" ] && exit 1; cat "$HOSTS"'))
        job.wait_size(2)
        pids = {e.pid for e in job.world().values()}
        generation = job.generation()
        bad = job.hosts_file + ".bad"
        open(bad, "w", encoding="utf-8").close()
        calls = self.calls(job)
        job.wait_for(lambda: self.calls(job) >= calls + 4, "four bad polls")
        self.assertEqual(job.generation(), generation, job.report())
        job.set_hosts("localhost:2\n127.0.0.1:1")
        os.unlink(bad)
        job.wait_size(3)
        self.assert_same_pids(job, pids)
        job.let_go()
        self.assert_clean(job)

    @staticmethod
    def calls(job):
        with open(job.hosts_file + ".calls", encoding="utf-8") as file:
            return len(file.readlines())

    def script(self, name, body):
        folder = harness.tempfile.mkdtemp(prefix="muster-script-")
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{body}\n")
        os.chmod(path, 0o755)
        return path


class Interval(harness.JobTest):
    """Case 4."""

    def test_script_runs_all_along_and_never_twice_at_once(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1, max_np=2,
                       args=["--discovery-interval", 0.5], worker={"steps": 400, "sleep_ms": 20})
        # Replaced before the first reset could need it: the path is executed afresh each time.
        script = job.write_script(
            'date +%s.%N >>"$HOSTS.calls"; mkdir "$HOSTS.lock" || echo x >>"$HOSTS.overlap"; '
            'sleep 0.1; rmdir "$HOSTS.lock"; cat "$HOSTS"', "discover.new")
        os.rename(script, job.script)
        job.wait_size(2)
        job.kill(job.pid_of_rank(1))
        job.wait_size(1)
        job.wait_step(200)
        before = len(self.times(job))
        job.wait_for(lambda: len(self.times(job)) >= before + 4, "polls after a reset")
        self.assert_clean(job)
        times = self.times(job)
        gaps = sorted(b - a for a, b in zip(times, times[1:]))
        # The median: a single gap belongs to the machine.
        self.assertGreater(gaps[len(gaps) // 2], 0.25)
        self.assertLess(gaps[len(gaps) // 2], 0.75)
        self.assertFalse(os.path.exists(job.hosts_file + ".overlap"))
        time.sleep(1)
        self.assertEqual(len(self.times(job)), len(times), "polled after the end")

    @staticmethod
    def times(job):
        try:
            with open(job.hosts_file + ".calls", encoding="utf-8") as file:
                return [float(line) for line in file.read().split()]
        except FileNotFoundError:
            return []


class UnlistedAfterFailure(harness.JobTest):
    """Case 6."""

    def test_host_may_fail_leave_and_return_in_any_order(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1, max_np=2,
                       args=["--blame", "host"], worker={"steps": 60, "sleep_ms": 20,
                                                         "go_file": GO})
        job.wait_size(2)
        job.kill(job.pid_of_rank(1))
        job.wait_size(1)
        for hosts in ("localhost:1", "localhost:1\n127.0.0.1:1", "localhost:1"):
            seen = len(job.events("discovered"))
            job.set_hosts(hosts)
            job.wait_for(lambda n=seen: len(job.events("discovered")) > n, "a poll")
            job.wait_more_steps(3)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(len(job.events("init", host="127.0.0.1")), 1, job.report())


class ScheduledScript(harness.JobTest):
    """Case 7."""

    def test_script_is_a_symlink_in_a_folder_that_cannot_be_written(self):
        folder = harness.tempfile.mkdtemp(prefix="muster-mount-")
        self.addCleanup(shutil.rmtree, folder)
        self.addCleanup(os.chmod, folder, 0o755)
        for name, hosts in (("v1", "localhost:2"), ("v2", "localhost:2\necho 127.0.0.1:1")):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho {hosts}\n")
            os.chmod(path, 0o755)
        link = os.path.join(folder, "discover")
        os.symlink("v1", link)
        os.chmod(folder, 0o555)
        job = self.job(min_np=1, max_np=4, script=link,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(2)
        os.chmod(folder, 0o755)
        os.symlink("v2", link + ".new")
        os.rename(link + ".new", link)
        os.chmod(folder, 0o555)
        job.wait_size(3)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(sorted(os.listdir(folder)), ["discover", "v1", "v2"])


class ListsThatSayTheSame(harness.JobTest):
    """Case 13."""

    def check(self, first, second, polls):
        """Two forms of one list in turn; both make a world of three."""
        job = harness.Job(hosts=first, np=3, min_np=1, args=["--discovery-interval", 0.1],
                          worker={"steps": 20, "sleep_ms": 10, "go_file": GO})
        self.addCleanup(lambda: job.close(keep=self._failed()))
        other = os.path.join(job.folder, "other")
        with open(other, "wb") as file:
            file.write(second)
        job.write_script(f'printf . >>"$HOSTS.calls"; if [ -e "{job.folder}/turn" ]; then '
                         f'rm "{job.folder}/turn"; cat "$HOSTS"; '
                         f'else touch "{job.folder}/turn"; cat "{other}"; fi')
        job.start()
        job.wait_size(3)
        job.wait_for(lambda: os.path.getsize(job.hosts_file + ".calls") >= polls, "the polls")
        job.wait_more_steps(5)
        job.let_go()
        self.assert_clean(job)
        self.assertEqual(len(job.events("form")), 1, job.report())
        return job

    def test_blanks_line_ends_and_order_are_no_change(self):
        self.check(b"localhost:2\r\n 127.0.0.1:1 \n", b"127.0.0.1:1\nlocalhost:2\n", 20)

    def test_a_host_twice_has_the_larger_count_whatever_the_order(self):
        job = self.check(b"localhost:1\nlocalhost:3\n", b"localhost:3\nlocalhost:1\n", 20)
        warnings = [line for line in job.stderr().splitlines() if "twice" in line.lower()
                    or "larger" in line.lower()]
        self.assertEqual(len(warnings), 1, job.report())


class HostLists(harness.JobTest):
    """Cases 8 and 9."""

    def test_blank_instead_of_comma_is_explained(self):
        job = self.job(np=4, elastic=False, args=["-H", "localhost:1"],
                       command=["127.0.0.1:2", harness.WORKER])
        self.assert_clean(job, code=2, limit=10)
        self.assert_message(job, r"slots: found 1\b")
        self.assert_message(job, r"\b4\b")
        self.assert_message(job, r"localhost")
        self.assert_message(job, r"127\.0\.0\.1:2")

    def test_host_with_zero_slots_is_listed_and_unused(self):
        job = self.job(hosts="localhost:0\n127.0.0.1:2", min_np=1,
                       worker={"steps": 10, "sleep_ms": 5})
        self.assert_clean(job)
        self.assertEqual({e.host for e in job.events("init")}, {"127.0.0.1"})
        self.assertEqual(len(job.events("init")), 2)

    def test_host_without_slots_is_an_error_that_names_it(self):
        job = self.job(hosts="localhost:2\n127.0.0.1", min_np=1)
        self.assert_clean(job, code=78, limit=10)
        self.assert_message(job, r"127\.0\.0\.1")
        self.assert_message(job, r"slots-per-host")

    def test_slots_per_host_counts_for_hosts_without_slots(self):
        job = self.job(hosts="localhost:2\n127.0.0.1", np=5, min_np=1, max_np=5,
                       args=["--slots-per-host", 3], worker={"steps": 10, "sleep_ms": 5})
        self.assert_clean(job)
        entries = {(e.host, e.local_size) for e in job.logged("entry", size=5)}
        self.assertEqual(entries, {("localhost", 2), ("127.0.0.1", 3)})


if __name__ == "__main__":
    unittest.main(verbosity=2)
