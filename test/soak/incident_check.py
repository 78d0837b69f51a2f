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
# Events of one host so near to each other may meet the same victims.
AROUND_S = 10.0
# Two polls without a host, a second apart, and whoever runs there is told to leave at its next
# commit. A host that is gone for so long has surely missed two.
SURELY_LEFT_S = 3.0
# Told so before the host was listed again, the members may leave so long after that: a world that
# has just lost somebody forms first.
LEAVING_S = 4.0
SLOTS = 2  # Of each host, but while discovery shows a crowd.

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
            return victim.worker == self.worker and victim.fate in KILLED
        if self.kind == "discovery":
            # A slot that was only there in a crowd, any host's, when the crowd is over.
            return (self.fields.get("note") == "crowd" and victim.fate in LEFT
                    and victim.fields["slot"] >= SLOTS
                    and self.end - BEFORE_S <= victim.at <= self.end + LEAVING_S)
        if self.kind == "stop":
            return victim.worker == self.worker and victim.fate in {"frozen", "unformed"}
        if victim.host != self.host or victim.at > self.end + AFTERMATH_S:
            return False
        if self.kind == "leave":
            return victim.fate in LEFT and victim.at <= self.end + LEAVING_S
        if self.kind == "descriptors" and self.worker is not None:
            # It needs new ones for a new world. Shown in the table, not hidden.
            return victim.worker == self.worker and victim.fate in EXHAUSTED
        if self.kind in ("agent", "reaper"):
            return victim.fate in HOST_GONE
        if self.kind == "descriptors":
            # An agent that can open nothing can start nobody.
            return victim.fate == "not started"
        if self.kind in SILENT_HOOKS:
            # Whoever comes back after its lease finds itself killed by its own agent.
            return victim.fate in CUT | KILLED
        return False


def judge(event, others, victims):
    """None if the record is right about this event, else what is wrong. `others` are the events
    around it, which may have come first or may be the cause of what is found."""
    found = [v for v in victims if event.may_explain(v)]
    met_before = any(other.may_explain(v) for v in victims for other in others
                     if v.worker == event.worker or (event.worker is None and v.host == event.host))
    if event.kind in ("kill", "stop", "agent", "reaper"):
        return None if found or met_before else "no such victim"
    if event.kind == "leave" and event.lasted >= SURELY_LEFT_S:
        return None if found or met_before else "nobody has left this host"
    if event.kind in SILENT_HOOKS and event.lasted >= SURELY_SUSPECTED_S:
        return None if found or met_before else "no victim on this host"
    if event.kind in SILENT_HOOKS and event.lasted < SURELY_NOT_SUSPECTED_S:
        alone = [v for v in found if not any(other.may_explain(v) for other in others)]
        return f"a victim of a short cut: {alone[0]}" if alone else None
    return None


def ended_by_exhaustion(events, records):
    """How many workers an exhausted table of descriptors has ended."""
    victims = read_victims(records)
    return sum(any(e.may_explain(v) for v in victims) for e in events if e.kind == "descriptors")


def check(chaos, records):
    """(events, [(event, what is wrong)], [victims that nobody has caused])"""
    events = [Event(fields) for fields in chaos if fields["outcome"] == "done"]
    victims = read_victims(records)
    for victim in victims:
        victim.explained |= any(event.may_explain(victim) for event in events)
    wrong = []
    for event in events:
        others = [e for e in events if e is not event and e.host == event.host
                  and abs(e.begin - event.begin) < AROUND_S]
        why = judge(event, others, victims)
        if why is not None:
            wrong.append((event, why))
    return events, wrong, [v for v in victims if not v.explained]
