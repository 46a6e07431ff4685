"""JSON files of the scripts beside it: written so that whoever stops the program leaves the old one or the new one; and those of a run, read."""

import json


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
