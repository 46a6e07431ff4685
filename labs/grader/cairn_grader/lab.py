"""A lab's description, lab.toml, and the seeds of its inputs."""

import hashlib
import hmac
import os
import pathlib
import re
from dataclasses import dataclass, field

try:
    import tomllib
except ImportError:  # before Python 3.11: python3-tomli
    import tomli as tomllib


LABS = pathlib.Path(__file__).resolve().parents[2]
PRIVATE = ("solution", "grading", "mutants.toml", "variants.toml", "INSTRUCTOR.md", "rubric.md")  # parts of a lab that students do not get


class LabError(Exception):
    """Something is wrong with the lab, not with a submission."""


@dataclass(frozen=True)
class Limits:
    compile_seconds: float = 30  # of processor time, as all seconds: a loaded machine changes no verdict
    compile_megabytes: int = 768
    test_seconds: float = 10  # of each rank
    test_megabytes: int = 512  # of all ranks together
    output_kilobytes: int = 64  # of each rank
    processes: int = 64  # threads, of each rank


@dataclass(frozen=True)
class Test:
    name: str  # the Catch2 test case
    program: str  # "public" or "hidden"
    task: str
    points: int
    seconds: float | None = None  # its own limit


@dataclass(frozen=True)
class Lab:
    folder: pathlib.Path
    title: str
    files: tuple[str, ...]  # what is handed in
    forbidden_includes: tuple[str, ...]
    tests: tuple[Test, ...]
    limits: Limits
    hours: tuple[float, float]
    ranks: int
    headers: tuple[str, ...] = ()  # of the library: submissions see these and what they include, and no others
    tasks: dict = field(default_factory=dict)  # name -> title
    task_files: dict = field(default_factory=dict)  # name -> the files that it needs, where that is not all of them
    link: tuple[str, ...] = ()  # the linker's arguments: "-lopenblas"

    @property
    def name(self):
        return self.folder.name

    @property
    def points(self):
        return sum(test.points for test in self.tests)

    def in_order(self, programs=("public", "hidden")):
        """The tests of these programs, in the order in which they are run."""
        return [test for program in programs for test in self.tests if test.program == program]

    def part(self, name):
        """The path of a part of the lab: in its folder, or, where a course keeps what is PRIVATE elsewhere, in CAIRN_LAB_PRIVATE/NAME."""
        elsewhere = os.environ.get("CAIRN_LAB_PRIVATE")
        return pathlib.Path(elsewhere, self.name, name) if elsewhere and not (self.folder / name).exists() else self.folder / name

    def sources(self, program):
        """C++ files of the public or hidden tests."""
        return sorted(self.part("tests" if program == "public" else "grading").glob("*.cpp"))


def load(folder):
    """The lab in `folder`. LabError names what is missing or does not fit."""
    folder = pathlib.Path(folder).resolve()
    path = folder / "lab.toml"
    if (elsewhere := os.environ.get("CAIRN_LAB_PRIVATE")) and not pathlib.Path(elsewhere).is_dir():
        raise LabError(f"CAIRN_LAB_PRIVATE names {elsewhere}, which is no folder; labs/grader/export --private writes one")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}: not a lab") from error
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{path}: {error}") from error
    try:
        tasks = {task["name"]: task["title"] for task in raw["task"]}
        task_files = {task["name"]: tuple(task["files"]) for task in raw["task"] if "files" in task}
        tests = tuple(Test(test["name"], test["program"], test["task"], test["points"], test.get("seconds")) for test in raw["test"])
        lab = Lab(folder, raw["title"], tuple(raw["files"]), tuple(raw.get("forbidden_includes", ())), tests,
                  Limits(**raw.get("limits", {})), tuple(raw["hours"]), raw.get("ranks", 1), tuple(raw.get("headers", ())), tasks, task_files,
                  tuple(raw.get("link", ())))
    except (KeyError, TypeError) as error:
        raise LabError(f"{path}: {error} is missing or of the wrong kind") from error
    if bad := [name for name in lab.files if not re.fullmatch(r"\w[\w.-]*", name)]:
        raise LabError(f"{path}: files: {bad[0]}: names without folders")
    if bad := [name for names in task_files.values() for name in names if name not in lab.files]:
        raise LabError(f"{path}: task: {bad[0]} is not among the files that are handed in")
    for test in tests:
        if test.program not in ("public", "hidden") or test.task not in tasks or not isinstance(test.points, int) or test.points < 0:
            raise LabError(f"{path}: test \"{test.name}\": program is public or hidden, task is one of {', '.join(tasks)}, points are a whole number")
        if not re.fullmatch(r"[\w(][\w :;.,()'/+=<>-]*", test.name):
            raise LabError(f"{path}: test \"{test.name}\": a name has letters, digits, spaces and : ; . , ( ) ' / + = < > - and begins with a letter or digit")
    if len({test.name for test in tests}) != len(tests):
        raise LabError(f"{path}: two tests have one name")
    if lab.points != 100:
        raise LabError(f"{path}: the points add up to {lab.points}, not 100")
    return lab


def every():
    """All labs of labs/."""
    return [load(path.parent) for path in sorted(LABS.glob("*/lab.toml"))]


def find(name):
    """The lab of a folder, or of a name in labs/."""
    for folder in (pathlib.Path(name), LABS / name):
        if (folder / "lab.toml").is_file():
            return load(folder)
    raise LabError(f"there is no lab {name}; labs are {', '.join(sorted(path.parent.name for path in LABS.glob('*/lab.toml')))}, and folders with a lab.toml")


def bytes_drawn(secret, *names):
    """32 bytes that nobody can guess without the course's secret, the same for the same names."""
    return hmac.new(secret.encode(errors="surrogateescape"), "\0".join(names).encode(errors="surrogateescape"), hashlib.sha256).digest()


def seed_of(secret, student, lab, test):
    """15 digits, which spreadsheets keep; the same whenever this student's submission is graded."""
    return int.from_bytes(bytes_drawn(secret, student, lab, test), "big") % 10**15
