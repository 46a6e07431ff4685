"""What runs are compared with where the build of the reference is not there: stored records of the same machine; and the noise floors of this machine.

References are records, in one JSON file a suite and machine; a user's are beside train's kernel choices, those of this repository in reference/suites/.
Floors are |mean of ln(A2 / A)| as `calibrate` measured it: what equal programs differ by on this machine.
"""

import datetime
import json

import json_file
import record
from measured_runs import Failure, cache

DAYS = 365  # until a reference expires


def _json(path, empty):
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return empty
    except (OSError, ValueError) as problem:
        raise Failure(f"{path}: not JSON (truncated?): {problem}; restore it, or remove it and measure again") from None
    if type(found) is not type(empty):
        raise Failure(f"{path}: no file of this program: remove it, or name another")
    return found


def _write(path, contents):
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        json_file.write(path, contents)
    except OSError as problem:
        raise Failure(f"{path} cannot be written: {problem}") from None


# ---- floors


def floors(machine):
    """What `calibrate` found on a machine: {hash of the metric: {"floor", "deviation", …}}."""
    return _json(cache() / "benchmark_floors.json", {}).get(machine, {})


def keep_floors(machine, found):
    """Adds floors by hash, over those of the same metrics."""
    path = cache() / "benchmark_floors.json"
    everything = _json(path, {})
    everything[machine] = everything.get(machine, {}) | found
    _write(path, everything)


# ---- references


def path_for(folder, suite, machine):
    return folder / f"{suite}-{machine}.json"


def read(path):
    """The records of a file of references, checked. Failure names file, record and field."""
    records = _json(path, [])
    for place, entry in enumerate(records):
        try:
            record.check(entry, f"{path}, record {place}")
        except ValueError as problem:
            raise Failure(str(problem)) from None
    return records


def utc_today():
    return datetime.datetime.now(datetime.timezone.utc).date()


def is_valid(entry, today):
    """Whether a record has not expired."""
    return not entry["expires"] or datetime.date.fromisoformat(entry["expires"][:10]) >= today


def values_for(records, metric, machine, today=None):
    """Costs of the runs that a metric is compared with, and why there are too few where there are."""
    today = today or utc_today()
    mine = [entry for entry in records if entry["benchmark"] == metric.name]
    here = [entry for entry in mine if entry["machine"]["fingerprint"] == machine]
    same = [entry for entry in here if entry["settings_hash"] == metric.hash()]
    valid = [entry for entry in same if is_valid(entry, today)]
    usable = [entry for entry in valid if not entry["oversubscribed"]]
    counts = ((len(mine) - len(here), "of another machine"), (len(here) - len(same), "of other settings"), (len(same) - len(valid), "past their expiry"), (len(valid) - len(usable), "oversubscribed"))
    why = f"{len(usable)} stored runs, at least 5 are needed" + "".join(f"; {count} {what}" for count, what in counts if count)
    values = [entry["metrics"][0] for entry in usable]
    return [1 / value["value"] if value["better"] == "higher" else value["value"] for value in values], why


def accept(path, made, reason, anew=False, today=None):
    """Adds the records of a run to the references, with the reason; `anew`: in place of those of the same metrics. Failure of what is no reference:
    disturbed, of a tree with uncommitted changes, oversubscribed, without reason, or there already."""
    today = today or utc_today()
    if not reason.strip():
        raise Failure("--reason: say why these figures are right from now on")
    if not made:
        raise Failure("the run has no records: nothing was measured")
    for entry in made:
        if entry["verdict"]["verdict"] in ("disturbed", "not-run"):
            raise Failure(f"{entry['benchmark']} is {entry['verdict']['verdict']}: measure again, such a run is no reference")
        if record.is_dirty(entry):
            raise Failure(f"{entry['benchmark']} is of revision {entry['revision']}, which no commit has: commit, build and measure again")
        if entry["oversubscribed"]:
            raise Failure(f"{entry['benchmark']} is oversubscribed: it is no reference; leave it away with run --only")
    there = read(path)
    if any(all(entry[key] == old[key] for key in ("benchmark", "when", "metrics")) for entry in made for old in there):
        raise Failure(f"this run is in {path} already")
    names = {entry["benchmark"] for entry in made}
    stays = [entry for entry in there if not anew or entry["benchmark"] not in names]
    expires = (today + datetime.timedelta(days=DAYS)).isoformat()
    _write(path, stays + [{**entry, "expires": expires, "accepted": {"when": today.isoformat(), "reason": reason}} for entry in made])
