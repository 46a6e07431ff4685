"""Runs programs with limits of time, memory, processes and output, with a clean environment, as an unprivileged user where the grader is root, inside
landlock and, what is made of a submission, behind a filter of system calls (seccomp.py). Whatever they started is gone when their group ends."""

import os
import pathlib
import resource
import selectors
import signal
import stat
import subprocess
import time
from dataclasses import dataclass

from . import cgroup, landlock, seccomp

KEPT = ("LANG", "LC_ALL", "PATH", "TZ")
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/nix", "/gnu", "/sys/devices/system/cpu",
             "/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
SYSTEM = (*LIBRARIES, "/usr", "/bin", "/opt", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/proc/cpuinfo", "/proc/meminfo")  # for compilers
STALLED = 10  # seconds in which nothing runs: it will not go on
NOT_DUMPABLE, SUBREAPER, DIES_WITH_PARENT = 4, 36, 1  # prctl
NEW_NET, NEW_IPC = 0x40000000, 0x08000000


@dataclass(frozen=True)
class Limits:
    cpu_seconds: float  # of each process
    seconds: float  # by the clock
    megabytes: int  # of each process, and resident of all together
    processes: int = 64  # and threads
    output_kilobytes: int = 64


def private_user(which=0):
    """The number of a user that nobody else is: of this grader, the compilers' (0) or that of rank which − 1; nothing where the grader is not root."""
    return None if os.geteuid() else 61184 + (64 * os.getpid() + which) % 4096


def open_to_compilers(path):
    """Which of the folders that compilers may read holds this path, or nothing."""
    return next((folder for folder in SYSTEM if path.is_relative_to(folder)), None)


def missing_protection():
    """What this grader cannot guard against on this machine, in words."""
    missing = []
    if os.geteuid():
        missing.append("the grader is not root: submissions run as its own user")
    if not seccomp.supported():
        missing.append("the kernel has no seccomp, or this processor is not known: submissions can start processes and write files")
    if not landlock.version():
        missing.append("the kernel has no landlock: submissions can read what their user can read" +
                       ("" if os.geteuid() == 0 else ", this repository and its hidden tests too"))
    here = pathlib.Path(__file__).resolve()
    if (place := open_to_compilers(here)) and (os.geteuid() or readable_by_others(here.parents[2])):
        missing.append(f"the grader and its hidden tests lie in {place}, which compilers may read")
    if without := cgroup.missing():
        missing.append(without)
    return missing


def restrictions(limits, read, write, confined, user, group):
    """What a process does before it becomes the command."""
    threads = limits.processes if user else limits.processes + own_threads()
    filtered = confined and seccomp.supported()
    cpu = max(1, int(limits.cpu_seconds + 0.999))
    file_bytes, memory_bytes = 0 if confined else 256 << 20, limits.megabytes << 20

    def restrict():
        os.setsid()
        if group:
            group.enter()
        try:
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")  # not the grader, where memory runs out
        except OSError:
            pass
        # The soft limit of processor time says "an endless loop?", the hard one ends what does not listen.
        for what, soft, most in ((resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_CPU, cpu, cpu + 1),
                                 (resource.RLIMIT_FSIZE, file_bytes, file_bytes),
                                 (resource.RLIMIT_DATA, memory_bytes, memory_bytes), (resource.RLIMIT_NPROC, threads, threads),
                                 (resource.RLIMIT_NOFILE, 256, 256)):
            hard = resource.getrlimit(what)[1]
            soft, most = (x if hard == resource.RLIM_INFINITY else min(x, hard) for x in (soft, most))
            resource.setrlimit(what, (soft, most))
        if not filtered:  # the filter refuses sockets and IPC objects; a namespace costs 0.5 ms
            landlock.libc.unshare(NEW_NET | NEW_IPC)  # which only root may
        landlock.restrict(read=read, write=write)
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        landlock.libc.prctl(DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if filtered:
            seccomp.restrict()

    return restrict


def own_threads():
    """Of all processes of this user: the limit of processes counts them."""
    count = 0
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            count += len(os.listdir(path / "task")) if path.stat().st_uid == os.getuid() else 0
        except OSError:
            pass
    return count


def cut(text, room):
    return text if len(text) <= room else text[: room // 2] + "\n[… cut …]\n" + text[-room // 2:]


class Process:
    """One of a group."""

    def __init__(self, popen, limits, counted):
        self.popen, self.limits, self.counted = popen, limits, counted
        self.output = bytearray()
        self.cpu_seconds = 0.0

    def text(self):
        return cut(bytes(self.output).decode(errors="replace"), self.limits.output_kilobytes << 10)


class Group:
    """Processes that share limits of the clock and of memory; leaving it ends them, and all that they started."""

    def __init__(self, limits, ranks=1):
        self.limits, self.started = limits, time.monotonic()
        self.processes, self.megabytes, self.ended_by = [], 0.0, None
        self.cgroup = cgroup.Cgroup(limits.megabytes, ranks * limits.processes)
        self._looked, self._ran, self._cpu = 0.0, self.started, 0.0
        self._pipes = selectors.DefaultSelector()
        landlock.libc.prctl(SUBREAPER, 1, 0, 0, 0)  # whoever leaves its process group is still ours
        landlock.libc.prctl(NOT_DUMPABLE, 0, 0, 0, 0)  # this process's memory and environment hold the course's secret

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start(self, command, folder, limits=None, descriptors=(), environment=None, read=(), write=(), confined=False, user=None, counted=True):
        """`confined`: made of a submission. `counted`: its memory counts."""
        limits = limits or self.limits
        popen = subprocess.Popen([str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 pass_fds=descriptors, preexec_fn=restrictions(limits, tuple(map(str, read)), tuple(map(str, write)), confined, user,
                                                                               self.cgroup if counted else None),
                                 env={**{k: v for k in KEPT if (v := os.environ.get(k))}, "HOME": str(folder), "TMPDIR": str(folder), **(environment or {})})
        process = Process(popen, limits, counted)
        self.processes.append(process)
        self.listen(popen.stdout.fileno(), process.output.extend)
        return process

    def listen(self, descriptor, heard):
        """heard(bytes) is called with what comes, and with nothing at its end."""
        self._pipes.register(descriptor, selectors.EVENT_READ, heard)

    def pending(self):
        return bool(self._pipes.get_map()) and bool(self._pipes.select(0))

    def step(self):
        """Waits a moment for output. The limit that is reached: "output", "memory", "time", "stalled", or nothing."""
        for key, _ in self._pipes.select(0.05) if self._pipes.get_map() else [time.sleep(0.02)] and ():
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:
                self._pipes.unregister(key.fd)
            key.data(chunk)
        now = time.monotonic()
        if any(len(process.output) > process.limits.output_kilobytes << 14 for process in self.processes):
            self.ended_by = "output"
        elif now - self._looked > 0.1:
            self._looked = now
            self._look(now)
        return self.ended_by

    def drain(self):
        """Reads what is left in the pipes, for a second: who writes there may go on for ever."""
        end = time.monotonic() + 1
        while self.pending() and not self.step() and time.monotonic() < end:
            pass

    def _look(self, now):
        family, alive = descendants(), [p for p in self.processes if p.popen.poll() is None]
        running, total, megabytes = not alive, 0.0, 0.0
        for process in alive:
            own = [family[process.popen.pid]] if process.popen.pid in family else []
            own += [one for one in family.values() if one.ancestor == process.popen.pid]
            process.cpu_seconds = max(process.cpu_seconds, sum(one.seconds for one in own))
            megabytes += sum(one.megabytes for one in own) * process.counted
        for one in family.values():
            running, total = running or one.state in "RD", total + one.seconds
        if running or total > self._cpu + 0.05:
            self._ran, self._cpu = now, total
        self.megabytes = max(self.megabytes, megabytes)
        for which, reached in (("memory", megabytes > self.limits.megabytes), ("time", now - self.started > self.limits.seconds),
                               ("stalled", now - self._ran > STALLED)):
            if reached:
                self.ended_by = which

    def reached(self):
        """The limit that ended it, also where the kernel was quicker than this process."""
        if not self.ended_by and self.cgroup.out_of_memory():
            self.ended_by, self.megabytes = "memory", max(self.megabytes, self.limits.megabytes)
        return self.ended_by

    def end(self):
        self.cgroup.kill()
        for process in self.processes:
            process.popen.kill()
        end_all()
        for process in self.processes:
            process.popen.wait()
            process.popen.stdout.close()
        self.cgroup.close()
        self._pipes.close()


@dataclass
class Figures:
    seconds: float
    megabytes: float
    state: str
    ancestor: int  # the child of this process from which it descends


def descendants():
    """{process: Figures} of all that this process started; orphans come to it too."""
    children, figures = {}, {}
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    for entry in os.listdir("/proc"):
        try:
            fields = pathlib.Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split() if entry.isdigit() else None
        except OSError:
            continue
        if fields:  # fields[0] is the third of proc(5)
            children.setdefault(int(fields[1]), []).append(int(entry))
            figures[int(entry)] = Figures(sum(map(int, fields[11:15])) / tick, int(fields[21]) * page / 1e6, fields[0].decode(), 0)
    family, todo = {}, [(os.getpid(), 0)]
    while todo:
        parent, ancestor = todo.pop()
        for child in children.get(parent, ()):
            figures[child].ancestor = ancestor
            family[child] = figures[child]
            todo.append((child, ancestor or child))
    return family


def end_all():
    """Kills every descendant, also those that fork while they are killed, or have left their process group."""
    for _ in range(200):
        alive = [process for process, one in descendants().items() if one.state != "Z"]
        if not alive:
            return
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for process in alive:
                try:
                    os.kill(process, sign)
                except OSError:
                    pass
        time.sleep(0.005)


@dataclass
class Outcome:
    status: int  # negative: the signal that ended it
    ended_by: str | None
    output: str
    seconds: float
    megabytes: float

    @property
    def reason(self):
        return reason(self.ended_by, self.status, self.seconds, self.megabytes)


def reason(ended_by, status, seconds, megabytes):
    """Why a process did not end well, in words; empty if it did."""
    if ended_by:
        return {"time": f"it was stopped after {seconds:.0f} s: does it wait for something that does not come?",
                "stalled": f"nothing has run for {STALLED} s: does it wait for something that does not come?",
                "memory": f"it was stopped at {megabytes:.0f} MB, over its memory limit",
                "output": "it was stopped because it printed without end"}[ended_by]
    if status < 0:
        what = {signal.SIGSEGV: "it read or wrote memory that is not its own (segmentation fault), or called itself without end",
                signal.SIGABRT: "it was aborted: an index out of range, memory overwritten, or an exception in a thread or before main",
                signal.SIGFPE: "it divided an integer by zero",
                signal.SIGXCPU: "it used up its processor time: an endless loop?",
                signal.SIGXFSZ: "it wrote a file",
                signal.SIGKILL: "it was killed: an endless loop, or more memory than this machine has?"}
        return what.get(-status, f"signal {-status} ended it")
    return f"it ended with status {status}" if status else ""


def run(command, limits, folder, read=(), write=(), user=None):
    """Runs one command, a compiler, to its end."""
    with Group(limits) as group:
        process = group.start(command, folder, read=(*SYSTEM, *read), write=("/dev/null", *write), user=user)
        while (process.popen.poll() is None or group.pending()) and not group.step():
            pass
        status, ended_by = process.popen.poll(), group.reached()
    return Outcome(status if status is not None else -signal.SIGKILL, ended_by, process.text(), time.monotonic() - group.started, group.megabytes)


def readable_by_others(path):
    """Can a user without rights read this file or folder?"""
    path = pathlib.Path(path).resolve()
    return bool(path.stat().st_mode & stat.S_IROTH) and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
