"""Control groups (cgroup v2), where they can be written: a limit of memory and of processes over all that one test or compiler starts, and one
write that kills it all. Elsewhere rlimits and the supervisor (sandbox.py) stand alone."""

import atexit
import functools
import itertools
import os
import pathlib
import time

CONTROLLERS = ("memory", "pids")
counter = itertools.count()


@functools.cache
def base():
    """Where cgroup v2 is mounted, or nothing."""
    try:
        fields = (line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines())
        return next((pathlib.Path(words[1]) for words in fields if words[2] == "cgroup2"), None)
    except OSError:
        return None


@functools.cache
def controllers(folder):
    """Which of CONTROLLERS groups in this folder get; they are switched on where the kernel lets us."""
    for name in CONTROLLERS:
        try:
            (folder / "cgroup.subtree_control").write_text(f"+{name}")
        except OSError:  # not there, not ours, or the folder has processes of its own
            pass
    try:
        return set((folder / "cgroup.subtree_control").read_text().split()) & set(CONTROLLERS)
    except OSError:
        return set()


class Cgroup:
    """One, for the processes that `enter` it; false where none can be made."""

    def __init__(self, megabytes, processes, folder=None):
        folder, self.folder = folder or base(), None
        if not folder:
            return
        there = controllers(folder)
        try:
            new = folder / f"cairn-{os.getpid()}-{next(counter)}"
            new.mkdir()
            self.folder = new
            if "memory" in there:
                for name, value in (("memory.max", megabytes << 20), ("memory.oom.group", 1)):
                    (new / name).write_text(str(value))
            if "pids" in there:
                (new / "pids.max").write_text(str(processes))
        except OSError:
            self.close()

    def __bool__(self):
        return self.folder is not None

    def enter(self):
        """Called by a process of its own accord, before it becomes the command."""
        (self.folder / "cgroup.procs").write_text("0")

    def out_of_memory(self):
        try:
            events = dict(line.split() for line in (self.folder / "memory.events").read_text().splitlines()) if self else {}
        except OSError:  # no controller of memory
            return False
        return int(events.get("oom_kill", 0)) > 0

    def kill(self):
        if self:
            try:
                (self.folder / "cgroup.kill").write_text("1")
            except OSError:  # since Linux 5.14; the supervisor ends them too
                pass

    def close(self):
        """When its processes have been waited for."""
        for _ in range(100):
            try:
                if self:
                    self.folder.rmdir()
                break
            except OSError:
                time.sleep(0.002)
        self.folder = None


@atexit.register
def remove_left():
    """A signal that stops the grader can come between the line that makes a group and the one that would close it."""
    for left in base().glob(f"cairn-{os.getpid()}-*") if base() else ():
        try:
            left.rmdir()
        except OSError:  # it has processes: another grader's, in another PID namespace
            pass


def missing():
    """What groups of processes lack on this machine, in words; empty if nothing."""
    with_limits = controllers(where) if (where := base()) else set()
    group = Cgroup(64, 8)
    made = bool(group)
    group.close()
    if not made:
        return "cgroup v2 cannot be written: memory and processes are limited by rlimits and looked at ten times a second"
    lacking = [name for name in CONTROLLERS if name not in with_limits]
    return f"cgroup v2 has no controller of {' and '.join(lacking)}: rlimits, and a look ten times a second, stand in" if lacking else ""
