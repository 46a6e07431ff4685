"""Runs one command with limits of time, memory, processes, disk and output, in a folder of its own, with a clean environment, as an unprivileged
user where the grader is root, and inside landlock where the kernel has it. Whatever the command started is gone when run() returns."""

import os
import pathlib
import resource
import selectors
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass

from . import landlock

KEPT = ("LANG", "LC_ALL", "PATH", "TZ")
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc", "/opt", "/nix", "/gnu", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys", "/dev/urandom", "/dev/random", "/dev/zero")
SHARED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")  # where everybody may write
DISK_MEGABYTES = 64
NOT_DUMPABLE, SUBREAPER = 4, 36  # prctl


@dataclass(frozen=True)
class Limits:
    cpu_seconds: float  # of all its processes together
    seconds: float  # by the clock
    megabytes: int  # resident, of all its processes together
    processes: int = 64  # and threads
    output_kilobytes: int = 64


@dataclass
class Outcome:
    status: int | None  # exit status; None where a signal or a limit ended it
    signal: int | None
    ended_by: str | None  # the limit that ended it: "cpu", "time", "memory", "output", "disk"
    output: str  # stdout and stderr together, cut
    verdict: bytes  # what came through the grader's own pipe
    seconds: float
    cpu_seconds: float
    megabytes: float  # the most that its processes held together
    strays: tuple = ()  # files that it left outside of its folder

    @property
    def reason(self):
        """Why it did not end well, in words; empty if it did."""
        if self.strays:
            return f"it wrote outside its folder: {', '.join(self.strays)}"
        if self.ended_by:
            return {"cpu": f"it was stopped after {self.cpu_seconds:.0f} s of processor time, its limit: an endless loop?",
                    "time": f"it was stopped after {self.seconds:.0f} s, {self.cpu_seconds:.0f} s of them of processor time: it waits for something that does not come?",
                    "memory": f"it was stopped at {self.megabytes:.0f} MB, over its memory limit",
                    "output": "it was stopped because it printed without end",
                    "disk": f"it was stopped because it wrote more than {DISK_MEGABYTES} MB of files"}[self.ended_by]
        if self.signal:
            what = {signal.SIGSEGV: "it read or wrote memory that is not its own (segmentation fault)",
                    signal.SIGABRT: "it was aborted: memory was overwritten, an index was out of range, or an exception left a thread or came before main",
                    signal.SIGFPE: "it divided an integer by zero",
                    signal.SIGXCPU: "it used up its processor time: an endless loop?",
                    signal.SIGXFSZ: "it wrote a file that is too large",
                    signal.SIGKILL: "it was killed: an endless loop, or more memory than this machine has?"}
            return what.get(self.signal, f"signal {self.signal} ended it")
        return f"it ended with status {self.status}" if self.status else ""


def private_user():
    """Numbers of a user that nobody else is, for this grader alone; nothing where the grader is not root."""
    return None if os.geteuid() else 61184 + os.getpid() % 4096


def missing_protection():
    """What this grader cannot guard against on this machine, in words."""
    missing = []
    if os.geteuid():
        missing.append("the grader is not root: submissions run as its own user, and processes of that user share one limit")
    if not landlock.version():
        missing.append("the kernel has no landlock: submissions can read what their user can read, and write into folders such as /tmp")
    elif landlock.version() < 4:
        missing.append("the kernel's landlock is older than 6.7: submissions can open network connections")
    return missing


def descendants():
    """{process: (cpu seconds, resident megabytes)} of all that this process started; orphans come to it too (see run)."""
    children, figures = {}, {}
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
    for entry in os.listdir("/proc"):
        try:
            fields = pathlib.Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split() if entry.isdigit() else None
        except OSError:
            continue
        if fields:  # fields[0] is the third of proc(5)
            children.setdefault(int(fields[1]), []).append(int(entry))
            figures[int(entry)] = sum(map(int, fields[11:15])) / tick, int(fields[21]) * page / 1e6
    family, todo = {}, [os.getpid()]
    while todo:
        for child in children.get(todo.pop(), ()):
            family[child] = figures[child]
            todo.append(child)
    return family


def end_all(user):
    """Kills every descendant, also those that fork while they are killed, or have left their process group."""
    for _ in range(100):
        alive = descendants()
        if not alive:
            return
        for sign in (signal.SIGSTOP, signal.SIGKILL):
            for process in alive:
                try:
                    os.kill(process, sign)
                except OSError:
                    pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def folder_megabytes(folder):
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += 0.004 + os.lstat(os.path.join(path, name)).st_blocks * 512 / 1e6
            except OSError:
                pass
    return total


def remove_strays(user, own):
    """Names of what the user left beside its own folder where everybody may write; removes it."""
    names = []
    for folder in SHARED_FOLDERS if user else ():
        for entry in os.scandir(folder) if os.path.isdir(folder) else ():
            try:
                if entry.stat(follow_symlinks=False).st_uid == user and entry.path != own:
                    names.append(entry.path)
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
            except OSError:
                pass
    return tuple(names)


def restrictions(limits, user, folder, read, write):
    """What the command's process does before it becomes the command."""
    threads = limits.processes if user else limits.processes + own_threads()

    def restrict():
        os.setsid()
        try:
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")  # not the grader, where memory runs out
        except OSError:
            pass
        cpu = int(limits.cpu_seconds) + 1
        for what, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, cpu), (resource.RLIMIT_FSIZE, DISK_MEGABYTES << 20),
                           (resource.RLIMIT_DATA, (limits.megabytes + 512) << 20), (resource.RLIMIT_NPROC, threads)):
            hard = resource.getrlimit(what)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))
        landlock.restrict(read=read, write=(folder, "/dev/null", "/dev/full", *write))
        if user:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)

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


def watch(process, pipes, limits, folder, started):
    """Reads `pipes` ({file: bytearray}) until the process and its output end, or a limit does: (which, cpu seconds, megabytes)."""
    most_bytes, cpu, megabytes, looked = limits.output_kilobytes << 14, 0.0, 0.0, 0.0
    with selectors.DefaultSelector() as waiting:
        for pipe, room in pipes.items():
            waiting.register(pipe, selectors.EVENT_READ, room)
        while True:
            for key, _ in waiting.select(0.05) if waiting.get_map() else ():
                chunk = os.read(key.fd, 1 << 16)
                if not chunk:
                    waiting.unregister(key.fileobj)
                key.data.extend(chunk)
                if len(key.data) > most_bytes:
                    return "output", cpu, megabytes
            now = time.monotonic()
            # Children may keep the pipes open.
            over = process.poll() is not None and not (waiting.get_map() and waiting.select(0))
            if now - looked > 0.1 and not over:
                looked, family = now, descendants()
                cpu = max(cpu, sum(seconds for seconds, _ in family.values()))
                megabytes = max(megabytes, sum(size for _, size in family.values()))
                for which, reached in (("memory", megabytes > limits.megabytes), ("cpu", cpu > limits.cpu_seconds), ("time", now - started > limits.seconds),
                                       ("disk", folder_megabytes(folder) > DISK_MEGABYTES)):
                    if reached:
                        return which, cpu, megabytes
            if over:
                return None, cpu, megabytes
            if not waiting.get_map():
                time.sleep(0.02)


def run(command, limits, given=b"", environment=None, read=(), write=(), as_root=False):
    """Runs `command` in a new folder. It finds `given` and a pipe for its verdict at the two descriptors that CAIRN_GRADED names. It may read the
    system's folders and `read`, and write into `write`."""
    landlock.libc.prctl(SUBREAPER, 1, 0, 0, 0)  # whoever leaves its process group is still ours
    landlock.libc.prctl(NOT_DUMPABLE, 0, 0, 0, 0)  # this process's memory and environment hold the course's secret
    user = None if as_root else private_user()
    with tempfile.TemporaryDirectory(prefix="cairn-grade-", ignore_cleanup_errors=True) as folder:
        if user:
            os.chown(folder, user, user)
        (given_read, given_write), (verdict_read, verdict_write) = os.pipe(), os.pipe()
        try:
            os.write(given_write, given)
            started = time.monotonic()
            process = subprocess.Popen(
                [str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                pass_fds=(given_read, verdict_write), preexec_fn=restrictions(limits, user, folder, (*SYSTEM, *map(str, read)), map(str, write)),
                env={**{k: v for k in KEPT if (v := os.environ.get(k))}, "HOME": folder, "TMPDIR": folder,
                     "CAIRN_GRADED": f"{given_read} {verdict_write}", **(environment or {})})
        finally:
            for descriptor in (given_read, given_write, verdict_write):
                os.close(descriptor)
        output, verdict = bytearray(), bytearray()
        try:
            ended_by, cpu, megabytes = watch(process, {process.stdout: output, verdict_read: verdict}, limits, folder, started)
            status = process.poll()
        finally:
            process.kill()
            end_all(user)
            process.wait()
            process.stdout.close()
            os.close(verdict_read)
        seconds = time.monotonic() - started
        killed = -status if status is not None and status < 0 and not ended_by else None
        return Outcome(status if status is not None and status >= 0 and not ended_by else None, killed, ended_by, cut(output, limits.output_kilobytes << 10), bytes(verdict),
                       seconds, cpu, megabytes, remove_strays(user, folder))


def cut(output, room):
    text = bytes(output).decode(errors="replace")
    return text if len(text) <= room else text[: room // 2] + "\n[… cut …]\n" + text[-room // 2:]


def readable_by_others(path):
    """Can a user without rights read this file or folder?"""
    path = pathlib.Path(path).resolve()
    return bool(path.stat().st_mode & stat.S_IROTH) and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
