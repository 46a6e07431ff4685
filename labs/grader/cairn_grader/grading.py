"""Compiles a submission and runs the tests of its lab: one internal result, written by writers.py."""

import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field

from . import sandbox
from .lab import Lab, LabError, seed_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "labs" / "grader" / "include"
FLAGS = ["-std=c++20", "-O1", "-g0", "-Wall", "-Wextra", "-pthread"]
LIBRARIES = ["-pthread"]


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

    @property
    def score(self):
        return sum(test.score for test in self.tests)

    @property
    def points(self):
        return sum(test.points for test in self.tests)

    def as_dict(self):
        return {**asdict(self), "score": self.score, "points": self.points}


def compiler():
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not found:
        raise LabError("no C++ compiler (Debian: apt-get install g++)")
    return found


def compiled_once(name, text, flags, what):
    """The file that the compiler makes of `text`, kept for this compiler, these flags and this text of everything that it includes."""
    cache = pathlib.Path(os.environ.get("CAIRN_LAB_CACHE") or ROOT / "build" / "labs")
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True).stdout
    headers = sorted((ROOT / "include").rglob("*.hpp"))
    library = hashlib.sha256(b"".join(path.read_bytes() for path in headers) + (INCLUDE / "lab.hpp").read_bytes())
    key = hashlib.sha256((version + text + " ".join(flags) + library.hexdigest()).encode()).hexdigest()[:16]
    folder = cache / key
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new, source = folder / f"{name}.{os.getpid()}", folder / f"source.{os.getpid()}"
        source.write_text(text)
        result = subprocess.run([compiler(), *flags, "-I", str(INCLUDE), "-I", str(ROOT / "include"), str(source), "-o", str(new)],
                                capture_output=True, text=True)
        source.unlink()
        if result.returncode:
            new.unlink(missing_ok=True)
            raise LabError(f"{what} does not compile (Debian: apt-get install catch2):\n{result.stderr[-2000:]}")
        new.replace(target)
    return target


def main_object():
    return compiled_once("main.o", (INCLUDE / "main.cpp").read_text(), [*FLAGS, "-O0", "-x", "c++", "-c"], "the grader's main.cpp")


def precompiled(lab):
    """A header that brings what every test of the lab includes; g++ finds its compiled form beside it."""
    text = "".join(f"#include <{name}>\n" for name in ("lab.hpp", *lab.headers))
    compiled = compiled_once("headers.hpp.gch", text, [*FLAGS, "-x", "c++-header"], f"what lab {lab.name} includes")
    header = compiled.with_suffix("")
    if not header.exists():
        header.write_text(text)
    return header


def missing_files(lab, submission):
    return [name for name in lab.files if not (submission / name).is_file()]


def forbidden_include(lab, submission):
    """'file:line includes X' for the first include that a submission may not have."""
    for name in lab.files:
        text = (submission / name).read_text(errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            found = re.match(r"\s*(?:#|%:)\s*(?:include|import|embed)\s*(.*)", line)
            if found and (hit := next((f for f in lab.forbidden_includes if f in found[1]), None)):
                return f"{name}:{number} includes {hit}…: the library's own solution may not be used"
    return None


def dependencies_forbidden(lab, submission, folder):
    """The same for what is included under another spelling (macros, links): asked of the compiler."""
    for name in lab.files:
        command = [compiler(), *FLAGS, "-I", str(ROOT / "include"), "-I", str(submission), "-M", "-x", "c++", str(submission / name)]
        done = sandbox.run(command, 60, 2000, output_kilobytes=1024, privileged=True)
        for path in re.split(r"[\s\\]+", done.output):
            real = os.path.realpath(path) if path.startswith("/") else path
            if hit := next((f for f in lab.forbidden_includes if f in real), None):
                return f"{name} includes {hit}…: the library's own solution may not be used"
    return None


def compile_program(lab, program, submission, folder):
    """(path, what the compiler said). path is None where it does not compile."""
    target = folder / program
    command = [compiler(), *FLAGS, "-include", str(precompiled(lab)), "-I", str(submission), "-I", str(INCLUDE), "-I", str(ROOT / "include"),
               *(str(source) for source in lab.sources(program)), str(main_object()), "-o", str(target), *LIBRARIES]
    done = sandbox.run(command, lab.limits.compile_seconds, lab.limits.compile_megabytes, output_kilobytes=32, privileged=True,
                       environment={"TMPDIR": str(folder)})
    if done.ended_by:
        return None, f"The compiler was stopped: {done.reason}\n{done.output}"
    return (target if done.status == 0 else None), done.output


def run_test(lab, test, program, seed):
    token = secrets.token_hex(16)
    seconds = test.timed_seconds or lab.limits.test_seconds
    name = test.name.replace("\\", "\\\\").replace(",", "\\,").replace("[", "\\[")  # as Catch2 reads test names
    done = sandbox.run([program, name], seconds, lab.limits.test_megabytes, lab.limits.output_kilobytes, lab.limits.processes,
                       given=f"{token} {seed}\n".encode(),
                       environment={"CAIRN_GRADED": "1", "CAIRN_COMM_TIMEOUT": str(max(2, int(seconds / 2)))})
    verdict = None
    for line in done.verdict.decode(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if word == token:
            try:
                verdict = json.loads(rest)
            except json.JSONDecodeError:
                verdict = None
    if done.ended_by or done.signal or verdict is None:
        reason = done.reason or "the program ended before the test did (does something call exit?)"
        return TestResult(test.name, test.task, test.points, 0, False, f"The test did not come to its end: {reason}.\n{done.output[-1500:]}".strip(),
                          seed, done.seconds)
    passed = bool(verdict["passed"]) and verdict["checks"] > 0
    message = f"passed, {verdict['checks']} checks" if passed else verdict["message"] or f"no check of this test was reached; does something go wrong before main?\n{done.output[-1500:]}"
    return TestResult(test.name, test.task, test.points, test.points if passed else 0, passed, message, seed, done.seconds)


def grade(lab: Lab, submission, student="student", secret="public", seed=None, programs=("public", "hidden"), on_test=None):
    """The result of grading the folder `submission`. Never raises for what a submission does. `seed` replays one."""
    submission = pathlib.Path(submission).resolve()
    started = time.monotonic()
    result = Result(lab.name, student)
    wanted = [test for test in lab.tests if test.program in programs]

    def add(test_result):
        result.tests.append(test_result)
        result.seconds = time.monotonic() - started
        if on_test:
            on_test(result)

    def fail_all(tests, why, output):
        result.output += output
        for test in tests:
            add(TestResult(test.name, test.task, test.points, 0, False, why, 0, hidden=test.program == "hidden"))

    missing = missing_files(lab, submission)
    if missing:
        fail_all(wanted, f"{', '.join(missing)} is missing from the submission", f"Handed in must be: {', '.join(lab.files)}\n")
        return result
    with tempfile.TemporaryDirectory(prefix="cairn-build-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        if why := forbidden_include(lab, submission) or dependencies_forbidden(lab, submission, folder):
            fail_all(wanted, why, why + "\n")
            return result
        for program in programs:
            tests = [test for test in wanted if test.program == program]
            if not tests:
                continue
            path, said = compile_program(lab, program, submission, folder)
            if path is None:
                fail_all(tests, "The submission does not compile with these tests; the compiler's words are in the output.", said)
                continue
            for test in tests:
                one = run_test(lab, test, path, seed if seed is not None else seed_of(secret, student, lab.name, test.name))
                one.hidden = program == "hidden"
                add(one)
    return result
