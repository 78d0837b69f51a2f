"""The judges of a soak see what they are there for."""

import argparse
import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))

import audit  # noqa: E402  (needs the paths above)
import incident_check  # noqa: E402
import kept  # noqa: E402
import soak  # noqa: E402
import verdict  # noqa: E402
import watch  # noqa: E402

STARTED_S = 1_000_000


def chaos_event(kind, at, number=1, lasted=None, **fields):
    event = {"kind": kind, "number": number, "outcome": "done", "t_ns": at * 10**9,
             "time_ms": (STARTED_S + at) * 1000, **fields}
    if lasted is not None:
        event["end_ns"] = int((at + lasted) * 1e9)
    return event


def kill(at=10, worker="7", host="nodea", **fields):
    return chaos_event("kill", at, worker=worker, host=host, **fields)


def loss(at, worker=7, host="nodea", fate="killed", number=1, slot=1, kind="loss"):
    """Of the process 100 + worker."""
    return {"record": "incident", "kind": kind, "number": number,
            "phases": {"evidence_s": at, "revoke_s": at, "form_s": at},
            "evidence": [{"s": at}],
            "victims": [{"worker": worker, "host": host, "fate": fate, "rank": 1,
                         "slot": slot, "pid": 100 + worker}]}


def end(exit_code=0):
    phases = {"evidence_s": 40, "revoke_s": None, "form_s": None}
    return {"record": "incident", "kind": "end", "number": 99, "exit_code": exit_code,
            "cause": "all are done", "phases": phases, "evidence": [], "victims": []}


def check(chaos, incidents, members=(107,)):
    """(events about which the record is wrong, victims that nobody has caused); the world has these
    members on nodea."""
    job = {"record": "job", "started_ms": STARTED_S * 1000}
    found = incident_check.Findings(chaos, [job, *incidents],
                                    lambda host, _: set(members) if host == "nodea" else set())
    return len(found.wrong), len(found.unexplained)


def step_line(number, at, rank=0, event="step", size=8, digest=None):
    """Of one rank; ranks 0 and 1 are on nodea, 2 and 3 on nodeb, ..."""
    return {"event": event, "step": number, "digest": digest or f"d{number}", "size": size,
            "rank": rank, "pid": 100 + rank, "host": "node" + "abcd"[rank // 2],
            "t_ns": int(at * 1e9)}


class Incidents(unittest.TestCase):
    def test_a_kill_that_is_recorded_is_right(self):
        self.assertEqual(check([kill()], [loss(10.01)]), (0, 0))

    def test_a_kill_with_no_record_another_victim_or_another_kind_is_wrong(self):
        self.assertEqual(check([kill()], []), (1, 0))
        self.assertEqual(check([kill()], [loss(10.01, worker=8)]), (1, 1))
        self.assertEqual(check([kill()], [loss(10.01, fate="frozen")]), (1, 1))
        self.assertEqual(check([kill()], [loss(9)]), (1, 1))

    def test_a_later_line_with_the_same_number_counts(self):
        self.assertEqual(check([kill()], [loss(10.01, fate="frozen"), loss(10.01)]), (0, 0))

    def test_a_stopped_worker_is_frozen(self):
        stop = chaos_event("stop", 10, worker="7", host="nodea")
        self.assertEqual(check([stop], [loss(11.1, fate="frozen")]), (0, 0))
        self.assertEqual(check([stop], [loss(11.1, fate="killed")]), (1, 1))

    def test_a_stopped_worker_whose_agent_is_killed_first_is_no_mistake(self):
        stop = chaos_event("stop", 10, worker="7", host="nodea")
        agent = chaos_event("agent", 11, number=2, host="nodea")
        self.assertEqual(check([stop, agent], [loss(11.2, fate="agent lost")]), (0, 0))

    def test_an_agent_that_is_killed_takes_all_members_of_its_host(self):
        for kind in ("agent", "reaper"):
            event = chaos_event(kind, 10, host="nodea")
            lost = [loss(10.1, fate="agent lost"), loss(10.1, 8, fate="killed", number=2)]
            self.assertEqual(check([event], lost, members=(107, 108)), (0, 0))
            self.assertEqual(check([event], [], members=()), (0, 0))
            self.assertEqual(check([event], lost[:1], members=(107, 108)), (1, 0))
            self.assertEqual(check([event], []), (1, 0), kind)
            self.assertEqual(check([event], [loss(13, fate="agent lost")]), (1, 1))

    def test_an_agent_that_was_never_recorded_is_not_excused_by_what_happens_around_it(self):
        agent = chaos_event("agent", 10, number=2, host="nodea")
        before, after = kill(at=8, worker="8"), kill(at=14, worker="7", number=3)
        self.assertEqual(check([before, agent], [loss(8.1, 8)]), (1, 0))
        self.assertEqual(check([agent, after], [loss(14.1)]), (1, 0))
        self.assertEqual(check([agent, kill(11.5, worker="7", number=3)], [loss(11.6)]), (1, 0))
        # Who was dying already is excused, and so is who left.
        self.assertEqual(check([kill(at=9, worker="7"), agent], [loss(9.1)]), (0, 0))
        leave = chaos_event("leave", 6, host="nodea", lasted=4)
        self.assertEqual(check([leave, agent], [loss(9, fate="drained")]), (0, 0))

    def test_a_kill_of_one_worker_does_not_excuse_that_of_another(self):
        kills = [kill(), kill(worker="8", number=2)]
        self.assertEqual(check(kills, [loss(10.1)]), (1, 0))

    def test_a_kill_that_is_noticed_late_is_wrong(self):
        self.assertEqual(check([kill()], [loss(17)]), (1, 1))

    def test_a_share_of_each_kind_is_told(self):
        cut = chaos_event("cut", 10, host="nodea", lasted=3)
        pause = chaos_event("pause", 10, worker="8", host="nodea", lasted=0.1)
        job = {"record": "job", "started_ms": STARTED_S * 1000}
        found = incident_check.Findings([cut, pause, kill(20), kill(30, worker="9")],
                                        [job, loss(20)], lambda *_: {107})
        self.assertEqual(found.right(), {"cut": 0, "kill": 0.5})

    def test_who_is_paused_is_not_lost(self):
        pause = chaos_event("pause", 10, worker="7", host="nodea", lasted=0.2)
        self.assertEqual(check([pause], []), (0, 0))
        self.assertEqual(check([pause], [loss(10.3, fate="frozen")]), (0, 1))

    def test_descriptors_disks_and_discovery_cost_nobody(self):
        for kind in ("descriptors", "disk", "discovery", "slow", "leave"):
            event = chaos_event(kind, 10, host="nodea", lasted=2, note="crowd")
            self.assertEqual(check([event], []), (0, 0))
            self.assertEqual(check([event], [loss(11, fate="unformed")]), (0, 1), kind)

    def test_a_worker_that_exhausted_descriptors_have_ended_is_counted(self):
        event = chaos_event("descriptors", 10, worker="7", host="nodea", lasted=1)
        self.assertEqual(check([event], [loss(10.5)]), (0, 0))
        self.assertEqual(check([event], [loss(10.5, worker=8)]), (0, 1))
        self.assertEqual(check([event], [loss(10.5, fate="frozen")]), (0, 1))
        job = {"record": "job", "started_ms": STARTED_S * 1000}
        events = [incident_check.Event(event)]
        self.assertEqual(incident_check.ended_by_exhaustion(events, [job, loss(10.5)]), 1)
        self.assertEqual(incident_check.ended_by_exhaustion(events, [job]), 0)

    def test_who_drains_while_its_host_leaves_is_no_loss(self):
        leave = chaos_event("leave", 10, host="nodea", lasted=4)
        self.assertEqual(check([leave], [loss(12, fate="drained")]), (0, 0))
        self.assertEqual(check([leave], [loss(12, fate="drained", host="nodeb")]), (1, 1))
        self.assertEqual(check([leave], [loss(19, fate="drained")]), (1, 1))

    def test_who_drains_though_no_host_has_left_is_a_loss(self):
        for note in ("fail", "slow", "garbage", "stranger", "flap"):
            event = chaos_event("discovery", 10, lasted=3, note=note)
            self.assertEqual(check([event], []), (0, 0))
            self.assertEqual(check([event], [loss(12, fate="drained")]), (0, 1), note)
            self.assertEqual(check([event], [loss(14, fate="drained", slot=2)]), (0, 1), note)
        self.assertEqual(check([], [loss(12, fate="drained")]), (0, 1))
        self.assertEqual(check([], [loss(12, fate="spare")]), (0, 1))

    def test_who_drains_when_a_crowd_is_over_had_a_slot_too_many(self):
        crowd = chaos_event("discovery", 10, lasted=2, note="crowd")
        self.assertEqual(check([crowd], [loss(13.5, fate="drained", slot=2)]), (0, 0))
        self.assertEqual(check([crowd], [loss(13.5, fate="drained", slot=1)]), (0, 1))
        self.assertEqual(check([crowd], [loss(11, fate="drained", slot=2)]), (0, 1))

    def test_who_is_done_before_the_end_is_a_loss(self):
        self.assertEqual(check([], [loss(12, fate="done", kind="end")]), (0, 0))
        self.assertEqual(check([], [loss(12, fate="done")]), (0, 1))

    def test_a_host_that_has_left_for_long_has_drained(self):
        self.assertEqual(check([chaos_event("leave", 10, host="nodea", lasted=3)], []), (1, 0))
        self.assertEqual(check([chaos_event("leave", 10, host="nodea", lasted=2)], []), (0, 0))

    def test_a_long_cut_loses_its_host_and_no_other(self):
        cut = chaos_event("cut", 10, host="nodea", lasted=3)
        self.assertEqual(check([cut], [loss(12.1, fate="agent silent")]), (0, 0))
        self.assertEqual(check([cut], [loss(12.1, fate="agent silent", host="nodeb")]), (1, 1))
        self.assertEqual(check([cut], []), (1, 0))
        self.assertEqual(check([cut], [], members=()), (0, 0))
        # Killed by its own agent when its lease is over.
        self.assertEqual(check([cut], [loss(13.5)]), (0, 0))
        self.assertEqual(check([cut], [loss(11)]), (1, 1))

    def test_a_kill_does_not_show_that_a_cut_was_noticed(self):
        cut = chaos_event("cut", 10, host="nodea", lasted=4)
        later = kill(13.2, number=2)
        self.assertEqual(check([cut, later], [loss(13.3)]), (1, 0))

    def test_a_short_cut_loses_nobody(self):
        cut = chaos_event("cut", 10, host="nodea", lasted=0.5)
        self.assertEqual(check([cut], []), (0, 0))
        self.assertEqual(check([cut], [loss(10.6, fate="agent silent")]), (1, 0))
        agent = chaos_event("agent", 11, number=2, host="nodea")
        self.assertEqual(check([cut, agent], [loss(11.1, fate="agent lost")]), (0, 0))

    def test_what_was_skipped_is_not_expected(self):
        self.assertEqual(check([kill() | {"outcome": "skipped"}], []), (0, 0))


class Follows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "log")
        self.watch = watch.Watch(self.path)

    def write(self, *events):
        with open(self.path, "a", encoding="utf-8") as file:
            for event in events:
                file.write(json.dumps(event) + "\n")
        self.watch.read()

    @staticmethod
    def step(number, at, digest="d", size=8, rank=0):
        return step_line(number, at, rank, size=size, digest=digest)

    @staticmethod
    def entry(number, at, rank=0):
        return step_line(number, at, rank, event="entry", digest="d")

    def test_a_step_counts_once(self):
        self.write(self.step(1, 1), self.step(1, 1.1, rank=1), self.step(2, 2), self.entry(1, 3),
                   self.step(2, 3.1), self.step(3, 3.2))
        self.assertEqual(self.watch.step, 3)
        self.assertEqual(self.watch.longest(2), [(3.2 - 2, 2.0), (1.0, 1.0)])
        self.assertEqual(self.watch.steps_between(1.5, 4), 2)

    def test_who_goes_on_from_its_commit_or_learns_of_it_has_lost_nothing(self):
        # Rank 0 told of step 2 and died; the others had committed step 1. Then rank 1 told of
        # step 2, and a newcomer takes the place of rank 0.
        self.write(self.entry(0, 0), self.entry(0, 0, 1), self.step(1, 1), self.step(1, 1, 1),
                   self.step(2, 2), self.entry(1, 3, 1), self.step(2, 4, 1),
                   self.entry(2, 5, 2), self.entry(2, 5, 1), self.step(3, 6, 2))
        self.assertEqual(self.watch.lost, [])
        self.assertEqual(self.watch.entries, 5)

    def test_a_rank_that_goes_back_behind_its_own_commit_is_seen(self):
        self.write(self.step(1, 1), self.step(2, 2))
        self.assertEqual(self.watch.lost, [])
        self.write(self.entry(1, 3))
        self.assertEqual(len(self.watch.lost), 1)

    def test_newcomers_that_begin_anew_are_seen(self):
        self.write(self.step(1, 1), self.step(2, 2), self.entry(1, 3, 1))
        self.assertEqual(self.watch.lost, [])
        self.write(self.entry(0, 4, 2))
        self.assertEqual(len(self.watch.lost), 1)

    def test_a_step_that_the_world_had_left_behind_is_seen(self):
        self.write(*[self.step(n, n) for n in range(1, 4)], self.step(2, 4, rank=1))
        self.assertEqual(len(self.watch.lost), 1)

    def test_the_members_on_a_host_are_those_of_the_last_steps(self):
        self.write(self.entry(0, 0), self.entry(0, 0, 1), self.entry(0, 0, 2),
                   *[self.step(1, 1, rank=rank) for rank in (0, 1, 2)],
                   *[self.step(n, n, rank=rank) for n in (2, 3, 4) for rank in (0, 2)],
                   self.entry(4, 5, 1), self.step(5, 6))
        self.assertEqual(self.watch.members("nodea", 1.5), {100, 101})
        self.assertEqual(self.watch.members("nodea", 4.5), {100})
        self.assertEqual(self.watch.members("nodea", 0.5), {100, 101})
        self.assertEqual(self.watch.members("nodeb", 4.5), {102})
        self.assertEqual(self.watch.members("nodea", 5.5), {100, 101})
        self.assertEqual(self.watch.members("nodec", 4), set())

    def test_a_state_that_differs_between_ranks_is_seen(self):
        self.write(self.step(1, 1), self.step(1, 1.1, rank=1))
        self.assertEqual(self.watch.wrong, [])
        self.write(self.step(1, 1.2, digest="other"))
        self.assertEqual(len(self.watch.wrong), 1)

    def test_a_state_that_differs_from_the_replay_is_seen(self):
        program = self.path + ".sh"
        with open(program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho z\necho d\necho e\n")
        os.chmod(program, 0o755)
        self.write(self.step(1, 1), self.step(2, 2, digest="e"))
        self.watch.replay(program)
        self.assertEqual(self.watch.wrong, [])
        self.watch.digests[2] = "other"
        self.watch.replay(program)
        self.assertEqual([w["step"] for w in self.watch.wrong], [2])

    def test_a_torn_line_waits_for_its_rest(self):
        line = json.dumps(self.step(1, 1)) + "\n"
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(line[:20])
        self.watch.read()
        self.assertEqual(self.watch.step, 0)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line[20:])
        self.watch.read()
        self.assertEqual(self.watch.step, 1)

    def test_only_steps_of_the_full_world_away_from_events_are_undisturbed(self):
        self.write(*[self.step(i, i * 0.1) for i in range(1, 100)],
                   *[self.step(100 + i, 10 + i * 0.5, size=7) for i in range(20)])
        steps = self.watch.undisturbed_steps([(4.02, 4.52)], 8)
        self.assertTrue(all(abs(length - 0.1) < 1e-6 for _, length in steps))
        # 98 intervals, less those from 4.0 to one second after the event.
        self.assertEqual(len(steps), 98 - 16)

    def test_a_full_step_counts_as_back_only_after_the_end(self):
        self.write(*[self.step(n, n) for n in range(1, 6)], self.step(6, 6, size=7))
        self.assertTrue(self.watch.full_since(4.5, 8))
        self.assertFalse(self.watch.full_since(5.5, 8))

    def test_goodput_is_what_is_left_of_the_undisturbed_pace(self):
        # Ten seconds of nothing in the middle of 40; then the machine is half as fast.
        self.write(*[self.step(i, i * 0.1) for i in range(100)],
                   *[self.step(i, i * 0.1 + 10) for i in range(100, 200)],
                   *[self.step(200 + i, 40 + i * 0.2) for i in range(200)])
        steps = self.watch.undisturbed_steps([(9.85, 20)], 8)
        self.assertAlmostEqual(self.watch.goodput(steps, 0, 40), 0.5, places=1)
        self.assertAlmostEqual(self.watch.goodput(steps, 40, 80), 1, places=1)
        self.assertEqual(self.watch.goodput([], 0, 40), 0)


class Judges(unittest.TestCase):
    """Of a whole run, of which 40 s are made up: ten steps a second, with chaos from 10 to 30."""

    LIMITS = argparse.Namespace(hang=5, goodput_min=0.8, right_min=0.99, full_min=0.3,
                                small_max=8, skipped_max=0.1)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.job_folder = self.path(kept.JOB_FOLDERS.replace("*", "x"))
        self.chaos = [kill(20, pid=107)]
        self.incidents = [loss(20)]
        self.ends = [end()]
        self.log = [step_line(0, 0, rank, event="entry") for rank in range(8)]
        self.log += [step_line(n, n * 0.1, rank) for n in range(1, 400) for rank in range(8)]
        self.run = {"begin": 10, "end": 30, "seen": []}
        self.program = self.path("replay")
        self.write("replay", "#!/bin/sh\nseq -f d%g 0 $2\n")
        os.chmod(self.program, 0o755)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, *texts):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("".join(text if isinstance(text, str) else json.dumps(text) + "\n"
                               for text in texts))

    def keep(self):
        job = os.path.basename(self.job_folder)
        self.write(f"{job}/log.jsonl", *self.log)
        self.write(f"{job}/incidents/abc/incidents.jsonl",
                   {"record": "job", "started_ms": STARTED_S * 1000}, *self.incidents, *self.ends)
        self.write("chaos.jsonl", *self.chaos)
        if self.run:
            kept.write_run(self.folder, job_folder=self.job_folder, **self.run)
        return kept.Kept(self.folder)

    def failures(self, **limits):
        limits = argparse.Namespace(**{**vars(self.LIMITS), **limits})
        found = verdict.Verdict(self.keep(), limits, self.program, 8)
        with contextlib.redirect_stdout(io.StringIO()):
            found.show()
        return found.failures

    def assert_fails(self, pattern, **limits):
        self.assertRegex(" | ".join(self.failures(**limits)), pattern)

    def test_a_good_run_is_good(self):
        self.assertEqual(self.failures(), [])

    def test_what_was_seen_while_it_ran_counts(self):
        self.run["seen"] = ["something leaks"]
        self.assert_fails("something leaks")

    def test_a_wrong_state_an_unrecorded_kill_and_a_gap_are_seen_later(self):
        self.log[-1]["digest"] = "other"
        self.assert_fails("states are wrong")
        self.log[-1]["digest"] = "d399"
        self.incidents = []
        self.assert_fails("the record is right")
        self.assert_fails("no new step", hang=0.05)

    def test_a_world_that_repeats_right_states_has_lost_some(self):
        self.log[-8:] = [step_line(397, 39.9, rank, event="entry") for rank in range(8)]
        self.assert_fails("committed State was lost 8 times")

    def shrink(self, begin, end, size=7):
        for line in self.log:
            if begin <= line["t_ns"] / 1e9 < end:
                line["size"] = size

    def test_a_job_that_stays_small_is_seen(self):
        self.shrink(20, 26)
        self.assertEqual(self.failures(), [])
        self.shrink(20, 29)
        self.assert_fails("for 9.1 s from 9.9 s on the world was not whole")
        self.assert_fails("whole for 54.5% of the time only", full_min=0.6)
        self.shrink(20, 40)
        self.assert_fails("no step at full size after the end")

    def test_a_slowdown_that_stays_is_seen(self):
        # After the first event each step takes twice as long; against its own pace all is well.
        for line in self.log:
            at = line["t_ns"] / 1e9
            line["t_ns"] = int((at if at < 12 else 12 + 2 * (at - 12)) * 1e9)
        self.run["end"] = 60
        self.chaos, self.incidents = [kill(13)], [loss(13)]
        self.assertRegex(" | ".join(self.failures()),
                         "^the goodput is 52.2% of the pace before the chaos$")

    def test_events_that_meet_nobody_are_few(self):
        self.chaos = [kill(11 + n, number=n, worker=str(n)) for n in range(10)]
        self.incidents = [loss(11 + n, n, number=n) for n in range(10)]
        self.chaos[3]["outcome"] = "skipped"
        self.incidents[3]["victims"] = []
        self.assertEqual(self.failures(), [])
        self.chaos[4]["outcome"] = "skipped"
        self.incidents[4]["victims"] = []
        self.assert_fails("2 of 10 events met nobody")
        self.chaos[4]["outcome"] = "failed"
        self.assert_fails("1 events failed")

    def test_the_job_has_ended_well_by_its_record(self):
        self.ends = [end(79)]
        self.assert_fails("the job ended with 79")
        self.ends = []
        self.assert_fails("does not tell of the job's end")

    def test_a_run_that_wrote_no_summary_is_found_by_its_job(self):
        self.run = {}
        self.write("chaos.txt", "job abc, seed 1\n")
        temporary = kept.tempfile.tempdir
        self.addCleanup(setattr, kept.tempfile, "tempdir", temporary)
        kept.tempfile.tempdir = self.folder
        found = self.keep()
        self.assertEqual((found.begin, found.end), (20, 20))
        self.assertEqual(found.job_folder, self.job_folder)
        self.write("chaos.txt", "job abd, seed 1\n")
        with self.assertRaises(FileNotFoundError):
            kept.Kept(self.folder)

    def test_a_line_that_was_torn_is_left_out(self):
        self.keep()
        with open(self.path("chaos.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"kind": "ki')
        self.assertEqual(len(kept.Kept(self.folder).chaos), 1)


class Runs(unittest.TestCase):
    @staticmethod
    def stage(folder, calls):
        """Without a job; its parts only write down what is asked of them."""
        made = soak.stages.Stage.__new__(soak.stages.Stage)
        made.folder, made.disk, made.busy = folder, folder, []
        made.chaos, made.job, made.network = mock.Mock(), mock.Mock(), mock.Mock()
        made.chaos.poll.return_value = None
        for part, name in ((made.chaos, "terminate"), (made.chaos, "kill"), (made.job, "close"),
                           (made.network, "close")):
            getattr(part, name).side_effect = lambda *_, call=name: calls.append(call)
        return made

    def test_all_is_taken_down_even_if_chaos_does_not_end_and_the_job_cannot_be_closed(self):
        folder = tempfile.mkdtemp()
        calls = []
        made = self.stage(folder, calls)
        made.chaos.wait.side_effect = [subprocess.TimeoutExpired("chaos", 1), 0]
        made.job.close.side_effect = OSError("no")
        umount = mock.patch.object(soak.netns, "run",
                                   side_effect=lambda *_, **__: calls.append("umount"))
        with umount, self.assertRaises(OSError):
            made.close(keep=False)
        self.assertEqual(calls, ["terminate", "kill", "close", "umount"])
        self.assertFalse(os.path.exists(folder))

    def test_chaos_is_over_before_stacks_are_dumped_and_the_record_is_read(self):
        calls = []
        run = soak.Soak.__new__(soak.Soak)
        run.stage = self.stage(self.id(), calls)
        run.stage.dump = lambda: calls.append("dump")
        run.hung, run.failures, run.begin, run.end = True, [], 0, 0
        run.settings, run.audit = mock.Mock(), mock.Mock()
        run.audit.leaks.return_value = []
        with mock.patch.object(kept, "write_run", side_effect=lambda *_, **__: calls.append("run")):
            run.keep()
        self.assertEqual(calls, ["terminate", "dump", "run"])

    def test_where_no_namespaces_can_be_made_it_is_skipped_not_passed(self):
        with mock.patch.object(soak.netns, "available", return_value="no root"), \
                mock.patch.object(sys, "argv", ["soak.py"]), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(soak.main(), 77)
        self.assertIn("no root", out.getvalue())


class Audits(unittest.TestCase):
    def test_what_the_job_used_and_left_outside_of_its_folders_is_seen(self):
        folder = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, folder)
        disk, own = os.path.join(folder, "disk"), os.path.join(folder, "own")
        os.mkdir(disk)
        os.mkdir(own)
        looks = audit.Audit("token", 1)
        files = [open(path, "w", encoding="utf-8") for path in
                 (folder + "/left", folder + "/removed", own + "/kept")]
        server = socket.socket(socket.AF_UNIX)
        server.bind(folder + "/sock")
        with mock.patch.object(audit.harness, "descendants_by_token", return_value=[os.getpid()]):
            looks.sample(0)
            self.assertEqual(looks.leftovers([own], disk), set())  # It is in our own network.
            looks._outside = 0
            looks.sample(0)
        server.close()
        for file in files:
            file.close()
        os.remove(folder + "/removed")
        os.mkdir(disk + "/muster-abc")
        os.mkdir(disk + "/output")
        ours = {path for path in looks.leftovers([own], disk) if path.startswith(folder)}
        self.assertEqual(ours, {folder + "/left", folder + "/sock", disk + "/muster-abc"})

    def test_what_grows_is_a_leak_and_what_comes_and_goes_is_not(self):
        looks = audit.Audit("token", 1)
        youth = [(10, 3, 50.0)] * audit.LOOKS
        looks._lives = {
            1: ["driver", 0, youth, [(10 + audit.DESCRIPTORS_MAX + 1, 3, 50.0)] * 4, 100],
            2: ["agent", 0, youth, [(90, 30, 500.0)] * 3 + [(10, 3, 50.0)], 100],
            4: ["agent", 0, youth[1:] + [(30, 9, 90.0)], [(30, 9, 90.0)] * 4, 100],
            3: ["worker", 0, youth, [(90, 30, 500.0)] * 4, audit.AGE_S - 1]}
        self.assertEqual(len(looks.leaks()), 1)
        self.assertIn("driver", looks.leaks()[0])

    def test_a_number_that_is_used_again_is_another_process(self):
        looks = audit.Audit("token", 1)
        small, large = (4, 1, 5.0), (30, 15, 20.0)
        with mock.patch.object(audit.harness, "descendants_by_token", return_value=[7]), \
                mock.patch.object(audit, "paths_of", return_value=set()):
            for start, role, seen, first in ((100, "reaper", small, 0), (200, "agent", large, 500)):
                stat = ["S", "1"] + ["0"] * (audit.START_FIELD - 2) + [str(start)]
                with mock.patch.object(audit.harness, "stat_fields", return_value=stat), \
                        mock.patch.object(audit, "role_of", return_value=role), \
                        mock.patch.object(audit, "look", return_value=seen):
                    for now in range(first, first + 100, 10):
                        looks.sample(now)
        self.assertEqual(looks.leaks(), [])
        self.assertEqual({role: found[0] for role, found in looks.growth().items()},
                         {"reaper": 1, "agent": 1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
