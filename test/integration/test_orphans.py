"""User case 57 and the kills of driver and agent: nothing of a job outlives it."""

import fcntl
import os
import pty
import signal
import subprocess
import termios
import unittest

import harness
from harness import GO

STAYS_OUT = ["--blacklist-cooldown-range", 120, 120]
# Children that have left the session, and everybody deaf to SIGTERM.
STUBBORN = {"steps": 100000, "sleep_ms": 20, "children": 1, "ignore_term": 1}


class DriverEnds(harness.JobTest):
    """Case 57."""

    def start(self):
        job = self.job(hosts="localhost:2\n127.0.0.1:2", np=4, min_np=1, args=["--grace", 1],
                       worker=STUBBORN)
        job.wait_size(4)
        # Four workers with a child each, two agents with a reaper each, the driver.
        self.assertGreaterEqual(len(harness.descendants_by_token(job.token)), 13, job.report())
        return job

    def check(self, how, code):
        job = self.start()
        job.kill(job.pid, how)
        self.assertEqual(job.wait_exit(20), code)
        self.assert_no_process(job)

    def test_by_kill(self):
        self.check(signal.SIGKILL, -signal.SIGKILL)

    def test_by_term(self):
        self.check(signal.SIGTERM, 143)

    def test_by_int(self):
        self.check(signal.SIGINT, 130)

    def test_by_hup(self):
        self.check(signal.SIGHUP, 129)

    def test_with_both_agents(self):
        job = self.start()
        agents = job.agents()
        self.assertEqual(len(agents), 2, job.report())
        job.kill_all([job.pid, *agents])
        job.wait_exit(20)
        self.assert_no_process(job)

    def test_after_both_agents(self):
        job = self.start()
        agents = job.agents()
        self.assertEqual(len(agents), 2, job.report())
        job.kill_all([*agents, job.pid])
        job.wait_exit(20)
        self.assert_no_process(job)

    def test_with_all_reapers(self):
        job = self.start()
        reapers = job.reapers()
        self.assertEqual(len(reapers), 2, job.report())
        job.kill_all([*reapers, job.pid])
        job.wait_exit(20)
        self.assert_no_process(job)


class Terminal(harness.JobTest):
    """Case 57."""

    def test_closing_it_ends_the_job(self):
        try:
            master, slave = pty.openpty()
        except OSError as error:
            self.skipTest(f"this machine gives no terminal (is /dev/pts mounted?): {error}")
        job = harness.Job(hosts="localhost:2", min_np=1, args=["--grace", 1], worker=STUBBORN)
        self.addCleanup(lambda: job.close(keep=self._failed()))

        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        job.started = harness.time.monotonic()
        job.process = subprocess.Popen(job.argv, cwd=job.folder, env=job.environment, stdin=slave,
                                       stdout=slave, stderr=slave, preexec_fn=take_terminal)
        os.close(slave)
        drain = os.fdopen(master, "rb", buffering=0)
        os.set_blocking(master, False)
        job.wait_size(2)
        drain.close()
        job.wait_exit(20)
        self.assert_no_process(job)


class AgentEnds(harness.JobTest):
    def check(self, victims_of):
        job = self.job(hosts="localhost:1\n127.0.0.1:2", np=3, min_np=1, max_np=3, args=STAYS_OUT,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO, "children": 1,
                               "ignore_term": 1})
        job.wait_size(3)
        survivor = job.pid_of_rank(0)
        self.assertEqual(job.world()[0].host, "localhost")
        lost = {e.pid for e in job.events("init", host="127.0.0.1")}
        agent = job.agents("127.0.0.1")
        self.assertEqual(len(agent), 1, job.report())
        job.kill_all(victims_of(agent[0]))
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost),
                     "the end of its workers", limit=harness.LEFTOVER_S)
        job.wait_size(1)
        self.assert_same_pids(job, [survivor])
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_agent(self):
        self.check(lambda agent: [agent])

    def test_reaper(self):
        self.check(lambda agent: [harness.parent_of(agent)])

    def test_both(self):
        self.check(lambda agent: [agent, harness.parent_of(agent)])


class AgentHangs(harness.JobTest):
    """A stopped agent, for which no lease runs: after --driver-grace the driver ends it."""

    def check(self, victims_of):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", np=2, min_np=1, max_np=2,
                       args=["--driver-grace", 2, "--blacklist-cooldown-range", 1, 1],
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO, "children": 1})
        job.wait_size(2)
        survivor = job.pid_of_rank(0)
        lost = [e.pid for e in job.events("init", host="127.0.0.1")]
        agent, = job.agents("127.0.0.1")
        victims = victims_of(agent)
        for pid in victims:
            job.kill(pid, signal.SIGSTOP)
        job.wait_size(1)
        self.assert_same_pids(job, [survivor])
        generation = job.generation()
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost + victims),
                     "the end of the agent and its workers", limit=20)
        job.wait_size(2, after_generation=generation)
        self.assert_same_pids(job, [survivor])
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_the_agent_proper(self):
        self.check(lambda agent: [agent])

    def test_with_its_reaper(self):
        self.check(lambda agent: [agent, harness.parent_of(agent)])


class DriverPauses(harness.JobTest):
    def test_stop_and_continue_lose_nothing(self):
        job = self.job(hosts="localhost:1\n127.0.0.1:1", min_np=1,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(2)
        generation = job.generation()
        pids = {e.pid for e in job.world().values()}
        stopped_at = job.events()[-1].t
        job.kill(job.pid, signal.SIGSTOP)
        # Longer than any agent may be silent.
        job.wait_for(lambda: job.events()[-1].t > stopped_at + 5, "five seconds of training")
        job.kill(job.pid, signal.SIGCONT)
        job.wait_more_steps(50)
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, pids)
        # It still drives: a loss is handled.
        job.kill(job.pid_of_rank(1))
        job.wait_size(2, after_generation=generation)
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)

    def test_a_loss_meanwhile_is_handled_afterwards(self):
        job = self.job(hosts="localhost:2", min_np=1, args=STAYS_OUT,
                       worker={"steps": 60, "sleep_ms": 20, "go_file": GO})
        job.wait_size(2)
        survivor = job.pid_of_rank(0)
        job.kill(job.pid, signal.SIGSTOP)
        job.kill(job.pid_of_rank(1))
        stopped_at = job.events()[-1].t
        deadline = harness.time.monotonic() + 1
        job.wait_for(lambda: harness.time.monotonic() > deadline, "a second")
        job.kill(job.pid, signal.SIGCONT)
        job.wait_size(1)
        self.assert_same_pids(job, [survivor])
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        self.assertGreater(job.events("step")[-1].t, stopped_at)


if __name__ == "__main__":
    unittest.main(verbosity=2)
