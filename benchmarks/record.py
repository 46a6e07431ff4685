"""The record of something measured: what, of which program, on which machine, under which conditions. One JSON object:

    schema         1
    benchmark      its name
    revision       of the source: commit, with a hash of what was changed since; null: not known
    when           begin, UTC: 2026-11-29T01:02:03Z
    command        what repeats it
    settings, settings_hash
    machine        the fields of host.machine(); records are compared where "fingerprint" is the same
    conditions     those of host.Watch
    libraries      name → version
    kernels        hash of the kernel choices in force; null: not known
    threads, ranks, binding (node and processors of each rank), oversubscribed (more threads than cores: never judged)
    metrics        [{name, value, unit, better: higher or lower, kind: rate, time, bytes, count or quality, values: raw ones by launch, and by rank within}]
    seeds          []
    expires        date after which it is no reference; null: never

and whatever else its writer adds. A time of several ranks is the largest of them. `train` writes such a record (include/cairn/train/record.hpp)."""

import datetime
import json
import math
import shlex
import sys

import host
import json_file
import measured_runs
import revision

SCHEMA = 1
BEGIN = host.Watch()  # of this script
KINDS = ("rate", "time", "bytes", "count", "quality")
NUMBER = (int, float)
FIELDS = {  # each with its types; None among them: null
    "schema": (int,), "benchmark": (str,), "revision": (str, None), "when": (str,), "command": (str,), "settings": (dict,), "settings_hash": (str,),
    "machine": (dict,), "conditions": (dict,), "libraries": (dict,), "kernels": (str, None), "threads": (int, None), "ranks": (int, None),
    "binding": (list,), "oversubscribed": (bool,), "metrics": (list,), "seeds": (list,), "expires": (str, None),
}
METRIC = {"name": (str,), "value": NUMBER, "unit": (str,), "better": (str,), "kind": (str,), "values": (list,)}


def hash_of(settings):
    return host.hashed(json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def metric(name, value, unit, better, kind, values=None):
    """`values`: raw ones by launch; None: `value` alone."""
    return {"name": name, "value": value, "unit": unit, "better": better, "kind": kind, "values": [value] if values is None else values}


def make(benchmark, settings, metrics=(), watch=None, threads=None, ranks=None, **more):
    """A record of what this script measured here. `watch`: made when the measurement began; None: when the script began. `more`: further fields, or such as `seeds` and
    `libraries` in place of empty ones."""
    watch = watch or BEGIN
    return {
        "schema": SCHEMA,
        "benchmark": benchmark,
        "revision": revision.of(measured_runs.ROOT),
        "when": watch.when,
        "command": shlex.join(sys.argv),
        "settings": settings,
        "settings_hash": hash_of(settings),
        "machine": host.machine(),
        "conditions": watch.conditions(),
        "libraries": {},
        "kernels": None,
        "threads": threads,
        "ranks": ranks,
        "binding": [host.binding()],
        "oversubscribed": bool(threads) and host.is_oversubscribed(ranks or 1, threads),
        "metrics": list(metrics),
        "seeds": [],
        "expires": None,
        **more,
    }


def of_script(benchmark, options, found):
    """The record of a script with such options (argparse), and what it found beside, under names of its own."""
    settings = json.loads(json.dumps(vars(options), default=str))
    return {**make(benchmark, settings, threads=found.get("threads"), ranks=found.get("ranks")), **found}


def runs(path, benchmark, description):
    """json_file.Runs whose file is a record: the description is its settings."""
    return json_file.Runs(path, description, make(benchmark, description) if path else None)


def _name(kind):
    return {None: "null", int: "a whole number", float: "a number", str: "text", dict: "an object", list: "a list", bool: "true or false"}[kind]


def _require(value, types, where):
    fits = any(value is None if kind is None else type(value) is kind for kind in types)
    if not fits:
        raise ValueError(f"{where}: expected {' or '.join(map(_name, types))}, found {json.dumps(value)[:60]}")


def _numbers(values, where):
    for value in values:
        if isinstance(value, list):
            _numbers(value, where)
        elif value is not None and (type(value) not in NUMBER or not math.isfinite(value)):
            raise ValueError(f"{where}: {json.dumps(value)[:60]} is no finite number")


def check(record, where="record"):
    """Returns the record. ValueError naming `where` and the field that is not as above."""
    if not isinstance(record, dict) or "schema" not in record:
        raise ValueError(f"{where}: no record: it has no field 'schema'; what was written before there were records is history, not a reference")
    if record["schema"] != SCHEMA:
        raise ValueError(f"{where}: field 'schema' is {json.dumps(record['schema'])}, this program reads {SCHEMA}: use the revision that wrote it")
    for field, types in FIELDS.items():
        if field not in record:
            raise ValueError(f"{where}: field '{field}' is missing")
        _require(record[field], types, f"{where}: field '{field}'")
    for field, text in (("when", record["when"]), ("expires", record["expires"])):
        try:
            datetime.datetime.fromisoformat((text or "2000-01-01").replace("Z", "+00:00"))
        except ValueError:
            raise ValueError(f"{where}: field '{field}': {text!r} is no date such as 2026-11-29T01:02:03Z") from None
    _require(record["machine"].get("fingerprint"), (str,), f"{where}: field 'machine.fingerprint'")
    names = set()
    for at, entry in enumerate(record["metrics"]):
        here = f"{where}: field 'metrics[{at}]"
        _require(entry, (dict,), here + "'")
        for field, types in METRIC.items():
            _require(entry.get(field), types, f"{here}.{field}'")
        if entry["name"] in names:
            raise ValueError(f"{here}.name': two metrics are named {entry['name']}")
        names.add(entry["name"])
        if entry["better"] not in ("higher", "lower") or entry["kind"] not in KINDS:
            raise ValueError(f"{here}': better is higher or lower, kind one of {', '.join(KINDS)}; found {entry['better']}, {entry['kind']}")
        _numbers([entry["value"], *entry["values"]], f"{here}.values'")
    return record


def history():
    """Names of the files in reference/ that are older than records; history.txt has the day and the commit that filed each beside its name."""
    return [line.split()[0] for line in (measured_runs.ROOT / "reference" / "history.txt").read_text().splitlines()]


def kind_of(path):
    """What a JSON file of reference/ is: "record of schema 1", or "history", which no verdict uses. ValueError where it is neither, or both."""
    old = path.name in history()
    try:
        read(path)
    except ValueError:
        if old:
            return "history"
        raise
    if old:
        raise ValueError(f"{path}: it is a record, and reference/history.txt names it: remove the line")
    return f"record of schema {SCHEMA}"


def read(path):
    """The record in a file. ValueError naming file and field where it is none; OSError."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ValueError(f"{path}: not JSON (truncated?): {problem}") from None
    return check(record, str(path))


def write(path, record, indent=1):
    """OSError where it cannot be written; what was there stays."""
    json_file.write(path, check(record, str(path)), indent)


def value(record, name):
    """Of a metric. ValueError where the record has none of this name."""
    for entry in record["metrics"]:
        if entry["name"] == name:
            return entry["value"]
    raise ValueError(f"{record['benchmark']}: no metric '{name}'; there are {', '.join(entry['name'] for entry in record['metrics']) or 'none'}")


def joined(runs):
    """One record of trainings that differ in nothing but their seeds: seeds and values by launch side by side, the mean as each metric's value. ValueError where
    something else differs, or a seed is there twice."""

    def what(run):
        settings = {key: text for key, text in run["settings"].items() if key != "train.seed"}
        return {"benchmark": run["benchmark"], "settings": settings, "machine": run["machine"]["fingerprint"], "revision": run["revision"],
                "threads": run["threads"], "ranks": run["ranks"], "metrics": [entry["name"] for entry in run["metrics"]]}

    first, seeds = runs[0], [seed for run in runs for seed in run["seeds"]]
    for run in runs[1:]:
        if differs := [key for key, found in what(run).items() if found != what(first)[key]]:
            raise ValueError(f"{first['benchmark']}: records of seeds {first['seeds']} and {run['seeds']} differ in {', '.join(differs)}: they are no runs of one training")
    if len(seeds) != len(set(seeds)):
        raise ValueError(f"{first['benchmark']}: seeds {seeds}: one is there twice")
    metrics = []
    for entries in zip(*(run["metrics"] for run in runs)):
        values = [entry["value"] for entry in entries]
        metrics.append({**entries[0], "value": sum(values) / len(values), "values": values})
    settings = what(first)["settings"]
    return {**{field: first[field] for field in FIELDS}, "when": min(run["when"] for run in runs), "settings": settings, "settings_hash": hash_of(settings),
            "conditions": {"runs": [run["conditions"] for run in runs]}, "oversubscribed": any(run["oversubscribed"] for run in runs), "metrics": metrics, "seeds": seeds}


def is_dirty(record):
    """Whether it is of a source with changes that no commit has, or of an unknown one."""
    return record["revision"] is None or "+" in record["revision"]
