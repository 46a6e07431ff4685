"""Trainings of a suite to a stated quality, over seeds. A TOML file of benchmarks/suites, one [[training]] each:

    name = "lenet"
    workload = "lenet-mnist"                 of benchmarks/workloads, or a path
    figure = "test_accuracy"                 of metrics.jsonl; losses, errors and bits fall, all other figures rise
    target = 0.99                            quality at which a seed has arrived
    batch = 128                              and epochs: those of the reference; nothing is ever interpolated between batches
    epochs = 20                              of the whole training; the learning rate's schedule goes by them
    test_every = 0.25                        epochs between tests: so many that the way to the target has twenty
    seeds = 10
    data = "mnist"                           folder within --data (benchmarks/fetch_data); default: the workload generates its data
    settings = ["optimizer.lr=0.1"]          train --set
    threads = 1

A run is a folder: run.json, seeds/NAME-SEED.json of each seed when it has arrived or ended, records/ when all have. A run that was stopped at any moment
goes on with the seeds that are missing. The test: convergence.py, on steps, which do not depend on the machine.
"""

import argparse
import dataclasses
import math
import time
import tomllib

import host
import record
import training_runs
from measured_runs import Failure

from . import builds, convergence, references, run as runs, suite_file

EVALUATIONS = 20  # on the way to the target, at least
GOAL = ("figure", "target", "batch")  # what runs that are compared have in common


class Fault(Exception):
    """Why a training has no seeds: it fails, or has no such figure."""


@dataclasses.dataclass(frozen=True)
class Training(suite_file.Described):
    name: str
    workload: str = ""
    figure: str = ""
    target: float = math.nan
    batch: int = 0
    epochs: int = 0
    test_every: float = 1.0
    seeds: int = 0
    data: str = ""
    settings: tuple = ()
    threads: int = 1

    def settings_of(self, seed):
        """train --set."""
        return [f"train.batch={self.batch}", f"train.epochs={self.epochs}", f"train.test_every={self.test_every}", *self.settings, f"train.seed={seed}"]

    unmeasured = ("name", "seeds")


def _training(where, table):
    training = suite_file.typed_fields(Training, where, table, ("name", "workload", "figure", "target", "batch", "epochs", "seeds"))
    where = f"{where}, {training.name}"
    for field in ("batch", "epochs", "seeds", "threads"):
        if getattr(training, field) < 1:
            raise Failure(f"{where}: {field} = {getattr(training, field)}: at least 1 is needed")
    if not training.test_every > 0:
        raise Failure(f"{where}: test_every = {training.test_every}: epochs above 0 are needed, such as 0.25")
    if not math.isfinite(training.target):
        raise Failure(f"{where}: target = {training.target}: a finite figure is needed")
    if EVALUATIONS * training.test_every > training.epochs:
        raise Failure(f"{where}: test_every = {training.test_every} of {training.epochs} epochs: at least {EVALUATIONS} tests are needed, or steps to the target are too coarse")
    for key in ("batch", "epochs", "test_every", "seed"):
        if any(setting.replace(" ", "").startswith(f"train.{key}=") for setting in training.settings):
            raise Failure(f"{where}: settings have train.{key}, which is given {'by the run' if key == 'seed' else 'as ' + key}")
    training.workload_path()
    return training


def has(path):
    """Whether a suite's file has trainings. Failure where it cannot be read."""
    try:
        return "training" in tomllib.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise Failure(f"{path}: {problem}") from None


def read(path):
    """The trainings of a suite. Failure names the file, the training and the field."""
    if not has(path):
        raise Failure(f"{path} has no [[training]]; figures are measured with  benchmarks/suite run {path.stem}")
    return suite_file.Suite(path.stem, *suite_file.tables(path, "training", _training))


class Run(runs.Folder):
    def __init__(self, folder, suite, trainings, source, count=None, first=1):
        """`source`: build with train; `count`: seeds of each (None: those of the suite), from `first` on. Failure as of run.Run."""
        super().__init__(folder)
        self.suite, self.trainings = suite, trainings
        self.seeds = {training.name: list(range(first, first + (count or training.seeds))) for training in trainings}
        described = {
            "suite": suite.name,
            "kind": "convergence",
            "machine": host.machine()["fingerprint"],
            "trainings": [{"name": training.name, **training.described()} for training in trainings],
            "seeds": self.seeds,
            "arms": {"B": {"train": builds.digest(builds.program(source, "train"))}},
        }
        self.state = self.begin(described, {"spent": 0.0, "begun": host.Watch().when, "revision": source.revision, "given_up": {}})
        if not (folder / "arms" / "B" / "benchmarks" / "train").is_file():
            builds.copy(source, ["train"], folder / "arms" / "B")
        (folder / "seeds").mkdir(exist_ok=True)
        self.found = {(training.name, seed): self.read(self._file(training, seed)) for training in trainings for seed in self.seeds[training.name]}

    def _file(self, training, seed):
        return self.folder / "seeds" / f"{training.name}-{seed}.json"

    def done(self, training):
        """What is known of its seeds."""
        return [found for seed in self.seeds[training.name] if (found := self.found[training.name, seed])]

    def measure(self, budget, data, say):
        """Trains until all seeds are through, or so many seconds (None: no end) are spent. Trainings come in turn. `data`: the folder of data sets."""
        for training in self.trainings:
            if training.data and not (data / training.data).is_dir():
                raise Failure(f"{training.name}: there is no {data / training.data}; name the folder of data sets with --data, or fetch it, where it is public:  benchmarks/fetch_data {training.data}")
        while True:
            left = [(len(self.done(training)), place, training) for place, training in enumerate(self.trainings) if len(self.done(training)) < len(self.seeds[training.name]) and training.name not in self.state["given_up"]]
            if not left:
                return
            training = min(left)[2]
            expected = max((found["wall"] for found in self.done(training)), default=0.0)
            if budget is not None and self.state["spent"] + expected > budget:
                return
            seed = next(seed for seed in self.seeds[training.name] if self.found[training.name, seed] is None)
            began = time.monotonic()
            try:
                found = self._train(training, seed, data)
                found["wall"] = time.monotonic() - began
                self.found[training.name, seed] = found
                self.write(self._file(training, seed), found)
                say(f"{training.name}, seed {seed}: {training.figure} {training.target:g} {'at step ' + str(found['steps']) if found['steps'] else 'is not reached'}")
            except Fault as problem:
                self.state["given_up"][training.name] = str(problem)
                say(f"{training.name}: given up: {problem}")
            self.state["spent"] += time.monotonic() - began
            self.write(self.folder / "run.json", self.state)

    def _train(self, training, seed, data):
        """One seed, to its target. Fault of a run that fails for another reason than that it diverges, or has no such figure."""
        options = argparse.Namespace(build=self.folder / "arms" / "B", data=data / training.data if training.data else None, threads=training.threads)
        arrived = lambda lines: training_runs.first_at(training_runs.curve(lines, training.figure), training.figure, training.target)
        watch = host.Watch()
        _, lines, fault = training_runs.attempt(options, training.workload_path(), training.settings_of(seed), until=lambda lines: arrived(lines)[0] is not None)
        if fault and not training_runs.DIVERGED.search(fault):
            raise Fault(fault)
        curve = training_runs.curve(lines, training.figure)
        if not curve and not fault:
            there = sorted({key for line in lines for key in line if key.startswith("test_")})
            raise Fault(f"{training.figure} is in no line of metrics.jsonl; there are: {', '.join(there) or 'no tests'}")
        step, seconds = arrived(lines)
        return {"seed": seed, "steps": step, "samples": step and step * training.batch, "seconds": seconds, "curve": curve, "diverged": bool(fault), "conditions": watch.conditions()}


def steps(entry):
    """Steps by seed of a record; infinite of those that did not arrive."""
    return {found["seed"]: math.inf if found["steps"] is None else found["steps"] for found in entry["convergence"]}


def evaluate(run, stored, today=None):
    """The result of each training, beside the references of the same name, figure, target and batch; what else is not as there is told. Of a seed that is
    there more than once the newest counts."""
    today = today or references.utc_today()
    for training in run.trainings:
        done, wanted = run.done(training), len(run.seeds[training.name])
        result = {"name": training.name, "seeds": len(done), "arrived": sum(found["steps"] is not None for found in done)}
        if not done:
            yield result | {"verdict": "not-run", "why": run.state["given_up"].get(training.name, "the budget ended before the first seed")}
            continue
        described = training.described()
        same = [entry for entry in stored if "convergence" in entry and entry["benchmark"] == training.name and all(entry["settings"][key] == described[key] for key in GOAL)]
        reference = {}
        for entry in sorted((entry for entry in same if references.is_valid(entry, today)), key=lambda entry: entry["when"]):
            reference |= steps(entry)
        found = convergence.judge(list(reference.values()), [math.inf if seed["steps"] is None else seed["steps"] for seed in done])
        coarse = [tests for seed in done if seed["steps"] and (tests := sum(step <= seed["steps"] for step, *_ in seed["curve"])) < EVALUATIONS]
        why = found.why + (f"; coarse: a seed arrived after {min(coarse)} tests, {EVALUATIONS} are needed: lower test_every" if coarse else "")
        differs = sorted({key for entry in same for key in described if entry["settings"].get(key) != described[key]})
        why += f"; not as in the reference: {', '.join(differs)}" if differs else ""
        why += ("" if len(done) == wanted else f"; {len(done)} of {wanted} seeds: {run.state['given_up'].get(training.name, 'the budget ended')}")
        yield result | {"verdict": found.verdict, "why": why, "seen": found.seen if found.seen is None or math.isfinite(found.seen) else None}


def records(run, judged, watch, command):
    """A record of each training with seeds that are through."""
    for training, result in zip(run.trainings, judged):
        done = run.done(training)
        if not done:
            continue
        metrics = []
        for name, unit, kind in (("steps", "1", "count"), ("samples", "1", "count"), ("seconds", "s", "time")):
            if arrived := [found[name] for found in done if found[name] is not None]:
                metrics.append(record.metric(name, sum(arrived) / len(arrived), unit, "lower", kind, [found[name] for found in done]))
        metrics.append(record.metric("arrived", result["arrived"], "1", "higher", "count"))
        yield training.name, record.make(
            training.name, training.described(), metrics, watch, training.threads, 1, command=command, when=run.state["begun"], revision=run.state["revision"], settings_hash=training.hash(),
            seeds=[found["seed"] for found in done], suite=run.suite.name, verdict=result, programs=run.state["arms"]["B"], convergence=done,
        )
