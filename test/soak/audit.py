"""Does a process of the job grow, and is anything left at the end?"""

import contextlib
import os

import harness

# Of processes that have lived for so long, from their youth to their last looks.
AGE_S = 60
YOUTH_S = 10
LOOKS = 4
DESCRIPTORS_MAX = 8
THREADS_MAX = 4
RSS_MB_MAX = 32
# Of /proc/PID/stat, behind the name: when it was started.
START_FIELD = 19


def _status(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    return 0


# Where a process may leave something that is not in a folder of its own.
SCRATCH = ("/tmp/", "/dev/shm/", "/run/", "/var/tmp/")
DELETED = " (deleted)"


def network_of(pid):
    """Its namespace; None if it has ended."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/net").st_ino


def paths_of(pid, outside):
    """The files in SCRATCH that it has open, and the sockets there that are bound in its network.
    That is the job's own, so other jobs of this machine have no part in it; whoever still is in the
    network `outside` is on the way into one."""
    paths = set()
    if network_of(pid) in (None, outside):
        return paths
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # Closed meanwhile.
                paths.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        with open(f"/proc/{pid}/net/unix", encoding="utf-8") as file:
            paths |= {words[7] for words in map(str.split, file) if len(words) > 7}
    return {path for path in paths if path.startswith(SCRATCH) and not path.endswith(DELETED)}


def look(pid):
    """(descriptors, threads, MiB of memory), or None if it has ended."""
    try:
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        return descriptors, _status(pid, "Threads"), _status(pid, "VmRSS") / 1024
    except (OSError, ValueError, IndexError):
        return None


def life_of(pid):
    """The pid and the start of its process: within an hour numbers are used again. None: it has
    ended."""
    fields = harness.stat_fields(pid)
    return (pid, int(fields[START_FIELD])) if fields else None


def role_of(pid, driver):
    if pid == driver:
        return "driver"
    if harness.command_line(pid)[1:2] == ["agent"]:
        parent = harness.command_line(harness.parent_of(pid))
        return "agent" if parent[1:2] == ["agent"] else "reaper"
    return "worker" if b"MUSTER_INCARNATION=" in harness.process_environment(pid) else None


class Audit:
    def __init__(self, token, driver):
        self.token = token
        self.driver = driver
        self._paths = set()
        self._outside = network_of("self")
        self._lives = {}  # life_of -> (role, first seen, looks of its youth, last looks, last seen)

    def sample(self, now):
        for pid in harness.descendants_by_token(self.token):
            self._paths |= paths_of(pid, self._outside)
            key = life_of(pid)
            if key is not None and key not in self._lives:
                role = role_of(pid, self.driver)
                if role is not None:
                    self._lives[key] = [role, now, [], [], now]
            life = self._lives.get(key)
            seen = look(pid)
            if life is None or seen is None or now - life[1] < YOUTH_S:
                continue
            if len(life[2]) < LOOKS:
                life[2].append(seen)
            life[3] = (life[3] + [seen])[-LOOKS:]
            life[4] = now

    def growth(self):
        """role -> (how many lived long enough, most growth of descriptors, threads, MiB), from the
        most of a few looks to the least of a few: an agent has some of each per worker, and what a
        change of world opens is closed after it."""
        found = {}
        for role, first, youth, last, seen in self._lives.values():
            if seen - first < AGE_S or len(youth) < LOOKS:
                continue
            grown = [min(x[i] for x in last) - max(x[i] for x in youth) for i in range(3)]
            count, *most = found.get(role, (0, -999, -999, -999.0))
            found[role] = (count + 1, *map(max, most, grown))
        return found

    def leaks(self):
        return [f"{role}: {fds} descriptors, {threads} threads, {mb:.0f} MiB more than in its youth"
                for role, (_, fds, threads, mb) in self.growth().items()
                if fds > DESCRIPTORS_MAX or threads > THREADS_MAX or mb > RSS_MB_MAX]

    def leftovers(self, own, disk):
        """What is still there of what the job was seen to use outside of the folders `own`, and
        what Muster has made on its disk."""
        folders = tuple(os.path.join(folder, "") for folder in own)
        used = {path for path in self._paths
                if not path.startswith(folders) and os.path.lexists(path)}
        return used | {os.path.join(disk, name) for name in os.listdir(disk)
                       if name.startswith("muster-")}
