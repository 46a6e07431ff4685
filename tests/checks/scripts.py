#!/usr/bin/env python3
"""Checks what no compiler sees: shell and Python scripts parse and are executable, JSON and TOML files are valid; links of Markdown pages lead to
files of the repository and to headings, programs that a page runs were built on it (page_commands.py); the README shows the example that is
compiled; course/settings.md has the settings that the code reads, and no others; lines of comments end at column 120, headers that they name
exist; figures in text that are marked with a record of reference/ are the record's.

    tests/checks/scripts.py [ROOT]
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tomllib

import page_commands


def tracked(root):
    """Files of ours: what git tracks or would track; without git, everything but build results."""
    try:
        command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0")
        files = [root / name for name in names if name]
    except (OSError, subprocess.CalledProcessError):
        ignored = {".git", "build", "runs", "site"}
        files = [p for p in root.rglob("*") if not ignored & set(p.relative_to(root).parts)]
    return sorted(p for p in files if p.is_file())


def is_part(path, root):
    """Whether this is a text that reference/README.md is made of: its links are those of that page."""
    return path.parent == root / "reference" / "text"


def offences_of(path, root):
    suffix = path.suffix
    head = path.open("rb").read(64)
    if head.startswith(b"#!"):
        if not os.access(path, os.X_OK):
            yield "has a #! line and is not executable"
        if b"bash" in head.split(b"\n")[0] or b"/sh" in head.split(b"\n")[0]:
            result = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            if result.returncode:
                yield result.stderr.strip()
    try:
        if suffix == ".py" or (head.startswith(b"#!") and b"python" in head.split(b"\n")[0]):
            compile(path.read_text(encoding="utf-8"), str(path), "exec")
        elif suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif suffix == ".toml":
            tomllib.loads(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as problem:
        yield str(problem)
    if suffix == ".md" and not is_part(path, root):
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            file = path.parent / target
            drawn = file.suffix == ".svg" and file.with_suffix(".py").exists()  # a figure of the course, made by the script of its name
            if not re.match(r"[a-z]+:", target) and not file.exists() and not drawn:
                yield f"links to {target}, which does not exist"


COMMENT = {".hpp": "//", ".cpp": "//", ".cu": "//", ".sh": "#", ".py": "#", ".cmake": "#"}


def long_comments(path):
    """Lines of comments, and of comments behind code, that go beyond column 120."""
    mark = COMMENT.get(path.suffix)
    if mark is None and path.open("rb").read(2) == b"#!":
        mark = "#"
    if mark is None:
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if len(line) > 120 and (line.lstrip().startswith((f"{mark} ", f"{mark}/ ")) or f"  {mark} " in line[:120] and '"' not in line):
            yield f"{number}: a line of comment with {len(line)} columns, more than 120"


def absent_headers(path, root, paths):
    """Headers that comments of the library and its tests name, and the repository does not have."""
    if path.suffix not in (".hpp", ".cpp", ".cu") or path.relative_to(root).parts[0] not in ("include", "tests"):
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for name in re.findall(r"(?<![\w/*-])[\w/-]+\.hpp\b", line.partition("// ")[2]):
            if f"/{name}" not in paths:
                yield f"{number}: names {name}, which does not exist"


SECTIONS = "train data model loss optimizer lr_schedule kfac shampoo soap muon admm activations parallel compress".split()
SETTING = rf"(?:{'|'.join(SECTIONS)})(?:\.[a-z][a-z0-9_]*)+"


def format_settings(root):
    """Settings of data formats: structs with a name read a table each, where they read another struct with its keys (data/data_format.hpp)."""
    texts = [path.read_text(encoding="utf-8") for path in [*root.glob("include/cairn/data/**/*.hpp"), *root.glob("include/cairn/train/*.hpp")]]
    structs = {match[1]: match[2] for text in texts for match in re.finditer(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)}

    def keys(struct):
        members = re.findall(r"^    (\w+) \w+;", structs.get(struct, ""), re.M)
        return set(re.findall(r'\btable\(\s*"(\w+)"', structs.get(struct, ""))).union(*map(keys, members))

    for struct, body in structs.items():
        for names in re.findall(r"static constexpr const char\* name = ([^;]*);", body):
            if "void read(Table& table)" in body:
                yield from (f"data.{name}.{key}" for name in re.findall(r'"(\w+)"', names) for key in keys(struct))


def settings_faults(root):
    """Settings that the code reads and course/settings.md does not name, and the other way round."""
    sources = [*root.glob("include/cairn/train/*.hpp"), *root.glob("benchmarks/train*"), *root.glob("benchmarks/train/*")]
    read = {name for path in sources if path.is_file()
            for name in re.findall(rf'"({SETTING})"', path.read_text(encoding="utf-8"))} | set(format_settings(root))
    named = set(re.findall(rf"`({SETTING})", (root / "course" / "settings.md").read_text(encoding="utf-8")))
    yield from (f"course/settings.md: {name} is missing, which the code reads" for name in sorted(read - named))
    yield from (f"course/settings.md: {name}, which no code reads" for name in sorted(named - read))


def value_at(record, pointer):
    """The number at a path such as summary/0/speed_ratio_median."""
    for key in pointer.split("/"):
        record = record[int(key)] if isinstance(record, list) else record[key]
    return float(record)


FIGURE = re.compile(r"([0-9]+(?:\.([0-9]+))?)[^0-9\n]*?<!-- (\S+\.json): (\S+)(?: / (\S+))? -->")


def figure_faults(path, root):
    """Figures before a mark `<!-- reference/FILE.json: PATH -->` are those of the record, rounded as written. `PATH / PATH`
    is a ratio; `runs:NAME:KEY / runs:NAME:KEY` the geometric mean over seeds of that of two kinds of runs."""
    text = path.read_text(encoding="utf-8")
    found = list(FIGURE.finditer(text))
    if len(found) != len(re.findall(r"<!-- \S+\.json: ", text)):
        yield "a mark of a record without a figure before it"
    for match in found:
        written, digits, file, over, under = match.groups()
        try:
            value = figure(json.loads((root / file).read_text(encoding="utf-8")), over, under)
        except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError) as problem:
            yield f"{file}: {over}: {problem!r}"
            continue
        if f"{value:.{len(digits or '')}f}" != written:
            yield f"{written} is not {value:.5g} of {file}: {over}"


def figure(record, over, under):
    """The value of a mark, see figure_faults."""
    if not over.startswith("runs:"):
        return value_at(record, over) / (value_at(record, under) if under else 1)
    def by_seed(name):
        _, kind, key = name.split(":")
        return {run["seed"]: run[key] for run in record["runs"] if run["name"] == kind}
    above, below = by_seed(over), by_seed(under)
    return statistics.geometric_mean(above[seed] / below[seed] for seed in above)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    files = tracked(root)
    offences = [f"{path.relative_to(root)}: {what}" for path in files for what in offences_of(path, root)]

    offences += [f"{path.relative_to(root)}:{what}" for path in files for what in long_comments(path)]
    paths = {"/" + "/".join(path.relative_to(root).parts[i:]) for path in files for i in range(len(path.relative_to(root).parts))}
    offences += [f"{path.relative_to(root)}:{what}" for path in files for what in absent_headers(path, root, paths)]
    offences += [f"{path.relative_to(root)}: {what}" for path in files if path.suffix == ".md" for what in figure_faults(path, root)]
    offences += [f"{path.relative_to(root)}: {what}" for path in files if path.suffix == ".md" and path.name != "CHANGELOG.md" and not is_part(path, root)
                 for what in [*page_commands.command_faults(path, root), *page_commands.anchor_faults(path)]]
    offences += settings_faults(root)

    # The top level is fixed, so that it stays a table of contents.
    allowed = {"CMakeLists.txt", "include", "labs", "benchmarks", "reference", "tests", "course", "README.md",
               "CMakePresets.json", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"}
    for name in sorted({path.relative_to(root).parts[0] for path in files}):
        if name not in allowed and not name.startswith("."):
            offences.append(f"{name}: not among the files and folders of the top level")

    readme, example = root / "README.md", root / "tests" / "package" / "readme_example.cpp"
    shown = re.search(r"```cpp\n(.*?)```", readme.read_text(encoding="utf-8"), re.S) if readme.exists() else None
    if shown is None or shown[1].strip() != example.read_text(encoding="utf-8").strip():
        offences.append(f"README.md: its first C++ example is not {example.relative_to(root)}")

    for ratio in re.findall(r"[0-9.]+ (?:×|times)[^|\n]{0,20}", FIGURE.sub("", readme.read_text(encoding="utf-8")) if readme.exists() else ""):
        offences.append(f"README.md: \"{ratio.strip()}\" names no record of reference/")

    print("\n".join(offences) if offences else f"{len(files)} files looked at")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
