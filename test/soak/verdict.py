"""Judges a soak by what is kept of it: at its end, or later (soak.py --judge FOLDER)."""

import statistics

import incident_check
import watch


def _median(values):
    values = list(values)
    return statistics.median(values) if values else 0.0


class Verdict:
    """failures: sentences; report: the figures. `limits` are the options of soak.py."""

    def __init__(self, kept, limits, worker, full_size):
        self.kept = kept
        self.failures = list(kept.seen)
        self.watch = watch.Watch(kept.log)
        self.watch.read()
        self.watch.replay(worker)
        self.full_size = full_size
        self._judge_states()
        self._judge_record(limits)
        self._judge_pace(limits)
        self._judge_size(limits)
        self._judge_chaos(limits)
        self._judge_end()
        self.report = self._figures()

    def _judge_states(self):
        if self.watch.wrong:
            self.failures.append(f"{len(self.watch.wrong)} states are wrong, the first is "
                                 f"{self.watch.wrong[0]}")
        if self.watch.lost:
            self.failures.append(f"committed State was lost {len(self.watch.lost)} times, first: "
                                 f"{self.watch.lost[0]}")

    def _judge_record(self, limits):
        found = incident_check.Findings(self.kept.chaos, self.kept.record, self.watch.members)
        self.events, self.wrong, self.unexplained = found.events, found.wrong, found.unexplained
        self.judged, self.right = found.judged, found.right()
        for kind, right in self.right.items():
            if right < limits.right_min:
                self.failures.append(f"the record is right about {right:.2%} of the events of kind "
                                     f"{kind} only")
        if self.unexplained:
            self.failures.append(f"{len(self.unexplained)} workers were lost and nobody had done "
                                 f"it, the first is {self.unexplained[0]}")

    def _judge_end(self):
        ends = [line for line in self.kept.record if line.get("kind") == "end"]
        if not ends:
            self.failures.append("the record does not tell of the job's end")
        elif ends[-1]["exit_code"] != 0:
            self.failures.append(f"the job ended with {ends[-1]['exit_code']}: {ends[-1]['cause']}")

    def _judge_pace(self, limits):
        begin, end = self.kept.begin, self.kept.end
        self.gaps = self.watch.longest(10)
        if self.gaps and self.gaps[0][0] > limits.hang:
            self.failures.append(f"no new step for {self.gaps[0][0]:.1f} s")
        spans = [(e.fields["t_ns"] / 1e9, e.fields.get("end_ns", e.fields["t_ns"]) / 1e9)
                 for e in self.events]
        steps = self.watch.undisturbed_steps(spans, self.full_size)
        self.undisturbed = [(at, length) for at, length in steps if begin <= at <= end]
        self.goodput = self.watch.goodput(self.undisturbed, begin, end)
        if self.goodput < limits.goodput_min:
            self.failures.append(f"the goodput is {self.goodput:.1%}")
        # What became slow and stayed so shows only against the time before the first event.
        self.quiet_step_s = _median(length for at, length in steps if at + length < begin)
        self.steps = self.watch.steps_between(begin, end)
        self.goodput_by_quiet = self._goodput_by(self.quiet_step_s)
        if self.goodput_by_quiet < limits.goodput_min:
            self.failures.append(f"the goodput is {self.goodput_by_quiet:.1%} of the pace before "
                                 "the chaos")

    def _goodput_by(self, step_s):
        wall = self.kept.end - self.kept.begin
        return self.steps * step_s / wall if wall > 0 else 0.0

    def _judge_size(self, limits):
        begin, end = self.kept.begin, self.kept.end
        small = self.watch.small_times(begin, end, self.full_size)
        self.longest_small_s, since = max(small, default=(0.0, begin))
        self.full_share = 1 - sum(s for s, _ in small) / (end - begin) if end > begin else 0.0
        if self.full_share < limits.full_min:
            self.failures.append(f"the world was whole for {self.full_share:.1%} of the time only")
        if self.longest_small_s > limits.small_max:
            self.failures.append(f"for {self.longest_small_s:.1f} s from {since - begin:.1f} s on "
                                 "the world was not whole")
        if not self.watch.full_since(end, self.full_size):
            self.failures.append("no step at full size after the end of the chaos")

    def _judge_chaos(self, limits):
        outcomes = [fields["outcome"] for fields in self.kept.chaos]
        self.skipped = outcomes.count("skipped")
        if self.skipped > limits.skipped_max * len(outcomes):
            self.failures.append(f"{self.skipped} of {len(outcomes)} events met nobody")
        if outcomes.count("failed"):
            self.failures.append(f"{outcomes.count('failed')} events failed")

    def _figures(self):
        step_s = _median(length for _, length in self.undisturbed)
        wall = self.kept.end - self.kept.begin
        kinds = sorted({e.kind for e in self.events})
        return {
            "seed": self.kept.seed, "seconds": wall, "events": len(self.events),
            "seconds_per_event": wall / len(self.events) if self.events else 0.0,
            "kinds": {k: sum(e.kind == k for e in self.events) for k in kinds},
            "states_compared": self.watch.lines, "states_wrong": len(self.watch.wrong),
            "entries": self.watch.entries, "state_lost": len(self.watch.lost),
            "longest_gap_s": self.gaps[0][0] if self.gaps else 0.0, "steps": self.steps,
            "undisturbed_step_s": step_s, "undisturbed_steps": len(self.undisturbed),
            "goodput": self.goodput,
            "goodput_by_one_median": self._goodput_by(step_s),
            "quiet_step_s": self.quiet_step_s, "goodput_by_quiet": self.goodput_by_quiet,
            "full_share": self.full_share, "longest_small_s": self.longest_small_s,
            "skipped": self.skipped,
            "record_judged": self.judged, "record_right": self.right, "growth": self.kept.growth,
            "exhausted": incident_check.ended_by_exhaustion(self.events, self.kept.record),
            "failures": self.failures}

    def show(self):
        for event, why in self.wrong:
            print(f"record: {event}: {why}")
        for victim in self.unexplained:
            print(f"nobody did this: {victim}")
        for length, began in self.gaps:
            near = [repr(e) for e in self.events
                    if began - 3 < e.fields["t_ns"] / 1e9 < began + length]
            print(f"{length:.2f} s without a step, {began - self.kept.begin:.1f} s into the chaos: "
                  + "; ".join(near))
        print()
        for what, text in self._table():
            print(f"{what:40} {text}")
        for failure in self.failures:
            print(f"FAILED: {failure}")

    def _table(self):
        report = self.report
        yield ("events, skipped", f"{report['events']}, one every "
               f"{report['seconds_per_event']:.2f} s, {report['skipped']}")
        yield "of each kind", ", ".join(f"{k} {n}" for k, n in report["kinds"].items())
        yield "longest time without a new step", f"{report['longest_gap_s']:.2f} s"
        yield ("states compared bit by bit, wrong",
               f"{report['states_compared']}, {report['states_wrong']}")
        yield ("entries into a world, behind a commit",
               f"{report['entries']}, {report['state_lost']}")
        yield ("record right about", ", ".join(f"{kind} {right:.1%} of {self.judged[kind]}"
                                               for kind, right in self.right.items()))
        yield "lost though nobody had done it", len(self.unexplained)
        yield "ended by exhausted descriptors", report["exhausted"]
        yield ("steps, undisturbed step", f"{report['steps']}, "
               f"{report['undisturbed_step_s'] * 1000:.1f} ms (of {report['undisturbed_steps']})")
        yield ("goodput (by the median of all)",
               f"{report['goodput']:.1%} ({report['goodput_by_one_median']:.1%})")
        yield ("step before the chaos, goodput by it",
               f"{report['quiet_step_s'] * 1000:.1f} ms, {report['goodput_by_quiet']:.1%}")
        yield ("time at full size, longest without it",
               f"{report['full_share']:.1%}, {report['longest_small_s']:.1f} s")
        for role, (count, fds, threads, mb) in report["growth"].items():
            yield (f"growth of {role}", f"{fds} descriptors, {threads} threads, {mb:.1f} MiB at "
                   f"most (of {count} that lived long)")
