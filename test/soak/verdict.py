"""Judges a soak by what is kept of it: at its end, or later (soak.py --judge FOLDER)."""

import statistics

import incident_check
import watch


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

    def _judge_pace(self, limits):
        self.gaps = self.watch.longest(10)
        if self.gaps and self.gaps[0][0] > limits.hang:
            self.failures.append(f"no new step for {self.gaps[0][0]:.1f} s")
        spans = [(e.fields["t_ns"] / 1e9, e.fields.get("end_ns", e.fields["t_ns"]) / 1e9)
                 for e in self.events]
        self.undisturbed = self.watch.undisturbed_steps(spans, self.full_size)
        self.goodput = self.watch.goodput(self.undisturbed, self.kept.begin, self.kept.end)
        if self.goodput < limits.goodput_min:
            self.failures.append(f"the goodput is {self.goodput:.1%}")

    def _figures(self):
        step_s = statistics.median(s for _, s in self.undisturbed) if self.undisturbed else 0.0
        wall = self.kept.end - self.kept.begin
        steps = self.watch.steps_between(self.kept.begin, self.kept.end)
        kinds = sorted({e.kind for e in self.events})
        return {
            "seed": self.kept.seed, "seconds": wall, "events": len(self.events),
            "seconds_per_event": wall / len(self.events) if self.events else 0.0,
            "kinds": {k: sum(e.kind == k for e in self.events) for k in kinds},
            "states_compared": self.watch.lines, "states_wrong": len(self.watch.wrong),
            "entries": self.watch.entries, "state_lost": len(self.watch.lost),
            "longest_gap_s": self.gaps[0][0] if self.gaps else 0.0, "steps": steps,
            "undisturbed_step_s": step_s, "undisturbed_steps": len(self.undisturbed),
            "goodput": self.goodput,
            "goodput_by_one_median": steps * step_s / wall if wall else 0.0,
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
        yield "events", f"{report['events']}, one every {report['seconds_per_event']:.2f} s"
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
        for role, (count, fds, threads, mb) in report["growth"].items():
            yield (f"growth of {role}", f"{fds} descriptors, {threads} threads, {mb:.1f} MiB at "
                   f"most (of {count} that lived long)")
