"""Agents that dial in: nobody starts them, and they are the discovery."""

import os
import signal
import subprocess
import time
import unittest

import harness
import netns
from harness import GO

PORT = 41500
MUSTER = os.path.join(harness.BIN, "muster")
STAYS = {"steps": 60, "sleep_ms": 20, "go_file": GO}
COMES_BACK = ["--blacklist-cooldown-range", 1, 1]
SECRET = "0123456789abcdef" * 4
LEASE_S = 3


class JoinTest(netns.NetworkTest):
    HOSTS = ()
    OPTIONS = {"clients": ("driver", "nodea", "nodeb", "nodec")}

    def setUp(self):
        super().setUp()
        self.secret = self.write_secret("secret", SECRET)

    def write_secret(self, name, text):
        path = os.path.join(self.network.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.chmod(path, 0o600)
        return path

    def start_job(self, np=2, worker=None, args=(), **options):
        return self.job(elastic=False, np=np, min_np=1, max_np=4, worker=worker or STAYS,
                        args=["--accept-agents", PORT, "--secret-file", self.secret,
                              *COMES_BACK, *args], **options)

    def join(self, host, name=None, secret=None, timeout=30, slots=1):
        """An agent; its first process, the reaper, is what is returned."""
        command = self.network.inside(host) + [
            MUSTER, "agent", "--join", f"{self.network.address('driver')}:{PORT}",
            "--slots", str(slots), "--host", name or host, "--join-timeout", str(timeout)]
        environment = {**os.environ, harness.TOKEN_NAME: self.network.token,
                       "MUSTER_SECRET_FILE": secret or self.secret}
        agent = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 start_new_session=True, preexec_fn=harness.die_with_the_harness)
        self.addCleanup(agent.stdout.close)
        self.addCleanup(agent.wait)
        self.addCleanup(lambda: agent.poll() is None and agent.kill())
        return agent

    def join_training(self, hosts=("nodea", "nodeb"), **options):
        job = self.start_job(np=len(hosts), **options)
        agents = {host: self.join(host) for host in hosts}
        job.wait_size(len(hosts))
        job.wait_step(12)
        return job, agents

    def wait_agent(self, agent, limit=20):
        try:
            code = agent.wait(limit)
        except subprocess.TimeoutExpired:
            self.fail(f"the agent still runs after {limit} s")
        return code, agent.stdout.read()

    def finish(self, job, agents=()):
        job.let_go()
        self.assert_clean(job)
        self.assert_commits_kept(job)
        for agent in agents:
            code, text = self.wait_agent(agent)
            self.assertEqual(code, 0, text)


class Joins(JoinTest):
    def test_each_agent_that_dials_in_adds_its_slots(self):
        job, agents = self.join_training()
        pids = {e.pid for e in job.world().values()}
        agents["nodec"] = self.join("nodec", slots=2)
        job.wait_size(4)
        self.assert_same_pids(job, pids)
        self.assertEqual(sorted(e.host for e in job.world().values()),
                         ["nodea", "nodeb", "nodec", "nodec"])
        self.finish(job, agents.values())
        self.assertEqual(job.events("lost"), [], job.report())

    def test_agents_may_come_before_the_driver(self):
        agents = [self.join("nodea"), self.join("nodeb")]
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            for agent in agents:
                self.assertIsNone(agent.poll())
            time.sleep(harness.POLL_S)
        job = self.start_job()
        job.wait_size(2, limit=20)
        self.finish(job, agents)

    def test_without_a_driver_an_agent_gives_up_and_says_where_it_looked(self):
        started = time.monotonic()
        code, text = self.wait_agent(self.join("nodea", timeout=2))
        self.assertNotEqual(code, 0)
        self.assertIn(f"{self.network.address('driver')}:{PORT}", text)
        self.assertGreater(time.monotonic() - started, 1.5)

    def test_a_wrong_secret_is_told_and_the_job_does_not_care(self):
        job, agents = self.join_training()
        generation = job.generation()
        code, text = self.wait_agent(
            self.join("nodec", secret=self.write_secret("wrong", "f" * 64), timeout=2))
        self.assertNotEqual(code, 0)
        self.assertRegex(text, "(?i)secret")
        self.assertNotIn(SECRET, text)
        job.wait_more_steps(20)
        self.assertEqual(job.generation(), generation, job.report())
        self.finish(job, agents.values())

    def test_a_host_that_is_there_already_is_refused(self):
        job, agents = self.join_training()
        generation = job.generation()
        pids = {e.pid for e in job.world().values()}
        code, text = self.wait_agent(self.join("nodec", name="nodea", timeout=2))
        self.assertNotEqual(code, 0)
        self.assertIn("nodea", text)
        job.wait_more_steps(20)
        self.assertEqual(job.generation(), generation, job.report())
        self.assert_same_pids(job, pids)
        self.finish(job, agents.values())

    def test_a_missing_secret_file_is_an_error_at_once(self):
        code, text = self.wait_agent(self.join("nodea", secret="/nonexistent/secret"), limit=5)
        self.assertNotEqual(code, 0)
        self.assertIn("/nonexistent/secret", text)


class Leaves(JoinTest):
    def test_by_term_it_is_drained_and_nothing_is_lost(self):
        job, agents = self.join_training(("nodea", "nodeb", "nodec"))
        leaving = job.world()[0].host
        pids = {e.pid for e in job.world().values() if e.host != leaving}
        agents[leaving].terminate()
        job.wait_size(2)
        self.assert_same_pids(job, pids)
        code, text = self.wait_agent(agents.pop(leaving))
        self.assertEqual(code, 0, text)
        self.finish(job, agents.values())
        self.assertEqual(job.events("lost"), [], job.report())
        self.assertEqual(job.events("reaped", code=137), [], job.report())

    def test_killed_it_costs_its_host_only_and_may_come_again(self):
        job, agents = self.join_training(("nodea", "nodeb", "nodec"),
                                         args=["--driver-grace", LEASE_S])
        pids = {e.pid for e in job.world().values() if e.host != "nodeb"}
        lost = {e.pid for e in job.world().values() if e.host == "nodeb"}
        generation = job.generation()
        proper = self.agent(job, "nodeb")
        job.kill_all([proper, agents["nodeb"].pid])
        agents.pop("nodeb").wait(10)
        job.wait_size(2, after_generation=generation)
        self.assert_same_pids(job, pids)
        job.wait_for(lambda: not any(harness.is_alive(pid) for pid in lost), "its worker's end")
        generation = job.generation()
        agents["nodeb"] = self.join("nodeb")
        job.wait_size(3, after_generation=generation)
        self.assert_same_pids(job, pids)
        self.finish(job, agents.values())

    def test_cut_off_within_the_lease_it_is_reattached(self):
        job, agents = self.join_training(args=["--driver-grace", 20])
        survivors = {e.pid for e in job.world().values() if e.host == "nodea"}
        generation = job.generation()
        proper = self.agent(job, "nodeb")
        self.network.cut("nodeb")
        job.wait_size(1, after_generation=generation)
        generation = job.generation()
        self.network.heal("nodeb")
        job.wait_size(2, after_generation=generation)
        self.assert_same_pids(job, survivors)
        self.assertEqual(self.agent(job, "nodeb"), proper)
        self.finish(job, agents.values())

    def test_when_the_driver_is_killed_all_ends_with_the_lease(self):
        job, agents = self.join_training(args=["--driver-grace", LEASE_S])
        job.kill(job.pid)
        self.assertEqual(job.wait_exit(20), -signal.SIGKILL)
        for agent in agents.values():
            code, text = self.wait_agent(agent, LEASE_S + harness.LEFTOVER_S)
            self.assertNotEqual(code, 0, text)
        self.assert_no_process(job)


if __name__ == "__main__":
    unittest.main(verbosity=2)
