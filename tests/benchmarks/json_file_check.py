#!/usr/bin/env python3
"""Checks what the benchmarks say of a run's metrics.jsonl and record.json that are not as a run writes them."""

import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import json_file  # noqa: E402

failures = 0


def check(read, path, text, *parts):
    """`read` refuses a file of this text, and says where and what."""
    global failures
    path.write_text(text)
    try:
        said = f"no error, but {read(path)}"
    except ValueError as problem:
        said = str(problem)
    if not all(part in said for part in (str(path), *parts)):
        failures += 1
        print(f"FAILED: {text!r}: expected {parts}, found: {said}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        metrics, record = pathlib.Path(folder, "metrics.jsonl"), pathlib.Path(folder, "record.json")
        good = '{"step": 1, "loss": 0.5, "test_r2": null}\n'
        metrics.write_text(good)
        assert json_file.metrics(metrics) == [{"step": 1, "loss": 0.5, "test_r2": None}]
        record.write_text('{"result": {"steps": 4}}')
        assert json_file.result(record) == {"steps": 4}
        check(json_file.metrics, metrics, good + '{"step": 2, "loss": "low"}\n', ":2: field 'loss' is of type str, expected a number")
        check(json_file.metrics, metrics, good + '{"step": true}\n', ":2: field 'step' is of type bool")
        check(json_file.metrics, metrics, good + "[1]\n", ":2: [1]: expected an object, it is of type list")
        check(json_file.metrics, metrics, good + '{"step": 2, "lo', ":2: not JSON")
        check(json_file.result, record, "{", "not JSON")
        for text in ("[]", "{}", '{"result": 3}'):
            check(json_file.result, record, text, "field 'result' is missing, or no object")
    print("files of runs: all right" if not failures else f"files of runs: {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
