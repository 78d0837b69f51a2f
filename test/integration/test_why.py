"""`muster why` names who was lost, how, and what came of it."""

import json
import os
import signal
import stat
import subprocess

import harness
from harness import GO

THREE_HOSTS = "localhost:1\n127.0.0.1:1\n127.0.0.2:1"
# Each lost slot is filled again after a second.
COMES_BACK = ["--blacklist-cooldown-range", 1, 1]


def why(job, *args):
    return subprocess.run(
        [os.path.join(harness.BIN, "muster"), "why", *args], env=job.environment,
        capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)


def incidents(job):
    records = [json.loads(line) for line in why(job, "--json").stdout.splitlines()]
    return [r for r in records if r["record"] == "incident"]


def record_path(job):
    base = job.environment["MUSTER_INCIDENT_DIR"]
    [name] = os.listdir(base)
    return os.path.join(base, name, "incidents.jsonl")


class WhyTest(harness.JobTest):
    def start(self, **worker):
        job = self.job(hosts=THREE_HOSTS, np=3, min_np=1, max_np=3, args=COMES_BACK,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO, **worker})
        job.wait_size(3)
        return job

    def wait_full(self, job):
        generation = job.generation()
        job.wait_for(lambda: job.generation() > generation + 1 and job.size() == 3, "full again")

    def wait_losses(self, job, count):
        def losses():
            return [i for i in incidents(job) if i["kind"] == "loss"]
        job.wait_for(lambda: len(losses()) >= count, f"{count} losses in the record")
        return losses()


class ThreeWaysToGo(WhyTest):
    def test_each_is_told_with_rank_kind_and_remedy(self):
        job = self.start(die="127.0.0.2@40:7")
        exited = {e.host: e for e in job.world().values()}["127.0.0.2"]
        job.wait_for(lambda: job.logged("dies"), "the exit with 7")
        job.wait_for(lambda: job.size() == 3 and job.generation() >= 3, "full again")
        killed = job.world()[1]
        job.kill(killed.pid)
        self.wait_full(job)
        frozen = job.world()[2]
        job.kill(frozen.pid, signal.SIGSTOP)
        self.wait_full(job)

        losses = self.wait_losses(job, 3)
        self.assertIn("still runs", why(job).stdout)
        for loss, victim, fate in zip(losses, (exited, killed, frozen),
                                      ("exited", "killed", "frozen")):
            [told] = loss["victims"]
            self.assertEqual(
                (told["fate"], told["pid"], told["host"], told["rank"]),
                (fate, victim.pid, victim.host, victim.rank), loss)
            self.assertEqual(loss["outcome"], "runs", loss)
            self.assertEqual(loss["after"]["size"], 2, loss)
            self.assertTrue(loss["evidence"], loss)
        self.assertEqual(losses[0]["victims"][0]["code"], 7)
        self.assertEqual(losses[1]["victims"][0]["signal"], 9)
        self.assertFalse(losses[1]["victims"][0]["ended_by_muster"])

        job.let_go()
        self.assert_clean(job)
        told = why(job)
        self.assertEqual(told.returncode, 0, told.stderr)
        for text in (
                f"rank {exited.rank} on host 127.0.0.2 exited with code 7.",
                f"rank 1 on host {killed.host} was killed by signal 9 (SIGKILL).",
                f"rank 2 on host {frozen.host} was frozen: its process was stopped.",
                "dmesg", "SIGSTOP", "1 worker joined", "all workers are done",
                "It has ended with code 0"):
            self.assertIn(text, told.stdout)
        numbers = [i["number"] for i in incidents(job)]
        self.assertEqual(numbers, sorted(set(numbers)))


class TheDriverIsKilled(WhyTest):
    def test_it_is_told_with_the_rest_of_the_record(self):
        job = self.start()
        job.kill(job.world()[1].pid)
        self.wait_losses(job, 1)
        job.kill(job.pid)
        job.wait_exit()
        self.assert_no_process(job)
        with open(record_path(job), "a", encoding="utf-8") as file:
            file.write('{"record": "incident", "num')
        told = why(job)
        self.assertEqual(told.returncode, 0, told.stderr)
        for text in ("was killed by signal 9", "driver is gone without a word", "torn"):
            self.assertIn(text, told.stdout)


class WhereItIs(WhyTest):
    def test_modes_ids_and_errors(self):
        job = self.start()
        job.let_go()
        self.assert_clean(job)
        path = record_path(job)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
        name = os.path.basename(os.path.dirname(path))
        whole = why(job, name).stdout
        self.assertIn("all workers are done", whole)
        for other in (name[:6], path, os.path.dirname(path)):
            self.assertEqual(why(job, other).stdout, whole)
        unknown = why(job, "nosuchjob")
        self.assertEqual(unknown.returncode, 1)
        self.assertRegex(unknown.stderr, "^muster: no job nosuchjob .*" + name)

    def test_a_folder_that_cannot_be_made_costs_the_record_alone(self):
        job = self.job(hosts="localhost:2", np=2, min_np=1, worker={"steps": 10},
                       env={"MUSTER_INCIDENT_DIR": "/dev/null/jobs"})
        self.assert_clean(job)
        self.assertEqual(job.stderr().count("incidents are not kept"), 1, job.report())


if __name__ == "__main__":
    harness.main()
