"""A lab's description, lab.toml, and the seeds of its inputs."""

import hashlib
import hmac
import pathlib
from dataclasses import dataclass, field

try:
    import tomllib
except ImportError:  # before Python 3.11: python3-tomli
    import tomli as tomllib


class LabError(Exception):
    """Something is wrong with the lab, not with a submission."""


@dataclass(frozen=True)
class Limits:
    compile_seconds: float = 120
    compile_megabytes: int = 768
    test_seconds: float = 20
    test_megabytes: int = 512
    output_kilobytes: int = 64
    processes: int = 64


@dataclass(frozen=True)
class Test:
    name: str  # the Catch2 test case
    program: str  # "public" or "hidden"
    task: str
    points: int
    timed_seconds: float | None = None  # its own limit


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
    headers: tuple[str, ...] = ()  # of the library, compiled once for all submissions
    tasks: dict = field(default_factory=dict)  # name -> title

    @property
    def name(self):
        return self.folder.name

    @property
    def points(self):
        return sum(test.points for test in self.tests)

    def sources(self, program):
        """C++ files of the public or hidden tests."""
        return sorted((self.folder / ("tests" if program == "public" else "grading")).glob("*.cpp"))


def load(folder):
    """The lab in `folder`. LabError names what is missing or does not fit."""
    folder = pathlib.Path(folder).resolve()
    path = folder / "lab.toml"
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}: not a lab") from error
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"{path}: {error}") from error
    try:
        tasks = {task["name"]: task["title"] for task in raw["task"]}
        tests = tuple(Test(test["name"], test["program"], test["task"], test["points"], test.get("seconds")) for test in raw["test"])
        lab = Lab(folder, raw["title"], tuple(raw["files"]), tuple(raw.get("forbidden_includes", ())), tests,
                  Limits(**raw.get("limits", {})), tuple(raw["hours"]), raw.get("ranks", 1), tuple(raw.get("headers", ())), tasks)
    except (KeyError, TypeError) as error:
        raise LabError(f"{path}: {error} is missing or of the wrong kind") from error
    for test in tests:
        if test.program not in ("public", "hidden") or test.task not in tasks or test.points < 0:
            raise LabError(f"{path}: test \"{test.name}\": program is public or hidden, task is one of {', '.join(tasks)}, points are not negative")
    if len({test.name for test in tests}) != len(tests):
        raise LabError(f"{path}: two tests have one name")
    if lab.points != 100:
        raise LabError(f"{path}: the points add up to {lab.points}, not 100")
    return lab


def seed_of(secret, student, lab, test):
    """64 bits that nobody can guess without the course's secret, the same whenever this student's submission is graded."""
    text = "\0".join((student, lab, test)).encode()
    return int.from_bytes(hmac.new(secret.encode(), text, hashlib.sha256).digest()[:8], "big")
