"""What is kept of a soak: enough to judge it again, by rules that did not exist when it ran."""

import glob
import json
import os
import re
import tempfile

RUN = "run.json"
JOB_FOLDERS = "muster-test-*"


def _lines(path):
    """A line that its writer could not finish is left out."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def write_run(folder, **fields):
    """What only the run itself can know: see Kept."""
    with open(os.path.join(folder, RUN), "w", encoding="utf-8") as file:
        json.dump(fields, file, indent=1)


class Kept:
    """seen: the failures that were noticed while it ran. growth: as audit.Audit.growth. begin, end:
    of the chaos, CLOCK_MONOTONIC."""

    def __init__(self, folder):
        self.folder = folder
        self.chaos = _lines(os.path.join(folder, "chaos.jsonl"))
        run = {}
        if os.path.exists(os.path.join(folder, RUN)):
            with open(os.path.join(folder, RUN), encoding="utf-8") as file:
                run = json.load(file)
        self.seen = run.get("seen", [])
        self.growth = run.get("growth", {})
        self.seed = run.get("seed")
        # A run that was cut short has written neither; its events tell nearly as well.
        self.begin = run.get("begin") or min((e["t_ns"] for e in self.chaos), default=0) / 1e9
        self.end = run.get("end") or max(
            (e.get("end_ns", e["t_ns"]) for e in self.chaos), default=0) / 1e9
        self.job_folder = run.get("job_folder") or self._find_job()
        self.log = os.path.join(self.job_folder, "log.jsonl")
        records = glob.glob(os.path.join(self.job_folder, "incidents", "*", "incidents.jsonl"))
        self.record = [line for path in records for line in _lines(path)]

    def _find_job(self):
        """By the id that muster chaos says in its first line."""
        with open(os.path.join(self.folder, "chaos.txt"), encoding="utf-8") as file:
            job = re.match(r"job (\w+),", file.readline())
        found = job and glob.glob(os.path.join(tempfile.gettempdir(), JOB_FOLDERS, "incidents",
                                               job[1]))
        if not found:
            raise FileNotFoundError(f"{self.folder}: its job's folder is not there any more")
        return os.path.dirname(os.path.dirname(found[0]))
