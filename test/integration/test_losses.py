"""User cases 21 to 23, 41 to 44, 46, 47 and 85: what a loss costs the others, however it comes."""

import ctypes
import os
import signal
import socket
import unittest

import harness
from harness import GO

# So long that a lost slot stays empty for the rest of the test.
STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
THREE_HOSTS = "localhost:1\n127.0.0.1:1\n127.0.0.2:1"
STAYS = {"steps": 60, "sleep_ms": 20, "go_file": GO}
# What the cases promise of the survivors.
RESUME_LIMIT_S = 15
SYS_PIDFD_GETFD = 438


class LossTest(harness.JobTest):
    def three(self, **options):
        options.setdefault("args", STAYS_OUT)
        job = self.job(hosts=THREE_HOSTS, np=3, min_np=2, max_np=3, worker=STAYS, **options)
        job.wait_size(3)
        job.wait_step(8)
        return job

    def finish(self, job):
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class Frozen(LossTest):
    """Case 21."""

    def test_a_stopped_process_group_is_noticed_and_killed(self):
        job = self.three()
        world = job.world()
        frozen = world[1].pid
        os.killpg(os.getpgid(frozen), signal.SIGSTOP)
        job.wait_size(2, limit=RESUME_LIMIT_S)
        self.assert_same_pids(job, {world[0].pid, world[2].pid})
        job.wait_for(lambda: job.events("reaped"), "the end of the frozen one")
        self.assertFalse(harness.is_alive(frozen))
        self.assertEqual([e.code for e in job.events("reaped")], [137], job.report())
        self.finish(job)


class DownToOne(LossTest):
    """Case 22."""

    def test_and_back_to_two_after_the_cool_down(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2, worker=STAYS,
                       args=["--blacklist-cooldown-range", 3, 3])
        job.wait_size(2)
        world = job.world()
        job.kill(world[1].pid)
        job.wait_size(1, limit=RESUME_LIMIT_S)
        job.wait_more_steps(5)
        job.wait_size(2)
        self.assert_same_pids(job, [world[0].pid])
        self.finish(job)
        lives = job.events("spawn", host="127.0.0.1")
        self.assertEqual(len(lives), 2, job.report())
        # From the loss, which is a little earlier than the reaping.
        gap = lives[1].t - job.events("reaped", host="127.0.0.1")[0].t
        self.assertGreater(gap, 2.7)


class WhateverEndedThePeer(LossTest):
    """Case 23. SIGINT at an agent is nothing (a Ctrl-C is the driver's to judge), SIGTERM drains its
    host; to the others it is the same."""

    def check_worker(self, how):
        job = self.three()
        world = job.world()
        job.kill(world[1].pid, how)
        job.wait_size(2, limit=RESUME_LIMIT_S)
        self.assert_same_pids(job, {world[0].pid, world[2].pid})
        self.finish(job)
        self.assertEqual([e.code for e in job.events("reaped") if e.code != 0], [128 + how],
                         job.report())

    def test_worker_int(self):
        self.check_worker(signal.SIGINT)

    def test_worker_term(self):
        self.check_worker(signal.SIGTERM)

    def test_worker_kill(self):
        self.check_worker(signal.SIGKILL)

    def test_worker_segv(self):
        self.check_worker(signal.SIGSEGV)

    def signal_agent(self, how):
        job = self.three()
        world = job.world()
        agent = job.agents(world[1].host)
        self.assertEqual(len(agent), 1, job.report())
        job.kill(agent[0], how)
        return job, world, agent[0]

    def check_agent(self, how):
        job, world, agent = self.signal_agent(how)
        job.wait_size(2, limit=RESUME_LIMIT_S)
        self.assert_same_pids(job, {world[0].pid, world[2].pid})
        job.wait_for(lambda: not harness.is_alive(world[1].pid) and not harness.is_alive(agent),
                     "the end of the agent and its worker")
        self.finish(job)

    def test_agent_term(self):
        self.check_agent(signal.SIGTERM)

    def test_agent_kill(self):
        self.check_agent(signal.SIGKILL)

    def test_agent_segv(self):
        self.check_agent(signal.SIGSEGV)

    def test_agent_int(self):
        job, world, agent = self.signal_agent(signal.SIGINT)
        job.wait_more_steps(20)
        self.assertTrue(harness.is_alive(agent))
        self.assert_same_pids(job, {e.pid for e in world.values()})
        self.finish(job)
        self.assertEqual(len(job.events("form")), 1, job.report())


class Static(harness.JobTest):
    """Case 41."""

    def test_the_first_failure_ends_those_that_are_in_no_collective(self):
        grace = 2
        job = self.job(np=4, elastic=False, args=["-H", "localhost:4", "--grace", grace],
                       worker={"steps": 5000, "sleep_ms": 10, "plain": 1, "commit_every": 0,
                               "die": "2@10:7", "hang": "0@10:120000,1@10:120000,3@10:120000,2@10:1000"})
        job.wait_for(lambda: job.logged("dies"), "the failure")
        self.assert_clean(job, code=7, limit=10 + grace)
        self.assertRegex(job.last_line(), r"rank 2\b.*\b7\b", job.report())
        self.assertEqual(len(job.logged("hangs")), 4, job.report())


class FatalError(harness.JobTest):
    """Case 42."""

    def check(self, how, said):
        # Nobody takes the place of rank 1, so that the hold ends with its time.
        job = self.job(hosts="localhost:3", np=3, min_np=3, max_np=3, program=harness.CASES,
                       args=["--elastic-timeout", 3, "--grace", 2, *STAYS_OUT],
                       worker={"mode": "crash", "how": how, "go_file": GO})
        job.wait_for(lambda: len(job.logged("entry")) == 3, "all at their calls")
        job.let_go()
        self.assert_clean(job, code=75, limit=25)
        self.assertRegex(job.last_line(), rf"rank 1\b.*{said}", job.report())

    def test_exception_in_a_thread(self):
        self.check("throw", "SIGABRT")

    def test_abort(self):
        self.check("abort", "SIGABRT")

    def test_exit(self):
        self.check("exit", r"code 9\b")


class Defaults(harness.JobTest):
    """Case 43."""

    def test_an_elastic_job_survives_a_loss_without_any_option(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, worker=STAYS)
        job.wait_size(2)
        survivor = job.pid_of_rank(0)
        generation = job.generation()
        job.kill(job.pid_of_rank(1))
        job.wait_for(lambda: job.generation() > generation and job.size() > 0, "a newer world")
        self.assert_same_pids(job, [survivor])
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)


class OneCountForAll(harness.JobTest):
    """Case 44."""

    HOSTS = "localhost:1\n127.0.0.1:1\n127.0.0.2:1\n127.0.0.3:1"

    def kill_in_turn(self, *args):
        job = self.job(hosts=self.HOSTS, np=4, min_np=1, max_np=4, args=[*args, *STAYS_OUT],
                       worker=STAYS)
        job.wait_size(4)
        by_host = {e.host: e.pid for e in job.world().values()}
        for size, host in ((3, "127.0.0.1"), (2, "127.0.0.2")):
            job.kill(by_host[host])
            job.wait_size(size)
        job.kill(by_host["127.0.0.3"])
        return job, by_host["localhost"]

    def test_every_rank_sees_the_same_generations(self):
        job, survivor = self.kill_in_turn()
        job.wait_size(1)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertEqual([e.generation for e in job.events("world", pid=survivor)], [1, 2, 3, 4])
        for generation, size in ((1, 4), (2, 3), (3, 2), (4, 1)):
            members = job.events("world", generation=generation)
            self.assertEqual([e.size for e in members], [size] * size, job.report())

    def test_the_limit_is_on_that_number(self):
        job, _ = self.kill_in_turn("--reset-limit", 2)
        self.assert_clean(job, code=76)


def socket_ends(pid):
    """(local, remote) -> descriptor, of the TCP connections of a process."""
    ends = {}
    for family in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{family}", encoding="utf-8") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        inodes = {row[9]: (row[1], row[2]) for row in rows}
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
            if target.startswith("socket:[") and target[8:-1] in inodes:
                ends[inodes[target[8:-1]]] = int(descriptor)
    return ends


def shut_link(pid, peer):
    """Shuts the connections between two processes down, as a network would, and counts them."""
    theirs = socket_ends(peer)
    handle = os.pidfd_open(pid)
    count = 0
    for (local, remote), descriptor in socket_ends(pid).items():
        if (remote, local) in theirs:
            copy = ctypes.CDLL(None, use_errno=True).syscall(
                SYS_PIDFD_GETFD, handle, descriptor, 0)
            if copy < 0:
                raise OSError(ctypes.get_errno(), "pidfd_getfd")
            with socket.socket(fileno=copy) as link:
                link.shutdown(socket.SHUT_RDWR)
            count += 1
    os.close(handle)
    return count


class OneLinkBreaks(LossTest):
    """Case 46."""

    def test_all_ranks_go_back_together_and_nobody_is_expelled(self):
        # Large enough for the link: what is small goes by the control links of rank 0.
        job = self.job(hosts=THREE_HOSTS, np=3, min_np=2, max_np=3, args=STAYS_OUT,
                       program=harness.CASES, worker={"mode": "in_flight", "mb": 1, "go_file": GO})
        job.wait_size(3)
        job.wait_step(25)
        world = job.world()
        try:
            shut = shut_link(world[1].pid, world[2].pid)
        except PermissionError as error:
            self.skipTest(f"this machine lets nobody take a socket of another process: {error}")
        self.assertGreater(shut, 0, "ranks 1 and 2 have no link")
        job.wait_for(lambda: job.generation() > 1 and job.size() == 3, "the same world again")
        self.assert_same_pids(job, {e.pid for e in world.values()})
        self.finish(job)
        self.assertEqual({(e.pid, e.generation) for e in job.events("lost")},
                         {(e.pid, 1) for e in world.values()}, job.report())
        self.assertEqual([e.size for e in job.events("form")], [3, 3], job.report())
        first = {e.pid: e.step for e in reversed(job.events("step", generation=2))}
        self.assertEqual(len(set(first.values())), 1, "they went on from different steps")


class NobodyIsLeft(harness.JobTest):
    """Case 47. The state goes with its last holder, so the job does not wait for anybody."""

    def check(self, code, *args):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2, worker=STAYS,
                       args=["--elastic-timeout", 120, *args])
        job.wait_size(2)
        world = job.world()
        job.kill(world[1].pid)
        job.wait_size(1)
        job.kill(world[0].pid)
        self.assert_clean(job, code=code, limit=15)
        return job

    def test_with_hosts_set_aside_for_good(self):
        job = self.check(77, "--blame", "host")
        self.assertIn("all slots are set aside", job.last_line(), job.report())
        self.assertEqual(len(job.events("spawn")), 2, job.report())

    def test_with_slots_that_rest(self):
        job = self.check(137, *STAYS_OUT)
        self.assertIn("state", job.last_line(), job.report())


class PeerOfASetIsGone(harness.JobTest):
    """Case 85."""

    def test_before_the_first_collective_of_the_set(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1\n127.0.0.2:1", np=3, min_np=2, max_np=3,
                       args=STAYS_OUT, program=harness.CASES, worker={"mode": "set_without_peer"})
        self.assert_clean(job)
        waited = job.logged("waited")
        self.assertEqual([e.how for e in waited], ["WorkersLost"], job.report())
        self.assertLess(waited[0].seconds, 5)
        self.assertEqual([e.size for e in job.logged("done")], [2, 2], job.report())
        self.assertEqual([e.code for e in job.events("reaped") if e.code != 0], [86])


if __name__ == "__main__":
    unittest.main(verbosity=2)
