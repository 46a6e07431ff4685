"""A call of benchmarks/gpu/run: programs under time limits, and the record, which holds the result of each as soon as it is there, so that whoever
cuts a call short loses one program's time."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import json_file


class Failure(Exception):
    """A program, or a comparison of what programs gave, that is not as it should be."""


class TimeIsOver(Exception):
    """The minutes of this call are; the next one goes on."""


class CannotRecord(Exception):
    """The record is another machine's, another state's or no record, or cannot be written."""


def descendants(process):
    """Ids of a process and of all that it has started, as far as these still live."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                pass
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


libc = ctypes.CDLL(None)


def own_group():
    """In a new process: it can be ended with all that it starts, and is when the thread that started it ends."""
    os.setpgid(0, 0)
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def alive(process):
    """Whether a process has not ended. One that has, and that nobody has asked about yet, has."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def end(process, grace=5):
    """Ends a process and all that it has started: first asks, then does. They have ended when this returns. Returns what the process said."""
    every, said = descendants(process.pid), None
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one, how in [(process.pid, os.killpg), *((one, os.kill) for one in every)]:
            try:
                how(one, number)
            except ProcessLookupError:
                pass
        over = time.monotonic() + grace
        try:
            said = said or process.communicate(timeout=grace)
        except subprocess.TimeoutExpired:
            every = list(dict.fromkeys([*every, *descendants(process.pid)]))
        # Its output ends a little before a process does, and one that says nothing may be deaf: the GPU's memory is
        # free only without them.
        while any(map(alive, every)) and time.monotonic() < over:
            time.sleep(0.01)
        if said and not any(map(alive, every)):
            return said
    return said or ("", "(it does not end, not even when killed: the GPU or its driver may hang)")


class Session:
    """record: that of --out; parts of the call ask it to run programs, several threads at a time if they like.
    minutes: after these no further program is begun that would not end within a minute more; 0: no end."""

    def __init__(self, out, machine, revision, settings, minutes=0, again=(), environment=None):
        self.out, self.environment = out, environment or dict(os.environ)
        self.begin = time.monotonic()
        self.end = self.begin + 60 * minutes + 60 if minutes else None
        self.began = 0        # programs of this call
        self.failed_now = set()
        self.running = set()  # processes
        self.stopped = False
        self.lock = threading.RLock()
        self.record = self._read(machine, revision, settings)
        for part in again:
            self.record["parts"].pop(part, None)
        self.save()

    def _read(self, machine, revision, settings):
        fresh = {**machine, "revision": revision, "settings": settings, "parts": {}}
        if not self.out.exists():
            return fresh
        try:
            record = json.loads(self.out.read_text())
            before = {name: record[name] for name in fresh if name != "parts"}
            parts = record["parts"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CannotRecord(f"{self.out} is no record of this program ({type(error).__name__}: {error}): give another --out") from error
        for name, now in fresh.items():
            if name != "parts" and before[name] != now:
                raise CannotRecord(f"{self.out} is a record of another {name}, {before[name]}; now it is {now}. Results of both do not mix: give another "
                                   "--out, or move that file away")
        return {**record, "parts": parts}

    def save(self):
        with self.lock:
            self._write()

    def _write(self):
        self.record["when"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            json_file.write(self.out, self.record)
        except OSError as error:
            raise CannotRecord(f"the record {self.out} cannot be written: {error}; give another --out") from error

    def output_of(self, command, limit, environment=None, check=True):
        """Standard output of a program, which is ended when it takes longer than `limit` seconds or the call's minutes. Failure, with what it said."""
        command = [str(word) for word in command]
        print("+", " ".join(command), flush=True)
        now = time.monotonic()
        cut = self.end is not None and self.end - now < limit
        seconds = max(1, self.end - now) if cut else limit
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, errors="replace",
                                       env=environment or self.environment, preexec_fn=own_group)
        except OSError as error:
            raise Failure(f"{command[0]} cannot be started: {error}") from error
        self.running.add(process)
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            out, err = end(process)
            if cut and self.began > 1:
                raise TimeIsOver(f"{pathlib.Path(command[0]).name} was ended, this call's minutes being over") from None
            raise Failure(f"{' '.join(command)} was ended after {seconds:.0f} s: it hangs, or is far slower than expected"
                          f"{' (it had this whole call: give more --minutes)' if cut else ''}. Its last words:\n{out[-3000:]}{err[-3000:]}") from None
        except BaseException:  # Ctrl-C, or this program being ended: nothing stays behind on the GPU
            end(process, 1)
            raise
        finally:
            self.running.discard(process)
        if self.stopped:
            raise TimeIsOver("this program was ended from outside")
        if process.returncode and check:
            how = f"signal {-process.returncode}" if process.returncode < 0 else str(process.returncode)
            raise Failure(f"{' '.join(command)} ended with {how}:\n{out[-6000:]}{err[-3000:]}")
        return out

    def stop(self):
        """Ends the programs of other threads, whose results are not recorded."""
        self.stopped = True
        for process in list(self.running):
            for one, how in [(process.pid, os.killpg), *((one, os.kill) for one in descendants(process.pid))]:
                try:
                    how(one, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def once(self, part, name, expected, measure):
        """The recorded result `name` of a part, or that of measure(), recorded. expected: its seconds, about. Failure: it failed, which is recorded."""
        with self.lock:
            entry = self.record["parts"].setdefault(part, {"results": {}, "failed": {}, "seconds": {}})
            if name in entry["results"]:
                return entry["results"][name]
            if (part, name) in self.failed_now:
                raise Failure(entry["failed"][name])
            now = time.monotonic()
            if self.stopped or (self.end is not None and self.began and now + expected > self.end):
                raise TimeIsOver(f"{name} takes about {expected:.0f} s, {max(0, (self.end or now) - now):.0f} are left of this call")
            self.began += 1
        try:
            result = measure()
        except (Failure, OSError, ValueError, KeyError, IndexError, TypeError) as error:
            text = str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
            print(f"{part}, {name} FAILED: {text}", flush=True)
            with self.lock:
                entry["failed"][name] = text
                self.failed_now.add((part, name))
                self._write()
            raise Failure(text) from error
        with self.lock:
            entry["failed"].pop(name, None)
            entry["results"][name], entry["seconds"][name] = result, round(time.monotonic() - now, 1)
            self._write()
        return result

    def tried(self, *arguments):
        """As once(); None where it failed, so that the others go on."""
        try:
            return self.once(*arguments)
        except Failure:
            return None
