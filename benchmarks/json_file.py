"""JSON files of the scripts beside it: written so that whoever stops the program leaves the old one or the new one; and those of a run, read."""

import json
import sys


def write(path, contents, indent=1):
    """OSError where it cannot be written; what was there stays."""
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(json.dumps(contents, indent=indent) + "\n")
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def metrics(path):
    """The lines of a run's metrics.jsonl. ValueError naming file, line and field where something is no number."""
    entries = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            entry = json.loads(text)
        except ValueError as problem:
            raise ValueError(f"{path}:{number}: not JSON: {problem}") from None
        if not isinstance(entry, dict):
            raise ValueError(f"{path}:{number}: {text}: expected an object, it is of type {type(entry).__name__}")
        for field, value in entry.items():  # null: not finite
            if value is not None and type(value) not in (int, float):
                raise ValueError(f"{path}:{number}: field '{field}' is of type {type(value).__name__}, expected a number")
        entries.append(entry)
    return entries


def result(path):
    """The figures in a run's record.json. ValueError naming file and field where it has none."""
    try:
        record = json.loads(path.read_text())
    except ValueError as problem:
        raise ValueError(f"{path}: not JSON: {problem}") from None
    if not isinstance(record, dict) or not isinstance(record.get("result"), dict):
        raise ValueError(f"{path}: field 'result' is missing, or no object")
    return record["result"]


class Runs:
    """The runs of a comparison in a JSON file beside its description; they are written one by one, so that a stopped comparison goes on."""

    def __init__(self, path, description, header=None):
        """Reads the runs that `path` (None: no file) holds. Ends the script where they are of another description. `header`: fields of a record (record.make)
        for a new file; in one that goes on, "continued" tells when, by which revision, and on which machine. A file that is no such record is read, but gets no runs."""
        self.path, self.description, self.runs = path, json.loads(json.dumps(description)), []
        self.header, self.why_closed = dict(header or {}), None
        if path and not path.resolve().parent.is_dir():
            sys.exit(f"{path}: there is no such folder")
        if not path or not path.exists():
            return
        try:
            earlier = json.loads(path.read_text())
            other = [key for key, value in self.description.items() if earlier.get(key) != value]
            self.runs = earlier["runs"]
            if not isinstance(self.runs, list):
                raise TypeError("its runs are no list")
            here, self.header = self.header, {key: value for key, value in earlier.items() if key != "runs" and key not in self.description}
            if here and self.header.get("schema") != here["schema"]:
                old = f"of schema {self.header['schema']}, this program writes {here['schema']}" if "schema" in self.header else "older than records: it does not say which revision measured its runs, and where"
                self.why_closed = f"{path} is {old}. It can be read, but no run is added to it: name another file"
            elif here:
                again = {"when": here["when"], "revision": here["revision"], "fingerprint": here["machine"]["fingerprint"]}
                self.header["continued"] = [*self.header.get("continued", []), again]
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            sys.exit(f"{path} is not a file of this program ({problem!r}): name another file, or remove it")
        if other:
            sys.exit(f"{path} holds a comparison of other {', '.join(other)}: name another file, or remove it")

    def of(self, **which):
        """Those with these values."""
        return [run for run in self.runs if all(run.get(key) == value for key, value in which.items())]

    def once(self, which, make):
        """The run of `which`, a dictionary; where it is not there yet, what make() returns is added to it, and written. Ends the script where the file takes no runs."""
        for run in self.of(**which):
            return run
        if self.why_closed:
            sys.exit(self.why_closed)
        self.runs.append({**which, **make()})
        if self.path:
            write(self.path, {**self.header, **self.description, "runs": self.runs}, indent=None)
        return self.runs[-1]
