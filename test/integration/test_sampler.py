"""User case 48: in a job that loses, drops and takes in workers, each sample of an epoch goes into
exactly one step that counts."""

import os
import unittest

import harness
from harness import GO

PROGRAM = os.path.join(harness.BIN, "test_sampler")
THREE_HOSTS = ("localhost:1", "127.0.0.1:1", "127.0.0.2:1")
# A slot comes back soon, so that each event is over before the next.
COOLDOWN = ["--blacklist-cooldown-range", 1, 1]
SAMPLES, BATCH, COMMIT_EVERY = 1000, 4, 5


def attempts_by_step(events):
    """step -> the attempts at it, in order, each as long as its world. A loss may leave the log of
    one incomplete; the last one of a step is the one that counts."""
    attempts = {}
    for event in events:
        of_step = attempts.setdefault(event.step, [[]])
        if any(e.rank == event.rank or e.size != event.size for e in of_step[-1]):
            of_step.append([])
        of_step[-1].append(event)
    return attempts


def faults_of_epoch(steps, samples):
    """What is wrong with the steps that count in one epoch; each is a list of the ranks' batches."""
    used = []
    for batches in steps:
        if len(used) >= samples:
            return ["a step after the last sample"]
        if len({len(batch) for batch in batches}) != 1:
            return [f"batches of different lengths: {batches}"]
        used += [sample for of_round in zip(*batches) for sample in of_round]
    padding = used[samples:]
    faults = []
    if sorted(used[:samples]) != list(range(samples)):
        faults.append("not each sample once")
    if padding != used[:len(padding)]:
        faults.append(f"padding {padding}, but the head is {used[:len(padding)]}")
    if len(padding) >= len(steps[-1]):
        faults.append(f"{len(padding)} of padding in a world of {len(steps[-1])}")
    return faults


class Judge(unittest.TestCase):
    """It finds what it is there to find."""

    def test_it_accepts_an_epoch_with_padding(self):
        self.assertEqual(faults_of_epoch([[[2, 0], [1, 3]], [[4], [2]]], 5), [])

    def test_it_sees_a_sample_twice(self):
        self.assertTrue(faults_of_epoch([[[2, 0], [1, 2]], [[4], [2]]], 5))

    def test_it_sees_a_sample_left_out(self):
        self.assertTrue(faults_of_epoch([[[2, 0], [1, 3]]], 5))

    def test_it_sees_too_much_padding(self):
        self.assertTrue(faults_of_epoch([[[0, 2], [1, 0]], [[1], [2]]], 3))

    def test_it_sees_padding_from_elsewhere(self):
        self.assertTrue(faults_of_epoch([[[2, 0], [1, 3]], [[4], [0]]], 5))


class EachSampleOnce(harness.JobTest):
    """Case 48."""

    def train(self, hosts=THREE_HOSTS):
        job = self.job(hosts="\n".join(hosts), np=3, min_np=1, max_np=3, args=COOLDOWN,
                       program=PROGRAM,
                       worker={"samples": SAMPLES, "batch": BATCH, "commit_every": COMMIT_EVERY,
                               "go_file": GO})
        job.wait_size(3)
        return job

    def kill(self, job, rank):
        generation = job.generation()
        job.kill(job.pid_of_rank(rank))
        job.wait_for(lambda: job.generation() > generation and job.size() > 0, "a newer world")

    def finish(self, job):
        """Returns how many attempts at a step there were that do not count."""
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        attempts = attempts_by_step(job.logged("batch"))
        counting = [attempts[step][-1] for step in sorted(attempts)]
        self.assertEqual(sorted(attempts), list(range(1, len(attempts) + 1)))
        epochs = {}
        for of_step in counting:
            ordered = sorted(of_step, key=lambda event: event.rank)
            self.assertEqual([e.rank for e in ordered], list(range(ordered[0].size)), job.report())
            epochs.setdefault(ordered[0].epoch, []).append([e.samples for e in ordered])
        self.assertGreaterEqual(len(epochs), 3)
        for epoch, steps in epochs.items():
            self.assertEqual(faults_of_epoch(steps, SAMPLES), [], f"epoch {epoch}\n{job.report()}")
        return sum(len(found) - 1 for found in attempts.values())

    def test_a_loss_a_return_a_leave_and_an_arrival(self):
        job = self.train()
        job.wait_step(13)
        self.kill(job, 1)
        job.wait_size(3)
        job.wait_more_steps(20)
        job.set_hosts("\n".join(THREE_HOSTS[:2]))
        job.wait_size(2)
        job.wait_more_steps(20)
        job.set_hosts("\n".join(THREE_HOSTS))
        job.wait_size(3)
        job.wait_more_steps(20)
        repeated = self.finish(job)
        # At most what was done since a commit, and only the kill sends anybody back.
        self.assertLessEqual(repeated, COMMIT_EVERY, job.report())

    def test_rank_0_is_lost_again_and_again(self):
        job = self.train()
        for _ in range(3):
            job.wait_more_steps(COMMIT_EVERY + 2)
            self.kill(job, 0)
            job.wait_size(3)
        repeated = self.finish(job)
        self.assertLessEqual(repeated, 3 * COMMIT_EVERY, job.report())


if __name__ == "__main__":
    harness.main()
