"""Follows what the workers of a soak write: is State wrong or lost, how fast does the world go?"""

import array
import bisect
import json
import statistics
import subprocess

# Around an event the world is disturbed from its beginning until so long after its end.
AFTER_EVENT_S = 1.0
WINDOW_S = 20
WINDOW_STEPS = 20


class Watch:
    """Of the log of test_soak_worker. A step counts once, when the first rank has committed it."""

    def __init__(self, path):
        self.path = path
        self.offset = 0
        self.lines = 0
        self.digests = {}  # step -> digest, of whoever was first
        self.wrong = []
        self.entries = 0
        self.lost = []  # Sentences: commits that were held and are not any more.
        self._own = {}  # (host, pid) -> the newest step that it has committed
        self._writers = {}  # host -> (times, pids) of its lines
        self.step = 0
        self.size = 0
        self.times = array.array("d")  # of each new step, CLOCK_MONOTONIC
        self.sizes = array.array("B")

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        for line in data[:whole].splitlines():
            self._take(json.loads(line))

    def _take(self, event):
        step = event.get("step")
        if step is None:
            return
        self.lines += 1
        known = self.digests.setdefault(step, event["digest"])
        if known != event["digest"]:
            self.wrong.append(event)
        self._ask_if_lost(event, step)
        times, pids = self._writers.setdefault(event["host"], (array.array("d"), array.array("l")))
        times.append(event["t_ns"] / 1e9)
        pids.append(event["pid"])
        if event["event"] == "step" and step > self.step:
            self.step = step
            self.size = event["size"]
            self.times.append(event["t_ns"] / 1e9)
            self.sizes.append(event["size"])

    def _ask_if_lost(self, event, step):
        """Whoever has committed a step goes on from there at the least, whatever the world is. The
        others may not have heard of the newest step, if all who had told of it died; but they hold
        the one before it, or it could not have been done. A step stands in the file after those
        that all members have written of the step before; so only ranks of a world that has gone
        back write of one that is not the newest. A world whose ranks differ has wrong digests."""
        who = (event["host"], event["pid"])
        if event["event"] == "entry":
            self.entries += 1
            least = max(self.step - 1, self._own.get(who, 0))
        else:
            least = self.step
        if step < least:
            self.lost.append(f"worker {event['pid']} on {event['host']}: {event['event']} at step "
                             f"{step} after step {max(self.step, least)} was committed")
        if event["event"] == "step":
            self._own[who] = step

    def members(self, host, at):
        """The pids of the world on this host: each of its members has written since the first one
        wrote of the step before the last."""
        known = bisect.bisect_right(self.times, at)
        since = self.times[max(known - 2, 0)] if known else 0.0
        times, pids = self._writers.get(host, ((), ()))
        return set(pids[bisect.bisect_left(times, since):bisect.bisect_right(times, at)])

    def last(self):
        return self.times[-1] if self.times else 0.0

    def replay(self, program):
        """Compares all that was seen with a run that nobody has disturbed."""
        done = subprocess.run([program, "--replay", str(max(self.digests, default=0))],
                              capture_output=True, text=True, timeout=600, check=True)
        right = done.stdout.split()
        for step, digest in self.digests.items():
            if right[step] != digest:
                self.wrong.append({"step": step, "digest": digest, "right": right[step]})

    # ---- how fast

    def longest(self, count, since=0.0):
        """The longest times without a new step, as (seconds, when they began)."""
        gaps = [(b - a, a) for a, b in zip(self.times, self.times[1:]) if a >= since]
        return sorted(gaps, reverse=True)[:count]

    def steps_between(self, begin, end):
        return sum(begin <= t <= end for t in self.times)

    def full_since(self, at, full_size):
        """Whether a world of full size has done a step later than that."""
        return any(size == full_size and t > at
                   for t, size in zip(self.times[-WINDOW_STEPS:], self.sizes[-WINDOW_STEPS:]))

    def small_times(self, begin, end, full_size):
        """(seconds, when it began) of each time at less than full size. Between two steps the world
        counts as full if both were done at full size."""
        steps = [(begin, 0), *((t, size) for t, size in zip(self.times, self.sizes)
                               if begin < t < end), (end, 0)]
        # What is cut off at both ends belongs to the first step after it, and the last before.
        if len(steps) > 2:
            steps[0], steps[-1] = (begin, steps[1][1]), (end, steps[-2][1])
        spans = []
        for (since, before), (until, after) in zip(steps, steps[1:]):
            if before == after == full_size:
                continue
            if spans and spans[-1][1] == since:
                spans[-1][1] = until
            else:
                spans.append([since, until])
        return [(until - since, since) for since, until in spans]

    def undisturbed_steps(self, spans, full_size):
        """(when it began, how long it took) of each step at full size outside of the spans in which
        something happened."""
        spans = sorted(spans)
        steps = []
        at = 0
        for i, (begin, end) in enumerate(zip(self.times, self.times[1:])):
            while at < len(spans) and spans[at][1] + AFTER_EVENT_S < begin:
                at += 1
            disturbed = any(span[0] <= end for span in spans[at:at + 4])
            if not disturbed and self.sizes[i + 1] == full_size == self.sizes[i]:
                steps.append((begin, end - begin))
        return steps

    def goodput(self, undisturbed, begin, end):
        """Committed steps x undisturbed step time / wall time, with the median step of the same
        WINDOW_S: others may take the cores for a while, and that is no fault of the job. A window
        with too few undisturbed steps takes the median of all."""
        if not undisturbed or end <= begin:
            return 0.0
        overall = statistics.median(length for _, length in undisturbed)
        of_window, steps = {}, {}
        for at, length in undisturbed:
            of_window.setdefault(int((at - begin) // WINDOW_S), []).append(length)
        for t in self.times:
            if begin <= t <= end:
                window = int((t - begin) // WINDOW_S)
                steps[window] = steps.get(window, 0) + 1
        good = 0.0
        for window, count in steps.items():
            near = of_window.get(window, [])
            good += count * (statistics.median(near) if len(near) >= WINDOW_STEPS else overall)
        return good / (end - begin)
