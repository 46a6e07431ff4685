"""Compiles a submission and runs the tests of its lab: one internal result, written by writers.py."""

import atexit
import pathlib
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

from . import build, sandbox, submission
from .lab import LABS, Lab, LabError, load, seed_of
from .session import Session

ROOT = build.ROOT
MOST_TEXT = 20000  # characters of one message


@dataclass
class TestResult:
    name: str
    task: str
    points: int
    score: float
    passed: bool
    message: str
    seed: int
    seconds: float = 0.0
    hidden: bool = False


@dataclass
class Result:
    lab: str
    student: str
    tests: list = field(default_factory=list)
    output: str = ""  # of the compiler, or why nothing was graded
    seconds: float = 0.0
    missing_protection: list = field(default_factory=list)

    @property
    def score(self):
        return sum(test.score for test in self.tests)

    @property
    def points(self):
        return sum(test.points for test in self.tests)


class Stopped(BaseException):
    """The grader was asked to end (SIGTERM, SIGINT)."""


# Control characters, other line ends than \n, and what turns the direction of text round.
UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def readable(text):
    return sandbox.cut(UNREADABLE.sub("?", text), MOST_TEXT)


def remove(folder):
    """However deep it is, and whatever may be read of it."""
    subprocess.run(["chmod", "-R", "u+rwx", folder], stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", "--one-file-system", folder], stderr=subprocess.DEVNULL)


def other_labs(lab):
    for path in sorted(LABS.glob("*/lab.toml")):
        try:
            yield load(path.parent)
        except LabError:
            pass


def starter_of(lab):
    return {name: (lab.folder / "starter" / name).read_text(encoding="utf-8") for name in lab.files}


class Submission:
    """Its worker, or why there is none, and which of its files do not count."""

    def __init__(self, lab, folder, into, flags=build.FLAGS):
        self.program, self.output, self.faults = None, "", {}
        texts, self.faults, self.why = submission.collect(pathlib.Path(folder), lab, other_labs(lab))
        if self.why:
            self.output = self.why
            return
        maker = build.Worker(lab, into, flags)
        self.program, said, broken = maker.program(texts, starter_of(lab))
        maker.close()
        for name in broken:
            self.faults[name] = f"{name} does not compile" if self.program else "the submission does not compile"
        self.output = "\n".join((*self.faults.values(), said.strip())).strip()
        if not self.program:
            self.why = "; ".join(dict.fromkeys(self.faults.values())) + ": the compiler's words are in the output."

    def why_zero(self, lab, test):
        """Of a test whose task needs a file that is not there."""
        needed = [self.faults[name] for name in lab.task_files.get(test.task, lab.files) if name in self.faults]
        return f"{'; '.join(needed)}: in its place the starter's was tested." if needed else None


def grade(lab: Lab, folder, student="student", secret="public", seed=None, programs=("public", "hidden"), on_test=None, within=None):
    """The result of grading the submission in `folder`. Never raises for what a submission does. `seed` replays one. Tests that have not begun
    `within` seconds are not run."""
    started = time.monotonic()
    result = Result(lab.name, student, missing_protection=sandbox.missing_protection())
    tests = lab.in_order(programs)
    judges = {program: build.judge(lab, program) for program in dict.fromkeys(test.program for test in tests)}
    name = tempfile.mkdtemp(prefix="cairn-grade-")
    atexit.register(remove, name)  # the signal that stops a grader can come while it cleans up

    def add(test, passed, message, seed=0, seconds=0.0):
        result.tests.append(TestResult(test.name, test.task, test.points, test.points if passed else 0, passed, readable(message), seed, seconds,
                                       test.program == "hidden"))
        result.seconds = time.monotonic() - started
        if on_test:
            on_test(result)

    try:
        handed_in = Submission(lab, folder, name)
        result.output = readable(handed_in.output)
        empty = pathlib.Path(name, "empty")
        empty.mkdir(mode=0o755)
        for test in tests:
            if handed_in.why:
                add(test, False, handed_in.why)
            elif within and time.monotonic() - started > within:
                add(test, False, f"Not run: the {within:.0f} s for all tests were used up by the compiler and the tests before.")
            else:
                own_seed = seed if seed is not None else seed_of(secret, student, lab.name, test.name)
                verdict = Session(lab, test, judges[test.program], handed_in.program, own_seed, empty).run()
                why = None if verdict.passed else handed_in.why_zero(lab, test)
                add(test, verdict.passed, f"{why}\n{verdict.message}" if why else verdict.message, own_seed, verdict.seconds)
    except Stopped as stopped:
        for test in tests[len(result.tests):]:
            add(test, False, f"Not run: the grader was stopped ({stopped}).")
        raise
    finally:
        sandbox.end_all()
        remove(name)
        atexit.unregister(remove)
    return result
