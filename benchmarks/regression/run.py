"""A run of a suite in a folder. All that it knows is in files there, written after each block, so that a run that was stopped at any moment goes on:

    run.json            suite, arms, machine, seconds spent
    metrics/NAME.json   a metric's blocks and what was dropped
    arms/ARM/           copies of the programs
    kernels/NAME/ARM/   kernel choices
    records/NAME.json   the record of each metric, when the run has ended

When a look is taken follows from the number of blocks on file alone: none is taken twice, or at another place, after a stop.
"""

import fcntl
import itertools
import json
import time

import host
import json_file
from measured_runs import Failure

from . import builds, launches, programs, verdict

ALONE_LAUNCHES = 6  # where there is no reference beside
CALIBRATION_BLOCKS = 10
QUICK_BLOCKS = verdict.LOOKS[1]  # of a series, with --quick
DROPS = 3  # blocks in a row without one that is whole: the metric is given up


class OtherRun(Failure):
    """The folder has a run of something else."""


def costs(metric, block, arms):
    """Of a block's launches: what grows where a program becomes slower."""
    higher = programs.figure_of(metric)[1] == "higher"
    return tuple(1 / block[arm]["value"] if higher else block[arm]["value"] for arm in arms)


class Folder:
    """The folder of a run: one process works there at a time, and what it knows is in files."""

    def __init__(self, folder):
        """Failure where another process works there."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failure(f"{self.folder}: another run works there; wait until it ends, or name another folder with --out") from None

    def begin(self, described, fresh):
        """run.json: what is there, of the same description, or a new one with these fields beside. OtherRun."""
        state = self.read(self.folder / "run.json") or {**described, **fresh}
        if other := [key for key in described if state.get(key) != described[key]]:
            raise OtherRun(f"{self.folder} holds a run of other {', '.join(other)}: name another folder with --out, or remove it")
        self.write(self.folder / "run.json", state)
        return state

    def read(self, path):
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as problem:
            raise Failure(f"{path}: not JSON (truncated?): {problem}. Remove it, and this part is measured again") from None

    def write(self, path, contents):
        try:
            json_file.write(path, contents)
        except OSError as problem:
            raise Failure(f"{path} cannot be written: {problem}. Make room and repeat the command: it goes on") from None


class Run(Folder):
    """`kind`: "compare" (arms A, A2, B), "calibrate" (A, A2) or "alone" (B)."""

    def __init__(self, folder, suite, metrics, kind, sources, quick=False, floors=None):
        """`sources`: builds by arm, A2's is A's. Failure where the folder has a run of something else, or another process works there."""
        self.suite, self.metrics, self.kind, self.quick, self.floors = suite, metrics, kind, quick, floors or {}
        self.arms = {"compare": ("A", "A2", "B"), "calibrate": ("A", "A2"), "alone": ("B",)}[kind]
        self.sources = sources
        super().__init__(folder)
        (folder / "metrics").mkdir(exist_ok=True)
        names = sorted({metric.program for metric in metrics})
        described = {
            "suite": suite.name,
            "kind": kind,
            "quick": quick,
            "machine": host.machine()["fingerprint"],
            "metrics": [{"name": metric.name, "tolerance": metric.tolerance, **metric.described()} for metric in metrics],
            "arms": {arm: {name: builds.digest(builds.program(sources[arm], name)) for name in names} for arm in self.arms},
        }
        self.state = self.begin(described, {"spent": 0.0, "begun": host.Watch().when, "revisions": {arm: sources[arm].revision for arm in self.arms}})
        for arm in self.arms:
            if any(not (folder / "arms" / arm / "benchmarks" / name).is_file() for name in names):
                builds.copy(sources[arm], names, folder / "arms" / arm)
        self.known = {metric.name: self.read(self._file(metric)) or {"series": [], "dropped": [], "prepared": None, "given_up": None} for metric in metrics}

    def _file(self, metric):
        return self.folder / "metrics" / f"{metric.name}.json"

    # ---- what is known

    def delta(self, metric):
        return verdict.delta_of(metric.tolerance, self.floors.get(metric.hash(), {}).get("floor", 0.0))

    def blocks(self, metric):
        """Costs of the arms, by series."""
        return [[costs(metric, block, self.arms) for block in series] for series in self.known[metric.name]["series"]]

    def judged(self, metric):
        return verdict.judge(self.blocks(metric), self.delta(metric))

    def wanted(self, metric):
        """(series, blocks that it has to grow to), or None where the metric is through."""
        there = self.known[metric.name]["series"]
        if self.known[metric.name]["given_up"]:
            return None
        if self.kind != "compare" or host.is_oversubscribed(metric.ranks, metric.threads):
            count = {"alone": ALONE_LAUNCHES, "calibrate": CALIBRATION_BLOCKS, "compare": verdict.LOOKS[0]}[self.kind]
            return (0, count) if not there or len(there[0]) < count else None
        wanted = self.judged(metric).wanted
        return None if wanted and self.quick and wanted[1] > QUICK_BLOCKS else wanted

    # ---- measuring

    def measure(self, budget, say):
        """Measures until all metrics are through, or so many seconds (None: no end) are spent. `say`: is told a line. Returns whether it is finished.
        Metrics come in turn, look by look, so that a short budget gives each its first one."""
        while True:
            left = [(sum(map(len, self.known[metric.name]["series"][:wanted[0]])) + wanted[1], place, metric) for place, metric in enumerate(self.metrics) if (wanted := self.wanted(metric))]
            if not left:
                return True
            metric = min(left)[2]
            if budget is not None and self.state["spent"] + self._expected(metric) > budget:
                return False
            began = time.monotonic()
            try:
                told = self._advance(metric)
            except Failure as problem:
                told = self._drop(metric, str(problem))
            self.state["spent"] += time.monotonic() - began
            self.write(self._file(metric), self.known[metric.name])
            self.write(self.folder / "run.json", self.state)
            for line in told:  # when it is on file: no look is told twice
                say(line)

    def _expected(self, metric):
        """Seconds of the metric's next block."""
        series = self.known[metric.name]["series"]
        if series and series[-1]:
            return sum(series[-1][-1][arm]["seconds"] for arm in self.arms)
        return len(self.arms) * 1.5 * metric.seconds

    def _advance(self, metric):
        """Prepares the metric, or measures one block. Returns lines to tell."""
        known = self.known[metric.name]
        arms = {arm: self.folder / "arms" / arm for arm in self.arms}
        choices = self.folder / "kernels" / metric.name
        if known["prepared"] is None:
            known["prepared"] = launches.prepare(metric, arms, choices)
            return []
        at, count = self.wanted(metric)
        known["series"] += [[] for _ in range(at + 1 - len(known["series"]))]
        orders = list(itertools.permutations(self.arms))
        order = orders[len(known["series"][at]) % len(orders)]
        watch, block = host.Watch(), {"order": list(order)}
        for arm in order:
            self.arm = arm
            block[arm] = launches.measure(metric, arms[arm], known["prepared"]["steps"], choices / arm)
        block["conditions"] = {key: value for key, value in watch.conditions().items() if key in ("load", "steal", "others")}
        known["series"][at].append(block)
        if len(known["series"][at]) < count or self.kind != "compare":
            return []
        judged = self.judged(metric)
        return [f"{metric.name}: {count} pairs{', confirming' if at else ''}: B/A {'%.3f (%.3f to %.3f)' % tuple(judged.series[at].candidate.ratios())} {judged.verdict or '…'}"]

    def _drop(self, metric, why):
        """Returns lines to tell."""
        known = self.known[metric.name]
        place = sum(map(len, known["series"])) if known["prepared"] else -1
        known["dropped"].append({"block": place, "arm": getattr(self, "arm", None) if place >= 0 else None, "why": why})
        told = [f"{metric.name}: {'a block' if place >= 0 else 'the preparation'} is dropped: {why}"]
        if len(known["dropped"]) >= DROPS and all(drop["block"] == place for drop in known["dropped"][-DROPS:]):
            known["given_up"] = why
            told.append(f"{metric.name}: given up after {DROPS} in a row")
        return told


def numbered(folder, suite):
    """The folders of a suite's runs, the newest last."""
    return sorted(folder.glob(f"{suite}-[0-9][0-9][0-9][0-9]"))


def newest(folder, suite):
    """The newest run of a suite. Failure where there is none."""
    if not (found := numbered(folder, suite)):
        raise Failure(f"there is no run of {suite} in {folder}: measure one with  benchmarks/suite run {suite}")
    return found[-1]


def is_finished(folder):
    return (folder / "records").is_dir()
