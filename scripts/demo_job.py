"""The job of scripts/demo: starts it, changes the world around it, and says what happens."""

import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../test/integration"))

import harness  # noqa: E402  (needs the path above)

# Long enough for the story, whatever the machine: about half a minute.
EPOCHS = 20
STEP_MS = 25
# Training goes on undisturbed for so long between two scenes, for the reader's sake.
STEPS_BETWEEN = 100
COMMIT_EVERY = 5


class Story:
    def __init__(self):
        self.began = time.monotonic()

    def say(self, text):
        print(f"[{time.monotonic() - self.began:5.1f} s] {text}", flush=True)

    def show(self, job):
        world = job.world()
        names = ", ".join(f"rank {rank} on {e.host} (pid {e.pid})"
                          for rank, e in sorted(world.items()))
        self.say(f"    generation {job.generation()}, {len(world)} workers, step {job.max_step()}")
        self.say(f"    {names}")

    def train_on(self, job):
        job.wait_more_steps(STEPS_BETWEEN)
        losses = re.findall(r"epoch \d+: loss \S+", job.stdout())
        self.say(f"    ... training goes on: step {job.max_step()}, {losses[-1] if losses else ''}")


def milliseconds_to_step(job, survivors, generation, since):
    """From `since` to the first step that all survivors have finished in a newer generation."""
    first = {}
    for event in job.events("step"):
        if event.pid in survivors and event.generation > generation:
            first.setdefault(event.pid, event.t)
    return (max(first.values()) - since) * 1000 if set(first) == survivors else None


def start(story):
    job = harness.Job(
        hosts="localhost:2\n127.0.0.1:2", np=4, min_np=2, max_np=6,
        args=["--blacklist-cooldown-range", 1, 2],
        command=[harness.DIGITS, "--epochs", EPOCHS, "--step-ms", STEP_MS,
                 "--commit-every", COMMIT_EVERY])
    story.say("Training a small network on 1,797 pictures of digits, on two \"hosts\":")
    story.say("    horovodrun -np 4 --min-np 2 --max-np 6 --host-discovery-script discover.sh digits")
    story.say("    discover.sh prints localhost:2 and 127.0.0.1:2")
    job.start()
    job.wait_size(4)
    story.show(job)
    story.train_on(job)
    return job


def add_host(story, job):
    story.say("A third host turns up: discover.sh now prints 127.0.0.2:2 as well.")
    before = {e.pid for e in job.world().values()}
    job.set_hosts("localhost:2\n127.0.0.1:2\n127.0.0.2:2")
    job.wait_size(6)
    kept = before <= {e.pid for e in job.world().values()}
    story.say(f"The newcomers warmed up beside the others and joined at a commit; "
              f"the four old processes live on: {'yes' if kept else 'NO'}.")
    story.show(job)
    story.train_on(job)
    return kept


def kill_rank_0(story, job):
    world = job.world()
    generation = job.generation()
    survivors = {e.pid for rank, e in world.items() if rank != 0}
    story.say(f"kill -9 {world[0].pid}: rank 0, which coordinates and holds the state.")
    since = time.monotonic()
    job.kill(world[0].pid)
    took = job.wait_for(lambda: milliseconds_to_step(job, survivors, generation, since),
                        "a step of all survivors")
    story.say(f"All {len(survivors)} survivors finished their next step {took:.0f} ms after the "
              f"kill; rank 0 is now pid {job.pid_of_rank(0)}.")
    job.wait_size(6)
    story.say("After its back-off the empty slot was filled again:")
    story.show(job)
    story.train_on(job)
    return survivors <= {e.pid for e in job.world().values()}


def remove_host(story, job):
    story.say("Host 127.0.0.1 is to go: discover.sh no longer prints it.")
    job.set_hosts("localhost:2\n127.0.0.2:2")
    job.wait_size(4)
    hosts = {e.host for e in job.world().values()}
    story.say("Its workers left at a commit, so that no step was lost.")
    story.show(job)
    story.say("Training runs to its end ...")
    return "127.0.0.1" not in hosts


def finish(story, job):
    code = job.wait_exit(120)
    accuracy = [float(a) for a in re.findall(r"accuracy[ =:]+([01]\.\d+)", job.stdout())]
    story.say(f"The job ended: exit code {code}, "
              f"test accuracy {accuracy[-1] if accuracy else 'unknown'}.")
    left = harness.descendants_by_token(job.token)
    return code == 0 and bool(accuracy) and accuracy[-1] > 0.93 and not left


def main():
    story = Story()
    job = None
    good = False
    try:
        job = start(story)
        good = all([add_host(story, job), kill_rank_0(story, job), remove_host(story, job),
                    finish(story, job)])
    except AssertionError as error:
        print(error, file=sys.stderr)
    finally:
        if job is not None:
            job.close(keep=not good)
    story.say("The demo went as it should." if good else "The demo FAILED.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
