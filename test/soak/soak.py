#!/usr/bin/env python3
"""Eight workers on four hosts train while muster chaos disturbs them; everything that may never
happen is looked for.

  soak.py --minutes 60 --seed 1
  soak.py --minutes 30 --kinds pause --busy-loops 8     no false expulsion of the starved
  soak.py --judge FOLDER                                what was kept of a run, once more

The hosts are network namespaces with an sshd each: needs root, but for --judge. Exit code 0: no
hang, no State lost, no wrong bit, no leak, nobody lost without a cause, the record right, the world
whole again and fast enough. 77: it cannot run here.
"""

import argparse
import json
import signal
import sys
import time

import stage as stages
from stage import harness, netns  # In the other folder, which stage knows.

import audit
import kept
import verdict
import watch

# What is only noticed after a second or two is rare, as it is in earnest: a stop and each cut cost
# the world that long, whatever it does.
KINDS = ("kill:24,pause:24,stop:1,agent:2,reaper:2,descriptors:6,cut:1,hole:1,deaf:1,slow:4,"
         "discovery:8,leave:5,disk:4")
POLL_S = 0.1
AUDIT_S = 5.0
START_S = 60
FULL_AGAIN_S = 60
END_S = 60
QUIET_S_MAX = 60
SKIPPED = 77  # As ctest has it.


class Soak:
    def __init__(self, settings):
        self.settings = settings
        self.failures = []
        self.stage = stages.Stage(settings.step_ms, settings.busy_loops)
        self.watch = watch.Watch(self.stage.job.log.path)
        self.audit = audit.Audit(self.stage.job.token, self.stage.job.pid)
        self.audited = 0.0
        self.hung = False
        self.begin = self.end = 0.0

    # ---- the run

    def look(self):
        self.watch.read()
        now = time.monotonic()
        if now - self.audited > AUDIT_S:
            self.audited = now
            self.audit.sample(now)
        if self.stage.job.process.poll() is not None:
            self.failures.append(f"the job ended with {self.stage.job.process.returncode}: "
                                 + self.stage.job.last_line())
            return False
        if self.watch.last() and now - self.watch.last() > self.settings.hang:
            self.hung = True
            self.failures.append(f"no new step for {now - self.watch.last():.1f} s after step "
                                 f"{self.watch.step}")
            return False
        return not self.watch.wrong and not self.watch.lost

    def follow(self, done, limit_s):
        """Looks until done() is true; False if something has failed by then."""
        deadline = time.monotonic() + limit_s
        while not done():
            if not self.look():
                return False
            if time.monotonic() > deadline:
                self.failures.append(f"not within {limit_s:.0f} s: {done.__name__}")
                return False
            time.sleep(POLL_S)
        return True

    def run(self):
        def all_train():
            return self.watch.size == stages.WORKERS

        def all_train_again():
            return self.watch.full_since(self.end, stages.WORKERS)

        def chaos_is_over():
            return self.stage.chaos.poll() is not None

        minutes = self.settings.minutes
        quiet_until = [0.0]

        def quiet_time_is_over():
            return time.monotonic() > quiet_until[0]

        if not self.follow(all_train, START_S):
            return
        quiet_until[0] = time.monotonic() + min(QUIET_S_MAX, max(3.0, minutes * 6))
        if not self.follow(quiet_time_is_over, START_S + QUIET_S_MAX):
            return
        self.begin = time.monotonic()
        self.stage.start_chaos(self.chaos_options())
        going = self.follow(chaos_is_over, minutes * 60 + 60)
        self.end = time.monotonic()
        if going and self.stage.chaos.returncode != 0:
            self.failures.append(f"muster chaos ended with {self.stage.chaos.returncode}: "
                                 + self.stage.read("chaos.txt").strip().rsplit("\n", 1)[-1])
        if going and self.follow(all_train_again, FULL_AGAIN_S):
            self.finish()

    def chaos_options(self):
        settings = self.settings
        return ["--minutes", settings.minutes, "--every", settings.every, "--seed", settings.seed,
                "--kinds", settings.kinds, "--hook-max", settings.hold, "--keep", 2]

    def finish(self):
        code = self.stage.end(END_S)
        self.watch.read()
        if code != 0:
            self.failures.append(f"the job ended with {code}: {self.stage.job.last_line()}")
        left = self.stage.processes_left(harness.LEFTOVER_S)
        if left:
            self.failures.append("processes are left: " + ", ".join(
                f"{pid} {' '.join(harness.command_line(pid))[:80]}" for pid in left))
        files = self.audit.leftovers(self.stage.own_folders(), self.stage.disk)
        if files:
            self.failures.append("files are left: " + ", ".join(sorted(files)))

    # ---- what is left of it

    def keep(self):
        """Writes down what cannot be found out later, and changes no more."""
        self.stage.stop_chaos()
        if self.hung:
            self.stage.dump()
        self.failures += self.audit.leaks()
        kept.write_run(self.stage.folder, seed=self.settings.seed, begin=self.begin, end=self.end,
                       job_folder=self.stage.job.folder, seen=self.failures,
                       growth=self.audit.growth())


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kinds", default=KINDS, help="as muster chaos takes them")
    parser.add_argument("--every", type=float, default=1.8, help="seconds between events, mean")
    parser.add_argument("--hold", type=float, default=4, help="seconds a hook lasts at most")
    parser.add_argument("--step-ms", type=int, default=30, help="pause per step")
    parser.add_argument("--busy-loops", type=int, default=0)
    parser.add_argument("--hang", type=float, default=5, help="seconds without a new step")
    parser.add_argument("--goodput-min", type=float, default=0.8,
                        help="share of the undisturbed pace, and of that before the chaos")
    parser.add_argument("--full-min", type=float, default=0.4, help="share of time at full size")
    parser.add_argument("--small-max", type=float, default=20, help="seconds below full size")
    parser.add_argument("--skipped-max", type=float, default=0.1, help="share of events")
    parser.add_argument("--right-min", type=float, default=0.99, help="of the events of each kind")
    parser.add_argument("--judge", metavar="FOLDER", help="run nothing: judge what was kept")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a success too")
    return parser.parse_args()


def judge(folder, settings):
    """The exit code."""
    found = verdict.Verdict(kept.Kept(folder), settings, stages.WORKER, stages.WORKERS)
    found.show()
    if settings.json:
        with open(settings.json, "w", encoding="utf-8") as file:
            json.dump(found.report, file, indent=1)
    return 1 if found.failures else 0


def main():
    settings = parse()
    if settings.judge:
        try:
            return judge(settings.judge, settings)
        except FileNotFoundError as error:
            print(f"soak: nothing to judge: {error}", file=sys.stderr)
            return 2
    if netns.available():
        print(f"skipped: {netns.available()}")
        return SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    soak = Soak(settings)
    print(f"seed {settings.seed}, folder {soak.stage.folder}, job {soak.stage.job.folder}",
          flush=True)
    keep = True
    try:
        soak.run()
        soak.keep()
        code = judge(soak.stage.folder, settings)
        keep = settings.keep or code != 0
        return code
    finally:
        soak.stage.close(keep)


if __name__ == "__main__":
    sys.exit(main())
