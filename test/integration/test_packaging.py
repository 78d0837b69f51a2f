"""The systemd unit: as it is installed it is valid, and an agent runs under it where systemd runs."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["MUSTER_BIN"])
UNIT = "muster-agent.service"


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=60, check=False, **options)


def systemd_runs():
    with open("/proc/1/comm", encoding="utf-8") as file:
        return file.read().strip() == "systemd"


class Packaging(unittest.TestCase):
    def setUp(self):
        self.prefix = pathlib.Path(tempfile.mkdtemp(prefix="muster-packaging-"))
        self.addCleanup(shutil.rmtree, self.prefix)
        installed = run("cmake", "--install", BIN.parent, "--prefix", self.prefix,
                        "--component", "packaging")
        self.assertEqual(installed.returncode, 0, installed.stderr)
        (self.prefix / "bin").mkdir()
        (self.prefix / "bin/muster").symlink_to(BIN / "muster")
        self.unit = self.prefix / "lib/systemd/system" / UNIT

    def test_the_unit_names_the_installed_program(self):
        text = self.unit.read_text(encoding="utf-8")
        self.assertIn(f"ExecStart={self.prefix}/bin/muster agent --join ", text)
        self.assertNotIn("@", text.replace("@reboot", ""))
        self.assertTrue((self.prefix / "lib/sysusers.d/muster.conf").is_file())

    def verify(self):
        # Only this unit: other units of the machine may have faults of their own.
        result = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", self.unit)
        return result.returncode, result.stdout + result.stderr

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze here")
    def test_the_unit_is_valid(self):
        code, said = self.verify()
        self.assertEqual(code, 0, said)
        self.assertNotIn(UNIT, said)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "there is no systemd-analyze here")
    def test_a_bad_unit_would_be_found(self):
        text = self.unit.read_text(encoding="utf-8")
        self.unit.write_text(text.replace("KillMode=mixed", "KillMode=gently"), encoding="utf-8")
        self.assertIn("kill mode", self.verify()[1])
        self.unit.write_text(text.replace("/bin/muster", "/bin/nothing"), encoding="utf-8")
        self.assertNotEqual(self.verify()[0], 0)

    def test_the_example_sets_what_the_unit_needs(self):
        example = next(self.prefix.rglob("agent.conf.example")).read_text(encoding="utf-8")
        for name in ("MUSTER_DRIVER=", "MUSTER_SLOTS="):
            self.assertIn("\n" + name, example)

    @unittest.skipUnless(systemd_runs(), "systemd is not the first process here")
    @unittest.skipUnless(os.geteuid() == 0, "only root may add a unit")
    def test_an_agent_runs_under_systemd(self):
        # A driver that nobody sees: the agent is up, looks for it, and ends when it is stopped.
        conf = self.prefix / "agent.conf"
        conf.write_text("MUSTER_DRIVER=127.0.0.1:1\n", encoding="utf-8")
        secret = self.prefix / "secret"
        secret.write_text("s" * 32, encoding="utf-8")
        secret.chmod(0o600)
        text = (self.unit.read_text(encoding="utf-8")
                .replace("/etc/muster/agent.conf", str(conf))
                .replace("/etc/muster/secret", str(secret))
                .replace("User=muster\n", ""))
        name = f"muster-agent-test-{os.getpid()}.service"
        path = pathlib.Path("/run/systemd/system") / name
        path.write_text(text, encoding="utf-8")
        self.addCleanup(run, "systemctl", "daemon-reload")
        self.addCleanup(path.unlink)
        run("systemctl", "daemon-reload")
        started = run("systemctl", "start", name)
        self.addCleanup(run, "systemctl", "stop", name)
        self.assertEqual(started.returncode, 0, started.stderr)
        self.assertEqual(run("systemctl", "is-active", name).stdout.strip(), "active")
        run("systemctl", "stop", name)
        shown = run("systemctl", "show", name, "--property=Result,ExecMainStatus").stdout
        self.assertIn("Result=success", shown)
        self.assertIn("ExecMainStatus=0", shown)


if __name__ == "__main__":
    unittest.main(verbosity=2)
