"""User cases 69 to 74: what the workers say, where it goes, and what the launcher says of their end."""

import glob
import os
import re
import signal
import subprocess
import sys
import unittest

import harness
from harness import GO

FULL = os.environ.get("MUSTER_TEST_FULL") == "1"
# So long that a lost slot stays empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
# Writes numbered lines to both streams, in pieces that do not heed the lines. argv: lines, longest.
TALKER = """
import os, random, sys
rank = os.environ["HOROVOD_RANK"]
chance = random.Random(int(rank))
waiting = {1: b"", 2: b""}
for i in range(int(sys.argv[1])):
    for stream in waiting:
        filling = "".join(chance.choices("abcdefgh <>:[]", k=chance.randrange(int(sys.argv[2]))))
        waiting[stream] += f"R{rank}-{i}-{stream}-{filling}-E\\n".encode()
        while len(waiting[stream]) > 2000:
            size = chance.randrange(1, 2000)
            waiting[stream] = waiting[stream][os.write(stream, waiting[stream][:size]):]
for stream, rest in waiting.items():
    while rest:
        rest = rest[os.write(stream, rest):]
"""
SAID = re.compile(r"^\[(\d+)\]<(stdout|stderr)>:pid (\d+) rank (\d+) step (\d+)\.$")


class OutputTest(harness.JobTest):
    def python(self, program, *words, np=1, args=(), **options):
        return self.job(np=np, elastic=False, args=["-H", f"localhost:{np}", *args],
                        command=[sys.executable, "-c", program, *words], **options)

    def shell(self, program, **options):
        """A worker that never calls init(): what it says is all that matters."""
        return self.job(np=1, elastic=False, command=["sh", "-c", program], **options)

    def elastic(self, **options):
        """Two hosts; rank 0 is killed, so that the other's rank changes, and one comes again."""
        job = self.job(hosts="localhost:1\n127.0.0.1:1\n127.0.0.2:1", np=3, min_np=1, max_np=3,
                       worker={"steps": 60, "sleep_ms": 10, "go_file": GO, "say": 1},
                       args=["--blacklist-cooldown-range", 1, 1, *options.pop("args", ())],
                       **options)
        job.wait_size(3)
        job.wait_more_steps(30)
        job.kill(job.pid_of_rank(0))
        job.wait_size(2)
        job.wait_more_steps(30)
        job.wait_size(3)
        job.wait_more_steps(30)
        job.let_go()
        self.assert_clean(job)
        return job


class Lines(OutputTest):
    """Case 69."""

    def test_none_is_torn_mixed_or_out_of_order(self):
        workers, lines = 8, 5000 if FULL else 300
        job = self.python(TALKER, str(lines), "3000" if FULL else "1000", np=workers)
        self.assert_clean(job, limit=300)
        for name, text in (("stdout", job.stdout()), ("stderr", job.stderr())):
            seen = {rank: [] for rank in range(workers)}
            for line in text.splitlines():
                found = re.fullmatch(
                    rf"\[(\d)\]<{name}>:R(\d)-(\d+)-(\d)-[a-h <>:\[\]]*-E", line)
                self.assertTrue(found, line[:300])
                rank, writer, number, stream = map(int, found.groups())
                self.assertEqual((rank, stream), (writer, 1 if name == "stdout" else 2), line[:80])
                seen[rank].append(number)
            for rank, numbers in seen.items():
                self.assertEqual(numbers, list(range(lines)), f"rank {rank} on {name}")

    def test_the_prefix_follows_the_rank(self):
        job = self.elastic()
        tags = {}
        for line in job.stdout().splitlines():
            found = SAID.match(line)
            self.assertTrue(found, line)
            tag, _, pid, rank, step = found.groups()
            tags.setdefault((int(pid), int(rank)), []).append((int(step), int(tag)))
        survivor = job.pid_of_rank(0)
        ranks = sorted(rank for pid, rank in tags if pid == survivor)
        self.assertEqual(ranks, [0, 1], "its rank has changed")
        for (_, rank), said in tags.items():
            # A line is tagged when it is read: at the change some are still on their way.
            steady = [tag for _, tag in said[10:-10]]
            self.assertTrue(steady)
            self.assertEqual(set(steady), {rank}, job.report())


class Late(OutputTest):
    """Case 70."""

    def wait_said(self, job, text):
        job.wait_for(lambda: text in job.stdout(), f"{text!r} on standard output")

    def test_a_line_is_there_while_its_writer_lives(self):
        job = self.shell('echo early; while [ ! -e go ]; do sleep 0.05; done')
        self.wait_said(job, "[0]<stdout>:early\n")
        self.assertTrue(job.running())
        job.let_go()
        self.assert_clean(job)

    def test_nothing_that_was_written_before_a_crash_is_lost(self):
        job = self.shell('printf a; while [ ! -e go ]; do sleep 0.05; done; '
                         'printf "b\\rc"; kill -SEGV $$')
        job.wait_for(lambda: job.events("spawn"), "the worker")
        job.let_go()
        self.assert_clean(job, code=139)
        said = re.sub(r"\[0\]<stdout>:", "", job.stdout())
        self.assertEqual(said, "ab\nc\n", job.report())

    def test_a_reader_that_goes_away_harms_nobody(self):
        job = harness.Job(np=2, elastic=False, args=["-H", "localhost:2"],
                          worker={"steps": 200, "sleep_ms": 5, "plain": 1, "commit_every": 0,
                                  "say": 1})
        self.addCleanup(lambda: job.close(keep=self._failed()))
        job.argv = ["sh", "-c", '"$@" | head -1; exit 0', "sh"] + job.argv
        job.start()
        self.assert_clean(job)
        self.assertEqual(len(job.stdout().splitlines()), 1)
        self.assertEqual([e.code for e in job.events("finish")], [0], job.report())
        self.assert_finished(job, 200)


class Timestamps(OutputTest):
    """Case 71. Lines of the launcher's own log always carry the time; its last line never does."""

    WITHOUT = r"^\[0\]<std(out|err)>:said$"
    WITH = r"^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<std(out|err)>:said$"

    def check(self, args, pattern, elastic):
        job = self.job(np=1, min_np=1 if elastic else None, hosts="localhost:1", elastic=elastic,
                       args=args, command=["sh", "-c", "echo said; echo said >&2; exit 3"])
        self.assertEqual(job.wait_exit(), 3, job.report())
        lines = job.stdout().splitlines() + [
            line for line in job.stderr().splitlines() if "[0]<" in line]
        self.assertGreaterEqual(len(lines), 2, job.report())
        for line in lines:
            self.assertRegex(line, pattern)
        self.assertRegex(job.last_line(), "^muster: ")

    def test_are_off(self):
        for elastic in (False, True):
            self.check([], self.WITHOUT, elastic)

    def test_are_on_with_the_flag(self):
        for elastic in (False, True):
            self.check(["--prefix-output-with-timestamp"], self.WITH, elastic)


class Files(OutputTest):
    """Case 72."""

    def test_every_line_of_every_life_is_in_one_file(self):
        job = self.elastic(args=["--output-filename", "out"])
        said = {}
        for name in ("stdout", "stderr"):
            for path in glob.glob(os.path.join(job.folder, "out", "*", name)):
                with open(path, encoding="utf-8") as file:
                    for line in file.read().splitlines():
                        found = re.fullmatch(r"pid (\d+) rank \d+ step (\d+)\.", line)
                        if found:
                            said.setdefault((name, int(found.group(1))), []).append(
                                int(found.group(2)))
                        else:
                            self.assertEqual(name, "stderr", line)
        lives = {e.pid for e in job.events("init")}
        self.assertEqual(len(lives), 4, job.report())
        for pid in lives:
            steps = [e.step for e in job.logged("step", pid=pid)]
            for name in ("stdout", "stderr"):
                got = said[name, pid]
                # What was killed may have logged a step that it did not come to say.
                self.assertIn(got, (steps, steps[:-1]), f"{name} of {pid}")

    def test_a_folder_that_cannot_be_made_is_told_at_the_start(self):
        job = self.job(np=1, elastic=False, args=["--output-filename", "/proc/nowhere/out"],
                       command=["true"])
        code = job.wait_exit(10)
        self.assertNotEqual(code, 0)
        self.assert_message(job, "/proc/nowhere/out")
        self.assertEqual(job.events("spawn"), [])


class FirstCause(OutputTest):
    """Cases 73 and 74: the code and the name of what failed first, on the last line."""

    def static(self, np, **worker):
        return self.job(np=np, elastic=False, args=["-H", f"localhost:{np}", "--grace", 2],
                        worker=dict({"steps": 5000, "sleep_ms": 10, "plain": 1,
                                     "commit_every": 0}, **worker))

    def test_an_exit_code_is_passed_on(self):
        job = self.static(2, die="1@10:3")
        self.assert_clean(job, code=3)
        self.assertRegex(job.last_line(), r"rank 1 on host localhost exited with code 3\b")

    def test_a_kill_from_outside_is_told(self):
        job = self.static(2)
        job.wait_step(5)
        job.kill(job.events("init", rank=1)[0].pid)
        self.assert_clean(job, code=137)
        self.assertRegex(job.last_line(), r"rank 1 on host localhost .*signal 9\b")

    def test_the_launchers_own_end_is_told(self):
        job = self.static(2)
        job.wait_step(5)
        job.kill(job.pid, signal.SIGTERM)
        self.assert_clean(job, code=143)
        self.assertRegex(job.last_line(), r"SIGTERM|signal 15")

    def test_of_two_failures_the_earlier_one_counts(self):
        job = self.static(3, die="1@10:5,2@10:6", hang="2@10:100,0@10:60000")
        self.assert_clean(job, code=5)
        self.assertRegex(job.last_line(), r"rank 1\b.*code 5\b")

    def test_a_crash_is_not_taken_for_the_errors_that_it_causes(self):
        job = self.static(4, die="3@10:SEGV")
        self.assert_clean(job, code=139)
        self.assertRegex(job.last_line(), r"rank 3\b.*signal 11\b.*3 other workers were stopped")
        told = subprocess.run([os.path.join(harness.BIN, "muster"), "why"], check=False,
                              env=job.environment, capture_output=True, text=True,
                              timeout=harness.LIMIT_S)
        pid = job.logged("dies")[0].pid
        self.assertRegex(told.stdout, rf"rank 3 on host localhost.*pid {pid}\b", told.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
