"""Runs one command with limits of time, memory, processes and output, in a folder of its own, with a clean environment, and as an
unprivileged user where the grader is root."""

import os
import pathlib
import pwd
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

KEPT = ("LANG", "LC_ALL", "PATH", "TZ")


@dataclass
class Outcome:
    status: int | None  # exit status; None where a limit ended it
    signal: int | None
    ended_by: str | None  # "time", "memory", "output": the limit that ended it
    output: str  # stdout and stderr together, cut
    verdict: bytes  # what came through the grader's own pipe
    seconds: float
    megabytes: float  # the most that its processes held together

    @property
    def reason(self):
        """Why it did not end well, in words; empty if it did."""
        if self.ended_by:
            return {"time": f"it was stopped after {self.seconds:.0f} s, its time limit: an endless loop, or ranks that wait for each other",
                    "memory": f"it was stopped at {self.megabytes:.0f} MB, over its memory limit",
                    "output": "it was stopped because it printed without end"}[self.ended_by]
        if self.signal:
            what = {signal.SIGSEGV: "it read or wrote memory that is not its own (segmentation fault)",
                    signal.SIGABRT: "it called abort, or an exception left a thread",
                    signal.SIGFPE: "it divided an integer by zero",
                    signal.SIGXCPU: "it used up its processor time",
                    signal.SIGXFSZ: "it wrote a file that is too large",
                    signal.SIGKILL: "it was killed (memory?)"}
            return what.get(self.signal, f"signal {self.signal} ended it")
        return f"it ended with status {self.status}" if self.status else ""


def nobody():
    """The unprivileged user's numbers, or nothing where the grader is not root."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam("nobody")
        return user.pw_uid, user.pw_gid
    except KeyError:
        return 65534, 65534


def group_megabytes(group):
    """Resident memory of all processes of a process group."""
    pages = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = pathlib.Path(entry.path, "stat").read_text()
            if int(stat.rpartition(")")[2].split()[2]) == group:
                pages += int(pathlib.Path(entry.path, "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def run(command, seconds, megabytes, output_kilobytes=64, processes=64, given=b"", environment=None, privileged=False):
    """Runs `command`. It reads `given` from descriptor 3 and may write a verdict to descriptor 4. `privileged`: as the grader's own user, for
    compilers, which need to write where they are told."""
    folder = tempfile.mkdtemp(prefix="cairn-grade-")
    user = None if privileged else nobody()
    given_read, given_write = os.pipe()
    verdict_read, verdict_write = os.pipe()

    def prepare():
        os.setsid()
        os.dup2(given_read, 3)
        os.dup2(verdict_write, 4)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(4 * seconds) + 1, int(4 * seconds) + 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
        if user:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])

    try:
        if user:
            os.chown(folder, *user)
        os.write(given_write, given)
        os.close(given_write)
        started = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, pass_fds=(3, 4) if given_read > 4 and verdict_write > 4 else (given_read, verdict_write, 3, 4),
                                   preexec_fn=prepare,
                                   env={**{k: v for k in KEPT if (v := os.environ.get(k))}, "HOME": folder, "TMPDIR": folder, **(environment or {})})
        os.close(given_read)
        os.close(verdict_write)
        given_read = verdict_write = None
        output, verdict, ended_by, most = bytearray(), bytearray(), None, 0.0
        room = output_kilobytes << 10
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ, output)
            waiting.register(verdict_read, selectors.EVENT_READ, verdict)
            looked = 0.0
            while waiting.get_map() and not ended_by:
                for key, _ in waiting.select(0.1):
                    chunk = os.read(key.fd, 1 << 16)
                    if chunk:
                        key.data.extend(chunk[: max(0, 16 * room - len(key.data))])
                    else:
                        waiting.unregister(key.fileobj)
                now = time.monotonic()
                if now - looked > 0.2:
                    looked, most = now, max(most, group_megabytes(process.pid))
                if now - started > seconds:
                    ended_by = "time"
                elif most > megabytes:
                    ended_by = "memory"
                elif len(output) >= 16 * room or len(verdict) >= 16 * room:
                    ended_by = "output"
                elif process.poll() is not None and not waiting.select(0):
                    break  # its children keep the pipes open
        try:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it started
        except (ProcessLookupError, PermissionError):
            pass
        status = process.wait()
        text = output.decode(errors="replace")
        if len(text) > room:
            text = text[: room // 2] + "\n[… cut …]\n" + text[-room // 2:]
        return Outcome(None if ended_by or status < 0 else status, -status if status < 0 and not ended_by else None, ended_by, text,
                       bytes(verdict), time.monotonic() - started, most)
    finally:
        for descriptor in (given_read, verdict_write, verdict_read):
            if descriptor is not None:
                try:
                    os.close(descriptor)
                except OSError:
                    pass
        shutil.rmtree(folder, ignore_errors=True)
