"""Suites: TOML files of benchmarks/suites, one [[metric]] each figure that is judged.

    budget = 10                              minutes that a run may take; optional
    [[metric]]
    name = "lenet"
    program = "train"                        in BUILD/benchmarks; what each prints: programs.py
    workload = "lenet-mnist"                 of benchmarks/workloads, or a path; train alone
    settings = ["train.batch=64"]            train --set
    arguments = ["--min-bytes", "1048576"]   of any program
    threads = 1                              of each rank
    ranks = 1                                processes, by mpirun from 2 on
    seconds = 2                              that a launch measures; at least 2
    figure = "samples_per_s"                 of what the program prints, a path such as rows/0/seconds/auto; default: the program's own
    better = "higher"                        or "lower"; of figures that are not the program's own
    peer = "rows/0/seconds/native"           figure of a peer that the same launch measured, of the same unit; shown beside, never judged
    tolerance = 0.03                         difference that matters: 3 %
    timeout = 120                            seconds after which a launch is ended
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import re
import tomllib

from measured_runs import Failure

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "suites"
LEAST_SECONDS = 2


class Described:
    """What has a name and perhaps a workload, and is described by its fields."""

    unmeasured = ()  # fields that do not change what is measured

    def described(self):
        """All that is measured, as JSON: what has the same hash can be compared. What the workload's file says changes it, too."""
        fields = {key: value for key, value in json.loads(json.dumps(dataclasses.asdict(self))).items() if key not in self.unmeasured}
        if self.workload:
            fields["workload_digest"] = hashlib.sha256(self.workload_path().read_bytes()).hexdigest()[:16]
        return fields

    def workload_path(self):
        """Failure where there is no such file."""
        for path in (pathlib.Path(self.workload), FOLDER.parent / "workloads" / f"{self.workload}.toml"):
            if path.is_file():
                return path.resolve()
        raise Failure(f"{self.name}: there is no workload {self.workload}, neither in benchmarks/workloads nor as a file")

    def hash(self):
        return hashlib.sha256(json.dumps(self.described(), sort_keys=True).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True)
class Metric(Described):
    name: str
    program: str
    workload: str = ""
    settings: tuple = ()
    arguments: tuple = ()
    threads: int = 1
    ranks: int = 1
    seconds: float = LEAST_SECONDS
    figure: str = ""
    better: str = ""
    peer: str = ""
    tolerance: float = 0.03
    timeout: float = 120

    unmeasured = ("name", "peer", "tolerance", "timeout")


@dataclasses.dataclass(frozen=True)
class Suite:
    name: str
    metrics: tuple  # or trainings
    budget: float | None = None  # minutes


def path_of(name):
    """The file of a suite: a name of benchmarks/suites, or a path. Failure naming those there are."""
    for path in (pathlib.Path(name), FOLDER / f"{name}.toml"):
        if path.is_file():
            return path
    raise Failure(f"there is no suite {name}; there are: {', '.join(sorted(p.stem for p in FOLDER.glob('*.toml')))}, or name a TOML file")


def _typed(where, field, value, default):
    kinds = {tuple: (list,), float: (int, float), int: (int,), str: (str,)}[type(default)]
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise Failure(f"{where}: {field} = {value!r} is of type {type(value).__name__}, expected {'a list of texts' if list in kinds else kinds[-1].__name__}")
    if list in kinds:
        if wrong := [word for word in value if not isinstance(word, str)]:
            raise Failure(f"{where}: {field} has {wrong[0]!r}, which is no text")
        return tuple(value)
    return value


def typed_fields(kind, where, table, required):
    """An object of a class of fields from a table: known fields of their types, the required ones there, a name that can be a file's."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if unknown := set(table) - set(fields):
        raise Failure(f"{where}: unknown {', '.join(sorted(unknown))}; a {kind.__name__.lower()} has {', '.join(fields)}")
    for field in required:
        if field not in table or fields[field].type is str and (not isinstance(table[field], str) or not table[field]):
            raise Failure(f"{where}: {field} is missing, or no text")
    if not re.fullmatch(r"[a-zA-Z0-9][\w.-]*", table["name"]):
        raise Failure(f"{where}: name = {table['name']!r}: letters, digits, '.', '-' and '_' alone, since files are called so")
    return kind(**{field: _typed(f"{where}, {table['name']}", field, value, fields[field].type()) for field, value in table.items()})


def _metric(where, table):
    metric = typed_fields(Metric, where, table, ("name", "program"))
    where = f"{where}, {metric.name}"
    for field, least in (("threads", 1), ("ranks", 1), ("seconds", LEAST_SECONDS)):
        if getattr(metric, field) < least:
            raise Failure(f"{where}: {field} = {getattr(metric, field)}: at least {least} is needed")
    if not (math.isfinite(metric.seconds) and metric.seconds < metric.timeout):
        raise Failure(f"{where}: timeout = {metric.timeout} has to be longer than the {metric.seconds} seconds that a launch measures")
    if not 0 < metric.tolerance < 1:
        raise Failure(f"{where}: tolerance = {metric.tolerance}: a part between 0 and 1 is needed, such as 0.03 for 3 %")
    if metric.better not in ("", "higher", "lower"):
        raise Failure(f"{where}: better = {metric.better!r}: expected \"higher\" or \"lower\"")
    if bool(metric.figure) != bool(metric.better):
        raise Failure(f"{where}: figure and better are given together, or neither: the program's own figure")
    if (metric.workload or metric.settings) and metric.program != "train":
        raise Failure(f"{where}: workload and settings are train's; {metric.program} has arguments")
    if metric.program == "train" and not metric.workload:
        raise Failure(f"{where}: train needs a workload")
    return metric


def tables(path, key, make):
    """What a suite's file has: a tuple of make(where, table) of each [[key]], and the budget. Failure names the file, the table and the field."""
    try:
        text = tomllib.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise Failure(f"{path}: {problem}") from None
    if key != "training" and "training" in text:
        raise Failure(f"{path} has trainings: run them with  benchmarks/suite convergence {path.stem}")
    if unknown := set(text) - {"budget", key}:
        raise Failure(f"{path}: unknown {', '.join(sorted(unknown))}; a suite has budget and [[{key}]]")
    budget = text.get("budget")
    if budget is not None and not (_typed(path, "budget", budget, 1.0) > 0):
        raise Failure(f"{path}: budget = {budget}: minutes above 0 are needed")
    found = text.get(key)
    if not isinstance(found, list) or not found or not all(isinstance(table, dict) for table in found):
        raise Failure(f"{path}: the suite is empty: it needs at least one [[{key}]]")
    made = tuple(make(f"{path}, {key} {number}", table) for number, table in enumerate(found, 1))
    names = [entry.name for entry in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Failure(f"{path}: two {key}s are called {twice[0]}; a name is that of one")
    return made, budget


def read(path):
    """Failure names the file, the metric and the field."""
    return Suite(path.stem, *tables(path, "metric", _metric))


def selected(suite, only):
    """All metrics, or those whose names are one of these texts or, where none is, contain one. Failure where a text selects nothing."""
    names = [metric.name for metric in suite.metrics]
    chosen = set()
    for text in only:
        if not (found := [name for name in names if name == text] or [name for name in names if text in name]):
            raise Failure(f"--only {text}: no metric of {suite.name} is called so; there are: {', '.join(names)}")
        chosen |= set(found)
    return tuple(metric for metric in suite.metrics if not only or metric.name in chosen)
