"""This machine: the fingerprint by which records name it, and the conditions under which something is measured. Linux; what it does not tell is None.

machine() reads what a reboot does not change: no clock rates, no load. include/cairn/train/host.hpp reads the same for the records of `train`, and
tests/checks/program.py compares the two."""

import datetime
import math
import os
import pathlib
import re
import socket

# Instructions that decide which kernels run, by the names in /proc/cpuinfo, and all that begin so.
INSTRUCTIONS = ("sse4_2", "avx", "fma", "f16c", "amx", "asimd", "sve", "bf16")


def hashed(text):
    """64 bits of a text as 16 hexadecimal digits, by FNV-1a (Fowler, Noll and Vo): the same in C++ in three lines."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def _read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _caches(root):
    """Of the first core, such as "L1d 32K, L2 1024K"."""
    found = []
    for index in range(10):
        level, kind, size = (_read(f"{root}/sys/devices/system/cpu/cpu0/cache/index{index}/{name}").strip() for name in ("level", "type", "size"))
        if level and size:
            found.append(f"L{level}{ {'Data': 'd', 'Instruction': 'i'}.get(kind, '')} {size}")
    return ", ".join(found)


def rounded_up(gib):
    """Memory to four binary digits, upwards: the system keeps some of it, a little more or less after each update."""
    if gib <= 0:
        return 0
    step = 2.0 ** (math.floor(math.log2(gib)) - 3)
    return math.ceil(gib / step) * step


def machine(root=""):
    """The fields that the fingerprint is made of, and "fingerprint", their hash. `root`: of other /proc and /sys, for tests."""
    first, processors = {}, 0
    for line in _read(f"{root}/proc/cpuinfo").splitlines():
        name, _, value = (word.strip() for word in line.partition(":"))
        processors += name == "processor"
        first.setdefault(name, value)
    flags = (first.get("flags") or first.get("Features") or "").split()
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _read(f"{root}/proc/meminfo"), re.M)
    model = " ".join(f"{name} {first[key]}" for name, key in (("family", "cpu family"), ("model", "model"), ("stepping", "stepping")) if key in first)
    fields = {
        "cpu": f"{first.get('model name', 'unknown processor')} {model}".strip(),
        "processors": processors,
        "caches": _caches(root),
        "memory_gib": rounded_up(int(memory[1]) / 2**20 if memory else 0),
        "instructions": " ".join(sorted({flag for flag in flags if flag.startswith(INSTRUCTIONS)})),
    }
    text = f"{fields['cpu']}; {processors} processors; {fields['caches']}; {fields['memory_gib']:g} GiB; {fields['instructions']}"
    return {**fields, "fingerprint": hashed(text)}


def ranges(numbers):
    """{0, 1, 2, 5} → "0-2,5"."""
    parts = []
    for n in sorted(numbers):
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def quota(root=""):
    """Cores' worth of time that control groups allow this process, None without a limit."""
    least = None
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        place = pathlib.PurePosixPath(group)
        for folder in (place, *place.parents):  # limits of the groups around it hold too
            if controllers:
                base = f"{root}/sys/fs/cgroup/{controllers}{folder}"
                words = [_read(f"{base}/cpu.cfs_quota_us").strip(), _read(f"{base}/cpu.cfs_period_us").strip()]
            else:
                words = _read(f"{root}/sys/fs/cgroup{folder}/cpu.max").split()
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
                least = min(int(words[0]) / int(words[1]), least or math.inf)
    return least


def slurm():
    """The job that this is part of, None outside of one."""
    if "SLURM_JOB_ID" not in os.environ:
        return None
    names = {"job": "SLURM_JOB_ID", "array_task": "SLURM_ARRAY_TASK_ID", "nodes": "SLURM_JOB_NODELIST", "node": "SLURMD_NODENAME", "restarts": "SLURM_RESTART_COUNT"}
    found = {name: os.environ[key] for name, key in names.items() if os.environ.get(key)}
    return {**found, "restarts": int(found.get("restarts", 0))}


def node():
    """The name of this node: Slurm's, else the machine's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def binding():
    """Node and processors that this process may use: "n1:0-1"."""
    return f"{node()}:{ranges(os.sched_getaffinity(0))}"


def is_oversubscribed(ranks, threads):
    """Whether so many ranks of so many threads on this node are more than the cores that they may use."""
    return ranks * threads > min(len(os.sched_getaffinity(0)), quota() or math.inf)


def threads_on_links(ranks):
    """Of each of so many ranks, as benchmarks/links/cluster starts them."""
    return int(os.environ.get("OMP_NUM_THREADS") or max(1, len(os.sched_getaffinity(0)) // ranks))


class Watch:
    """The conditions from its making until conditions(); `when` it was made, UTC."""

    def __init__(self):
        self.when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.own, self.ticks = self._own(), self._ticks()

    @staticmethod
    def _own():
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    @staticmethod
    def _ticks():
        """Seconds of processors: used by programs, taken by the hypervisor for others, and all."""
        line = (_read("/proc/stat").splitlines() or [""])[0].split()[1:9]
        user, nice, system, idle, waiting, interrupts, soft, steal = (int(word) / os.sysconf("SC_CLK_TCK") for word in line) if len(line) == 8 else [0] * 8
        busy = user + nice + system + interrupts + soft
        return busy, steal, busy + steal + idle + waiting

    def conditions(self):
        """load: of the last minute; steal and others: shares of all processors' time that the hypervisor and other programs took. Of one's own counts what
        has ended, or is this process; what programs are running still is others' share."""
        busy, steal, everything = (now - before for now, before in zip(self._ticks(), self.ticks))
        share = (lambda seconds: round(max(0.0, seconds / everything), 4)) if everything > 0 else lambda _: None
        return {
            "load": os.getloadavg()[0],
            "steal": share(steal),
            "others": share(busy - (self._own() - self.own)),
            "quota": quota(),
            "affinity": ranges(os.sched_getaffinity(0)),
            "node": node(),
            "slurm": slurm(),
        }
