"""Holds what chaos did against what the driver has kept of it: does each event stand in the record
with the right victim and the right kind, and does nothing stand there that nobody did?
"""

# Who is silent for less is not suspected; for longer, always; in between it depends on the moment.
SURELY_NOT_SUSPECTED_S = 1.3
SURELY_SUSPECTED_S = 2.6
# What an event may have caused begins so long before its own time (clocks, rounding) and until so
# long after its end.
BEFORE_S = 0.1
# A cut may still bring about a loss when it has healed: a lease that is over, a retry that fails.
AFTERMATH_S = 6.0
# The end of an agent or a worker is noticed at once, on cores that are taken within this.
AT_ONCE_S = 2.0
# An agent that was cut off for so long ends what it runs by itself.
LEASE_S = 3.0
# Two polls without a host, a second apart, and whoever runs there is told to leave at its next
# commit. A host that is gone for so long has surely missed two.
SURELY_LEFT_S = 3.0
# Told so before the host was listed again, the members may leave so long after that: a world that
# has just lost somebody forms first.
LEAVING_S = 4.0
SLOTS = 2  # Of each host, but while discovery shows a crowd.
# Until an event is noticed, another one may come first and be what is recorded.
NOTICED_S = {"kill": 1.0, "agent": 1.0, "reaper": 1.0,
             "stop": SURELY_NOT_SUSPECTED_S, "leave": SURELY_LEFT_S,
             "cut": SURELY_SUSPECTED_S, "hole": SURELY_SUSPECTED_S, "deaf": SURELY_SUSPECTED_S}
# Events that may be as short as they like and yet take all workers of their host, and those that
# must have lasted for so long.
TAKES_HOST_S = {"agent": 0.0, "reaper": 0.0, "leave": SURELY_LEFT_S,
                "cut": SURELY_SUSPECTED_S, "hole": SURELY_SUSPECTED_S, "deaf": SURELY_SUSPECTED_S}

KILLED = {"killed", "gone"}
# The agent is gone, with all that ran under it: which of the two is heard of first is chance.
HOST_GONE = {"agent lost", "agent silent", "unanswered", "killed", "gone", "unformed"}
CUT = {"agent lost", "agent silent", "unanswered", "unformed", "expelled"}
EXHAUSTED = {"killed", "exited", "unformed", "gone"}
LEFT = {"drained", "spare"}
LINK_HOOKS = ("cut", "hole", "deaf", "slow")
SILENT_HOOKS = ("cut", "hole", "deaf")


class Victim:
    def __init__(self, fields, incident, at):
        self.fields = fields
        self.incident = incident
        self.at = at  # Seconds since 1970 of the first evidence, or of the decision.
        self.worker = fields["worker"]
        self.host = fields["host"]
        self.fate = fields["fate"]
        self.pid = fields["pid"]
        self.hit = False  # By a kill of chaos.
        # Whoever is done is none that is lost, if the job has ended.
        self.explained = self.fate == "done" and incident["kind"] == "end"

    def __repr__(self):
        member = "" if self.fields["rank"] is None else f", rank {self.fields['rank']}"
        return (f"#{self.incident['number']} at {self.at:.3f}: worker {self.worker} on "
                f"{self.host}{member} was {self.fate}")


def read_victims(records):
    started = next((r["started_ms"] for r in records if r["record"] == "job"), 0) / 1000
    newest = {r["number"]: r for r in records if r["record"] == "incident"}
    victims = []
    for incident in newest.values():
        phases = incident["phases"]
        times = [t for t in (phases["evidence_s"], phases["revoke_s"], phases["form_s"])
                 if t is not None]
        # Victims that came later in the same change have evidence of their own.
        last = max([e["s"] for e in incident["evidence"]] + times, default=0)
        for fields in incident["victims"]:
            victims.append(Victim(fields, incident, started + last))
    return victims


class Event:
    def __init__(self, fields):
        self.fields = fields
        self.kind = fields["kind"]
        self.host = fields.get("host")
        self.worker = int(fields["worker"]) if "worker" in fields else None
        self.monotonic = fields["t_ns"] / 1e9
        self.begin = fields["time_ms"] / 1000
        self.lasted = (fields.get("end_ns", fields["t_ns"]) - fields["t_ns"]) / 1e9
        self.end = self.begin + self.lasted

    def __repr__(self):
        whom = f" of worker {self.worker}" if self.worker else ""
        where = f" on {self.host}" if self.host else ""
        note = f" ({self.fields['note']})" if "note" in self.fields else ""
        return (f"{self.kind}{whom}{where}{note} #{self.fields['number']} at {self.begin:.3f} "
                f"for {self.lasted:.2f} s")

    def may_explain(self, victim):
        if victim.at < self.begin - BEFORE_S:
            return False
        if self.kind == "kill":
            return (victim.worker == self.worker and victim.fate in KILLED
                    and victim.at <= self.end + AFTERMATH_S)
        if self.kind == "discovery":
            # A slot that was only there in a crowd, any host's, when the crowd is over.
            return (self.fields.get("note") == "crowd" and victim.fate in LEFT
                    and victim.fields["slot"] >= SLOTS
                    and self.end - BEFORE_S <= victim.at <= self.end + LEAVING_S)
        if self.kind == "stop":
            return (victim.worker == self.worker and victim.fate in {"frozen", "unformed"}
                    and victim.at <= self.end + AFTERMATH_S)
        if victim.host != self.host or victim.at > self.end + AFTERMATH_S:
            return False
        if self.kind == "leave":
            return victim.fate in LEFT and victim.at <= self.end + LEAVING_S
        if self.kind == "descriptors" and self.worker is not None:
            # It needs new ones for a new world. Shown in the table, not hidden.
            return victim.worker == self.worker and victim.fate in EXHAUSTED
        if self.kind in ("agent", "reaper"):
            return (victim.fate in HOST_GONE and victim.at <= self.end + AT_ONCE_S
                    and not (victim.fate in KILLED and victim.hit))
        if self.kind == "descriptors":
            # An agent that can open nothing can start nobody.
            return victim.fate == "not started"
        if self.kind in SILENT_HOOKS:
            # Whoever comes back after its lease finds itself killed by its own agent; but who was
            # hit meanwhile does not show that the cut was noticed.
            return victim.fate in CUT or (victim.fate in KILLED and not victim.hit
                                          and victim.at >= self.begin + LEASE_S)
        return False


class Judge:
    """members(host, at): the pids that were of the world there at that time (CLOCK_MONOTONIC), by
    the log of the workers, which knows nothing of the record."""

    def __init__(self, events, victims, members):
        self.events = events
        self.victims = victims
        self.members = members
        self.by_worker = {v.worker: v for v in victims}
        self.by_place = {}
        for victim in victims:
            self.by_place.setdefault((victim.host, victim.pid), []).append(victim)

    def judge(self, event):
        """None if no rule is about such an event, "" if the record is right about it, else what is
        wrong."""
        if event.kind in ("kill", "stop"):
            return self._judge_taken(event, event.worker, self.by_worker.get(event.worker))
        if event.kind in TAKES_HOST_S and event.lasted >= TAKES_HOST_S[event.kind]:
            wrong = [self._judge_taken(event, f"of pid {pid}", self._victim_of(event, pid))
                     for pid in sorted(self.members(event.host, event.monotonic))]
            return next(filter(None, wrong), "") if wrong else None
        if event.kind in SILENT_HOOKS and event.lasted < SURELY_NOT_SUSPECTED_S:
            alone = [v for v in self.victims if event.may_explain(v) and not self._other(event, v)]
            return f"a victim of a short cut: {alone[0]}" if alone else ""
        return None

    def _victim_of(self, event, pid):
        """The next in time: in an hour the kernel gives out a number again."""
        return min(self.by_place.get((event.host, pid), []),
                   key=lambda victim: abs(victim.at - event.begin), default=None)

    def _judge_taken(self, event, name, victim):
        if victim is None:
            return f"worker {name} is no victim in the record"
        if event.may_explain(victim) or self._other(event, victim, event.begin
                                                    + NOTICED_S[event.kind]):
            return ""
        return f"and yet {victim}"

    def _other(self, event, victim, begun_by=float("inf")):
        """Whether another event, begun by then, may be what took this victim."""
        return any(other.may_explain(victim) for other in self.events
                   if other is not event and other.begin <= begun_by)


def ended_by_exhaustion(events, records):
    """How many workers an exhausted table of descriptors has ended."""
    victims = read_victims(records)
    return sum(any(e.may_explain(v) for v in victims) for e in events if e.kind == "descriptors")


class Findings:
    """judged: kind -> how many events a rule was about; wrong: [(event, what is wrong)];
    unexplained: the victims that nobody has caused."""

    def __init__(self, chaos, records, members):
        self.events = [Event(fields) for fields in chaos if fields["outcome"] == "done"]
        victims = read_victims(records)
        hit = {event.worker for event in self.events if event.kind == "kill"}
        for victim in victims:
            victim.hit = victim.worker in hit
            victim.explained |= any(event.may_explain(victim) for event in self.events)
        self.unexplained = [v for v in victims if not v.explained]
        self.judged = {}
        self.wrong = []
        judge = Judge(self.events, victims, members)
        for event in self.events:
            why = judge.judge(event)
            if why is None:
                continue
            self.judged[event.kind] = self.judged.get(event.kind, 0) + 1
            if why:
                self.wrong.append((event, why))

    def right(self):
        """kind -> the share of the judged events about which the record is right."""
        wrong = [event.kind for event, _ in self.wrong]
        return {kind: 1 - wrong.count(kind) / count for kind, count in sorted(self.judged.items())}
