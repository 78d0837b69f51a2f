"""Tests of the harness: that its judgements can fail, and fail for the right reason."""

import json
import os
import subprocess
import unittest

import harness


def world(generation, pids):
    return [{"event": "world", "generation": generation, "pid": pid, "rank": rank,
             "size": len(pids), "host": "localhost"} for rank, pid in enumerate(pids)]


def steps(generation, pids, numbers):
    return [{"event": "step", "generation": generation, "pid": pid, "step": n}
            for n in numbers for pid in pids]


def commit(generation, pids):
    return [{"event": "commit", "generation": generation, "pid": pid} for pid in pids]


class Judgement(harness.JobTest):
    def given(self, *events):
        job = harness.Job(command=["true"])
        self.addCleanup(lambda: job.close(keep=False))
        with open(job.trace.path, "w", encoding="utf-8") as file:
            for index, event in enumerate(sum(events, [])):
                file.write(json.dumps({"t_ns": index, **event}) + "\n")
        for path in (job.stdout_path, job.stderr_path):
            open(path, "w", encoding="utf-8").close()
        return job

    def test_going_on_from_the_last_commit_is_right(self):
        self.assert_commits_kept(self.given(
            world(1, [10, 11]), steps(1, [10, 11], [1, 2]), commit(1, [10, 11]),
            steps(1, [10, 11], [3]), world(2, [10]), steps(2, [10], [3, 4])))

    def test_repeating_a_committed_step_is_wrong(self):
        with self.assertRaisesRegex(AssertionError, "repeats a committed step"):
            self.assert_commits_kept(self.given(
                world(1, [10, 11]), steps(1, [10, 11], [1, 2]), commit(1, [10, 11]),
                world(2, [10]), steps(2, [10], [2])))

    def test_a_commit_of_one_survivor_alone_counts(self):
        with self.assertRaisesRegex(AssertionError, "repeats a committed step"):
            self.assert_commits_kept(self.given(
                world(1, [10, 11, 12]), steps(1, [10, 11, 12], [1]), commit(1, [10, 11, 12]),
                steps(1, [10, 11, 12], [2]), commit(1, [11]),
                world(2, [10, 11]), steps(2, [10, 11], [2])))

    def test_a_commit_of_the_lost_alone_does_not_count(self):
        self.assert_commits_kept(self.given(
            world(1, [10, 11]), steps(1, [10, 11], [1]), commit(1, [10, 11]),
            steps(1, [10, 11], [2]), commit(1, [11]), world(2, [10]), steps(2, [10], [2])))

    def test_leaving_a_step_out_is_wrong(self):
        with self.assertRaisesRegex(AssertionError, "leaves a step out"):
            self.assert_commits_kept(self.given(
                world(1, [10]), steps(1, [10], [1, 2]), world(2, [10]), steps(2, [10], [4])))

    def test_a_gap_within_a_generation_is_wrong(self):
        with self.assertRaises(AssertionError):
            self.assert_commits_kept(self.given(world(1, [10]), steps(1, [10], [1, 3])))

    def test_size_counts_only_a_world_in_which_all_have_stepped(self):
        job = self.given(world(1, [10, 11]), steps(1, [10, 11], [1]), world(2, [10, 11, 12]),
                         steps(2, [10, 11], [2]))
        self.assertEqual(job.size(), 0)
        self.assertEqual(job.generation(), 2)
        with open(job.trace.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"t_ns": 99, **steps(2, [12], [2])[0]}) + "\n")
        self.assertEqual(job.size(), 3)

    def test_half_a_line_waits_for_the_rest(self):
        job = self.given(steps(1, [10], [1]))
        with open(job.trace.path, "a", encoding="utf-8") as file:
            file.write('{"t_ns": 5, "event": "st')
            file.flush()
            self.assertEqual(len(job.events()), 1)
            file.write('ep", "step": 2}\n')
        self.assertEqual(job.max_step(), 2)


class Leftovers(harness.JobTest):
    def test_a_child_that_left_the_session_is_found_and_ended(self):
        job = harness.Job(command=["true"])
        child = subprocess.Popen(["sleep", "600"], env=job.environment, start_new_session=True)
        self.assertEqual(harness.descendants_by_token(job.token), [child.pid])
        for path in (job.stdout_path, job.stderr_path):
            open(path, "w", encoding="utf-8").close()
        with self.assertRaisesRegex(AssertionError, "sleep 600"):
            self.assert_no_process(job, within=0)
        job.close(keep=False)
        child.wait(10)
        self.assert_no_process(job)
        self.assertFalse(os.path.exists(job.folder))

    def test_the_harness_does_not_find_itself(self):
        job = harness.Job(command=["true"])
        self.addCleanup(lambda: job.close(keep=False))
        self.assertEqual(harness.descendants_by_token(job.token), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
