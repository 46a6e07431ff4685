"""reference/README.md, made of what is in reference/: the texts of text/, in order of their names, with figures from the JSON files, and a table of these files.

A figure of a text is a placeholder, {FILE.json: VALUE | FUNCTION | FORMAT}; the file may be left away where it is that of the placeholder before.

    VALUE      a path such as summary/0/speed; * stands for each element, name=sgd,seed=1 for those of a list with such fields. + - * / between paths, numbers such
               as 1e6 and a function of a path, such as median(runs/*/s), from left to right, element by element; null with anything is null
    FUNCTION   makes one value of several: count, sum, mean, half (half of the 95 % interval of the mean), geomean and the ends of its
               95 % interval, geolow and geohigh, median, min, max, or deviation; there leaves out what is null, for a function behind it
    FORMAT     Python's, such as .2f or ,.0f or +.1f; 3s: three significant digits. Without one it is shown as it is, if it is text or a whole number
"""

import hashlib
import json
import math
import operator
import re
import statistics
import textwrap

import intervals
import record
from measured_runs import ROOT, Failure

from . import references

FOLDER = ROOT / "reference"
PLACEHOLDER = re.compile(r"\{([\w.-]+\.json)?: ([^{}\n]*)\}")
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
FUNCTIONS = {
    "count": len, "sum": math.fsum, "mean": statistics.fmean, "half": lambda values: intervals.mean_and_half(values)[1], "geomean": statistics.geometric_mean,
    "geolow": lambda values: intervals.geometric(values)[1], "geohigh": lambda values: intervals.geometric(values)[2],
    "median": statistics.median, "min": min, "max": max, "deviation": statistics.stdev,
}
HEAD = """<!-- Written by  benchmarks/suite report --reference  from reference/text/ and the JSON files beside it. Edit those, not this page. -->
# Reference results

This page is made: `benchmarks/suite report --reference` writes it from the texts in `reference/text/` and from the JSON files in `reference/`, and `--check` says whether it
is up to date. To add a result, put its JSON file here (what scripts write with `--json` is a record, benchmarks/record.py), name it in the text of its
section, with figures as placeholders such as `{peers-2core.json: summary/0/speed_ratio_median | .2f}` (benchmarks/regression/reference_page.py), and run the command.
Figures that are called history, by hand, were measured before there were records; the commit is the one that filed them.
"""


# ---- placeholders


def _found(contents, path):
    """What is at a path, a list."""
    found = [contents]
    for key in path.split("/"):
        below = []
        for item in found:
            if key == "*":
                below += item.values() if isinstance(item, dict) else item
            elif isinstance(item, list) and "=" in key:
                wanted = dict(part.split("=") for part in re.split(r",(?=\w+=)", key))
                if unknown := [field for field in wanted if not any(field in entry for entry in item)]:
                    raise KeyError(unknown[0])
                below += [entry for entry in item if all(str(entry.get(field)) == text for field, text in wanted.items())]
            else:
                below.append(item[int(key)] if isinstance(item, list) else item[key])
        found = below
    return found


def _operand(contents, text):
    try:
        return [float(text)]
    except ValueError:
        function = re.fullmatch(r"(\w+)\((.+)\)", text)
        return [FUNCTIONS[function[1]](_found(contents, function[2]))] if function else _found(contents, text)


def _values(contents, text):
    """The values of `PATH / PATH - NUMBER …`."""
    first, *rest = re.split(r" ([-+*/]) ", text)
    values = _operand(contents, first)
    for sign, path in zip(rest[::2], rest[1::2]):
        others = _operand(contents, path)
        if len(others) != len(values) and 1 not in (len(others), len(values)):
            raise ValueError(f"{len(values)} values {sign} {len(others)}")
        count = max(len(values), len(others))
        values = [None if a is None or b is None else OPERATIONS[sign](a, b) for a, b in zip(values * (count // len(values)), others * (count // len(others)))]
    return values


def _shown(value, how):
    if how is None:
        if isinstance(value, float) or not isinstance(value, (str, int)):
            raise ValueError(f"{value!r} needs a format")
        return str(value)
    if isinstance(value, bool):
        raise ValueError(f"{value} is no figure")
    if digits := re.fullmatch(r"(\d)s", how):
        value = float(f"{value:.{int(digits[1]) - 1}e}")
        how = f",.{max(0, int(digits[1]) - 1 - math.floor(math.log10(abs(value))) if value else 0)}f"
    if not re.fullmatch(r"\+?,?(\.\d)?[deg]|\+?,?\.\df", how):
        raise ValueError(f"'{how}' is no format such as .2f")
    return format(value, how).replace("-", "−")


def figure(contents, text):
    """What a placeholder shows of a file's contents. ValueError, KeyError and others of what cannot be shown."""
    expression, *steps = (part.strip() for part in text.split("|"))
    values, how = _values(contents, expression), None
    for step in steps:
        if how is not None:
            raise ValueError(f"'{step}' behind a format")
        if step == "there":
            values = [value for value in values if value is not None]
        elif step in FUNCTIONS:
            values = [FUNCTIONS[step](values)]
        else:
            how = step
    if len(values) != 1:
        raise ValueError(f"{len(values)} values, one is shown: name a function")
    return _shown(values[0], how)


def _filled(path, files):
    """A text with its figures. Failure names file, line and placeholder."""
    lines, last = [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):

        def fill(match):
            nonlocal last
            last = match[1] or last
            if last not in files:
                raise Failure(f"{path}:{number}: {match[0]}: " + (f"{last} is not in {path.parents[1]}" if last else "name the file of the first placeholder"))
            try:
                return figure(files[last], match[2])
            except (ValueError, KeyError, IndexError, TypeError, AttributeError, ZeroDivisionError, statistics.StatisticsError) as problem:
                raise Failure(f"{path}:{number}: {match[0]}: {last} does not give it: {type(problem).__name__}: {problem}") from None

        # In a code span it is an example.
        lines.append("".join(part if part.startswith("`") else PLACEHOLDER.sub(fill, part) for part in re.split(r"(`[^`]*`)", line)))
    return "\n".join(lines).strip()


# ---- tables


def _loaded(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise Failure(f"{path}: not JSON (truncated?): {problem}") from None


def _row(path, contents, filed):
    """Of the table of files. `filed`: name → day and commit of what is older than records."""
    field = lambda *names: next((contents[name] for name in names if isinstance(contents.get(name), str)), None) if isinstance(contents, dict) else None
    if path.name in filed:
        day, commit = filed[path.name]
        own = field("revision", "commit") or ""
        when, kind = (field("when", "measured", "date") or day)[:10], "history"
        revision = own if re.fullmatch("[0-9a-f]{7,}", own) else f"filed by {commit}"
        command = next(word for word in (field("program", "command") or "–").split() if "=" not in word)
        benchmark, machine = re.sub(r"^(build/release/)?benchmarks/", "", command), textwrap.shorten(field("machine", "gpu", "cpu") or "not noted", 60, placeholder=" …")
    else:
        try:
            record.check(contents, str(path))
        except ValueError as problem:
            raise Failure(f"{problem}; what is older than records has a line in reference/history.txt") from None
        when, revision, kind, benchmark = contents["when"][:10], contents["revision"] or "unknown", "record", contents["benchmark"]
        machine = f"{contents['machine'].get('cpu', 'unknown processor')}, `{contents['machine']['fingerprint']}`"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    return f"| [{path.stem}]({path.name}) | {benchmark} | {when} | {revision} | {machine} | {kind} | `{digest}` |"


def _suites(folder):
    """Of the references of suites: one line a metric and machine."""
    for path in sorted((folder / "suites").glob("*.json")):
        records = references.read(path)
        for name, machine in dict.fromkeys((entry["benchmark"], entry["machine"]["fingerprint"]) for entry in records):
            mine = [entry for entry in records if (entry["benchmark"], entry["machine"]["fingerprint"]) == (name, machine)]
            metric, values = mine[-1]["metrics"][0], [entry["metrics"][0]["value"] for entry in mine]
            digest = hashlib.sha256(json.dumps(mine).encode()).hexdigest()[:8]
            yield (f"| [{path.stem}](suites/{path.name}) | {name} | {_shown(statistics.median(values), '4s')} {metric['unit']} ({_shown(min(values), '4s')}–{_shown(max(values), '4s')}) | {len(mine)} | "
                   f"{max(entry['when'] for entry in mine)[:10]} | {mine[-1]['revision'] or 'unknown'} | `{machine}` | `{digest}` |")


# ---- the page


def make(folder=FOLDER):
    """The text of README.md. Failure where a placeholder is not given, or no text names a JSON file."""
    paths = sorted(folder.glob("*.json"))
    files = {path.name: _loaded(path) for path in paths}
    texts = sorted((folder / "text").glob("*.md"))
    if not texts:
        raise Failure(f"{folder / 'text'} has no texts")
    filled = [_filled(path, files) for path in texts]
    named = "\n".join(path.read_text(encoding="utf-8") for path in texts)
    digest = hashlib.sha256(named.encode()).hexdigest()[:8]
    if forgotten := [path.name for path in paths if not re.search(rf"(?<![\w.-]){re.escape(path.name)}", named)]:
        raise Failure(f"no text in {folder / 'text'} names {', '.join(forgotten)}: say in one of them what it shows")
    filed = {name: words for name, *words in map(str.split, (folder / "history.txt").read_text().splitlines())}
    parts = [HEAD.strip(), *filled]
    if suites := list(_suites(folder)):
        parts.append("## References of suites\n\nWhat `benchmarks/suite` compares runs of these machines with.\n\n"
                     "| file | metric | median (least to most) | runs | newest | revision | machine | SHA-256 |\n|---|---|---|---|---|---|---|---|\n" + "\n".join(suites))
    parts.append("## All files\n\nRecords have one form (benchmarks/record.py); history is older. The last column begins the SHA-256 of the file, that of the texts is "
                 f"`{digest}`: this page changes with each digit of them.\n\n"
                 "| file | benchmark | when | revision | machine | kind | SHA-256 |\n|---|---|---|---|---|---|---|\n" + "\n".join(_row(path, files[path.name], filed) for path in paths))
    return "\n\n".join(parts) + "\n"


def check(folder=FOLDER):
    """Failure naming the first line of README.md that is not what make() says."""
    there, made = (folder / "README.md").read_text(encoding="utf-8").split("\n"), make(folder).split("\n")
    for number, (old, new) in enumerate(zip(there + [None] * len(made), made + [None] * len(there)), 1):
        if old != new:
            raise Failure(f"{folder / 'README.md'}:{number}: is not what  benchmarks/suite report --reference  writes:\n  there: {old}\n  made:  {new}")
