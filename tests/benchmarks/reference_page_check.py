#!/usr/bin/env python3
"""Checks that reference/README.md is what `benchmarks/suite report --reference` writes, and that it does not stay so where a digit is changed in the page, in a JSON file or
in a text, or where no text names a JSON file; and what placeholders show."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from checks import BENCHMARKS, check, end  # noqa: E402
from measured_runs import ROOT, Failure  # noqa: E402
from regression import reference_page  # noqa: E402

CONTENTS = {
    "a": {"x": 2.345, "count": 7, "name": "ring", "below": -0.25, "large": 73_152.3, "small": 0.001234, "text": "1.5", "none": None, "true": True},
    "runs": [{"name": name, "seed": seed, "s": s} for name, seconds in (("sgd", (4.0, 9.0, 2.0)), ("kfac", (2.0, 3.0, 1.0))) for seed, s in enumerate(seconds, 1)],
    "empty": [], "some": [{"name": "sgd, best", "s": s} for s in (8.0, None, 2.0)],
}
SHOWN = {
    "a/x | .2f": "2.35", "a/count": "7", "a/name": "ring", "a/below | +.2f": "−0.25", "a/x | +.1f": "+2.3", "a/large | ,.0f": "73,152", "a/large | 4s": "73,150", "a/small | 2s": "0.0012",
    "a/x * 100 | .1f": "234.5", "a/x / a/count | .3f": "0.335", "runs/0/s - runs/3/s | .1f": "2.0", "runs/*/s | median | .2f": "2.50", "runs/name=sgd/s | max | .1f": "9.0",
    "runs/name=sgd,seed=2/s | .0f": "9", "runs/name=sgd/s / runs/name=kfac/s | geomean | .3f": "2.289", "runs/name=sgd | count": "3", "runs/name=kfac/s | half | .2f": "2.48",
    "runs/name=kfac/s | geolow | .3f": "0.457", "runs/name=kfac/s | geohigh | .3f": "7.223",
    "median(runs/name=sgd/s) / median(runs/name=kfac/s) | .1f": "2.0", "some/name=sgd, best/s | there | count": "2", "runs/name=sgd/s / some/*/s | there | sum | .1f": "1.5",
    "runs/name=kfac/s / 2 | sum | .1f": "3.0", "a/below | e": "−2.500000e−01",
}
REFUSED = [
    "a/none | .2f", "a/true | .2f", "a/text | .2f", "a/missing | .2f", "runs/9/s | .1f", "runs/*/s | .1f", "a/x", "a/x | median | nothing", "a/x | .2f | median", "empty/* | mean | .1f",
    "some/*/s | mean | .1f", "runs/name=sgd/s / some/*/s | geomean | .1f", "some/*/s | there | .1f", "median(a | .1f", "most(some/*/s) | .1f", "some/1/s | there | .1f",
    "runs/name=sgd/s / empty/* | mean | .1f", "runs/*/s / runs/name=sgd | mean | .1f", "a/x / 0 | .1f", "a", "",
]


def refusal(folder):
    """What check() says of a folder; None where all is well."""
    try:
        return reference_page.check(folder)
    except Failure as problem:
        return str(problem)


def changed(path, place=-1):
    """Changes the last digit, or one behind a place, returns what was there."""
    text = path.read_text()
    at = next(match.start() for match in re.finditer(r"\d", text) if match.start() >= place) if place >= 0 else list(re.finditer(r"\d", text))[place].start()
    path.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1:])
    return text


def placeholders():
    for text, shown in SHOWN.items():
        try:
            found = reference_page.figure(CONTENTS, text)
        except Exception as problem:
            found = repr(problem)
        check(found == shown, f"{text} shows {found}, not {shown}")
    for text in REFUSED:
        try:
            check(False, f"{text} shows {reference_page.figure(CONTENTS, text)}: it is refused")
        except (ValueError, KeyError, IndexError, TypeError, ZeroDivisionError):
            pass


def pages(folder):
    """Of a copy: every change is told, with the place where it is seen."""
    shutil.copytree(ROOT / "reference", folder)
    page, text, data = folder / "README.md", folder / "text" / "15-versions.md", folder / "states-2core.json"
    said = refusal(folder)
    check(said is None, "reference/README.md is not what  benchmarks/suite report --reference  writes", said)
    if said:
        return
    digits = [match.start() for match in re.finditer(r"\d", page.read_text())]
    for place in digits[:: len(digits) // 10]:
        old = changed(page, place)
        line = old[:place].count("\n") + 1
        check(f"README.md:{line}: is not" in (refusal(folder) or ""), f"a digit changed in line {line} of the page is told", refusal(folder))
        page.write_text(old)
    before = {path: changed(path) for path in sorted(folder.glob("*.json"))}
    check("is not what" in (refusal(folder) or ""), "digits changed in JSON files are told", refusal(folder))
    rows = reference_page.make(folder).splitlines()
    same = [path.name for path in before if next(line for line in page.read_text().splitlines()[::-1] if line.startswith(f"| [{path.stem}](")) in rows]
    check(before and not same, f"a digit changed in {', '.join(same)} changes the page")
    for path, contents in before.items():
        path.write_text(contents)
    old = text.read_text()
    for match in reference_page.PLACEHOLDER.finditer(old):
        at = next((n for n in range(match.start(2), match.end(2)) if old[n].isdigit()), None)
        if at is not None:
            changed(text, at)
            check(refusal(folder), f"a digit changed in {match[0]} is told")
            text.write_text(old)
    text.write_text(old + "\n{states-2core.json: metrics/0/values/x | .2f}\n")
    check(f"{text}:{len(old.splitlines()) + 2}: {{states-2core.json: metrics/0/values/x | .2f}}" in (refusal(folder) or ""), "a placeholder that leads nowhere is told with its line", refusal(folder))
    text.write_text(old + "\n{absent.json: metrics/0/value | .2f}\n")
    check("absent.json is not in" in (refusal(folder) or ""), "a placeholder of no file is told", refusal(folder))
    text.write_text(old)
    other = folder / "other-2core.json"
    other.write_text(data.read_text())
    check("names other-2core.json" in (refusal(folder) or ""), "a JSON file that no text names is told", refusal(folder))
    text.write_text(old + "\n[other](other-2core.json)\n")
    other.write_text('{"runs": []}')
    check("no field 'schema'" in (refusal(folder) or ""), "a file that is neither a record nor history is told", refusal(folder))
    other.write_text('{"runs": [')
    check("other-2core.json: not JSON" in (refusal(folder) or ""), "a truncated file is told", refusal(folder))
    other.unlink()
    text.write_text(old)
    (folder / "suites").mkdir(exist_ok=True)
    record = json.loads(data.read_text())
    suite = folder / "suites" / "quick-0123456789abcdef.json"
    suite.write_text(json.dumps([record, {**record, "when": "2026-12-01T00:00:00Z"}]))
    made = reference_page.make(folder)
    check(f"| [{suite.stem}](suites/{suite.name}) | compare_states |" in made and "| 2 | 2026-12-01 |" in made, "the references of suites are listed", made[-4000:])
    changed(suite)
    check(reference_page.make(folder) != made, "a digit changed in a reference of a suite changes the page")


def command():
    run = lambda *words: subprocess.run([BENCHMARKS / "suite", "report", *words], capture_output=True, text=True)
    done = run("--reference", "--check")
    check(done.returncode == 0 or "README.md" in done.stderr, "suite report --reference --check says what it found", done.stderr)
    for words in (("--check",), ("--reference", "quick"), ("--html", "x.html"), ("quick",)):
        check(run(*words).returncode == 2, f"suite report {' '.join(words)} is bad usage")


placeholders()
with tempfile.TemporaryDirectory() as name:
    pages(pathlib.Path(name, "reference"))
command()
end("reference page")
