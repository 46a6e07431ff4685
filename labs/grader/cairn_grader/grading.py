"""Compiles a submission and runs the tests of its lab: one internal result, written by writers.py."""

import functools
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
from dataclasses import dataclass, field

from . import sandbox, submission
from .lab import Lab, LabError, seed_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "labs" / "grader" / "include"
FLAGS = ["-std=c++20", "-O1", "-g0", "-D_GLIBCXX_ASSERTIONS", "-Wall", "-Wextra", "-pthread"]
CLOCK = 5  # times the processor time that something may take, it may take by the clock


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


def compiler():
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not found:
        raise LabError("no C++ compiler (Debian: apt-get install g++)")
    return found


def cache():
    return pathlib.Path(os.environ.get("CAIRN_LAB_CACHE") or ROOT / "build" / "labs")


def compiled_once(name, text, flags, what):
    """The file that the compiler makes of `text`, kept for this compiler, these flags and this text of everything that it includes."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True).stdout
    headers = sorted((ROOT / "include").rglob("*.hpp"))
    library = hashlib.sha256(b"".join(path.read_bytes() for path in headers) + b"".join(path.read_bytes() for path in sorted(INCLUDE.iterdir())))
    key = hashlib.sha256((version + text + " ".join(flags) + library.hexdigest()).encode()).hexdigest()[:16]
    folder = cache() / key
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new, source = folder / f"{name}.{os.getpid()}", folder / f"source.{os.getpid()}"
        source.write_text(text, encoding="utf-8")
        result = subprocess.run([compiler(), *flags, "-I", str(INCLUDE), "-I", str(ROOT / "include"), str(source), "-o", str(new)],
                                capture_output=True, text=True, errors="replace")
        source.unlink()
        if result.returncode:
            new.unlink(missing_ok=True)
            raise LabError(f"{what} does not compile (Debian: apt-get install catch2):\n{result.stderr[-2000:]}")
        new.replace(target)
    return target


def main_object():
    return compiled_once("main.o", (INCLUDE / "main.cpp").read_text(encoding="utf-8"), [*FLAGS, "-O0", "-x", "c++", "-c"], "the grader's main.cpp")


def precompiled(lab):
    """A header that brings what every test of the lab includes; g++ finds its compiled form beside it."""
    text = "".join(f"#include <{name}>\n" for name in ("lab.hpp", *lab.headers))
    header = compiled_once("headers.hpp.gch", text, [*FLAGS, "-x", "c++-header"], f"what lab {lab.name} includes").with_suffix("")
    if not header.exists():
        header.write_text(text)
    return header


class Build:
    """A folder with copies of a submission and of a lab's tests, where programs are made of them."""

    def __init__(self, lab, folder):
        self.lab, self.folder = lab, pathlib.Path(folder)
        self.folder.chmod(0o711)
        self.work = self.folder / "work"
        self.sources = self.work / "submission"
        self.sources.mkdir(parents=True)
        for name in ("tests", "grading"):
            if (lab.folder / name).is_dir():
                shutil.copytree(lab.folder / name, self.work / name)

    @functools.cached_property
    def as_root(self):
        """Whether the compiler has to run as root, because other users cannot read what it needs."""
        return not os.geteuid() and not all(map(sandbox.readable_by_others, (INCLUDE, ROOT / "include", precompiled(self.lab), main_object())))

    def run(self, command):
        """Whether the compiler succeeds, and what it says."""
        most = self.lab.limits
        owner = None if self.as_root else sandbox.private_user()
        for path in (self.work, *self.work.rglob("*")) if owner else ():
            os.chown(path, owner, owner)
        done = sandbox.run(command, sandbox.Limits(most.compile_seconds, CLOCK * most.compile_seconds, most.compile_megabytes, output_kilobytes=32),
                           read=("/",), write=(self.work,), as_root=self.as_root)
        said = done.output.replace(f"{self.sources}/", "").replace(f"{self.work}/", "")
        if done.ended_by or done.signal:
            said += f"\nThe compiler did not come to its end: {done.reason}\n"
        return done.status == 0, said

    def program(self, name, flags=FLAGS):
        """(path or None, what the compiler says, why there is none)."""
        if not self.lab.sources(name):
            raise LabError(f"{self.lab.name} has no {name} tests here; with --public, the public ones alone are run")
        objects, all_said, header = [], "", precompiled(self.lab)
        command = [compiler(), *flags, "-include", header, "-I", self.sources, "-I", INCLUDE, "-I", ROOT / "include", "-MD"]
        if name == "hidden":
            command.append("-fno-diagnostics-show-caret")  # it would show lines of these tests
        for source in self.lab.sources(name):
            source = self.work / source.parent.name / source.name
            objects.append(source.with_suffix(".o"))
            done, said = self.run([*command, "-c", source, "-o", objects[-1]])
            all_said += said
            if not done:
                return None, all_said, f"The submission does not compile with the {name} tests; the compiler's words are in the output."
            if why := self.fault_of_object(objects[-1]):
                return None, f"{all_said}\n{why}", why
        target = self.work / f"{name}.program"
        done, said = self.run([compiler(), "-pthread", main_object(), *objects, *self.lab.link, "-o", target])
        if not done:
            return None, all_said + said, f"The submission does not link with the {name} tests; the linker's words are in the output."
        path = self.folder / name
        shutil.copyfile(target, path)
        path.chmod(0o111 if os.geteuid() else 0o711)  # who cannot read a program cannot look into its process either
        return path, all_said, None

    def fault_of_object(self, path):
        """Of one that was made with text of the submission: what it includes of the library's solution, or defines in place of others."""
        included = path.with_suffix(".d").read_text(encoding="utf-8")
        if str(self.sources) not in included:
            return None
        for header in re.findall(r"(?:\\.|\S)+", included):
            if hit := next((f for f in self.lab.forbidden_includes if f in os.path.realpath(header)), None):
                return f"The submission includes {hit}…, in a header that it includes: the library's own solution may not be used"
        symbols = subprocess.run(["nm", "--defined-only", "--extern-only", "--format=posix", path], capture_output=True, text=True).stdout
        for name, kind in (line.split()[:2] for line in symbols.splitlines()):
            # Weak ones of C++ do not replace others, for the grader's objects are linked first.
            if kind in "TDBRC" and "7student" not in name or not name.startswith(("_Z", "DW.ref.", "__clang_call_terminate")):
                if not demangled(name).startswith(self.lab.defined_by_tests):
                    return f"The submission defines {demangled(name)}: what you write belongs into namespace student"
        return None

    def close(self):
        """From now on nobody but the grader reads what the programs were made of."""
        if not os.geteuid():
            os.chown(self.work, 0, 0)
        self.work.chmod(0o700)


def demangled(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip() or name


def verdict_of(done, token):
    """What the test's program said behind its token, or nothing."""
    for line in done.verdict.decode(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if word == token:
            try:
                return json.loads(rest)
            except json.JSONDecodeError:
                return None
    return None


def run_test(lab, test, program, seed):
    token, seconds = secrets.token_hex(16), test.seconds or lab.limits.test_seconds
    limits = sandbox.Limits(seconds, CLOCK * seconds, lab.limits.test_megabytes, lab.limits.processes, lab.limits.output_kilobytes)
    command = [program, test.name.replace(",", "\\,"), "--out", "/dev/null"]  # as Catch2 reads names; its report would hide what students print
    done = sandbox.run(command, limits, given=f"{token} {seed}\n".encode(),
                       environment={"CAIRN_COMM_TIMEOUT": str(max(1, seconds / 2))}, read=(program,))
    verdict = verdict_of(done, token)

    def result(passed, message):
        printed = "\n".join(line for line in done.output.splitlines() if line.split(": ", 1)[-1] not in message)[-1500:]
        if not passed and printed.strip():
            message += f"\nIt printed:\n{printed}"
        return TestResult(test.name, test.task, test.points, test.points if passed else 0, passed, message.strip(), seed, done.seconds, test.program == "hidden")

    if done.ended_by or done.signal or done.strays or verdict is None:
        reason = done.reason or "the program ended before the test did (does something call exit?)"
        return result(False, f"The test did not come to its end: {reason}" + "." * (reason[-1] != "?"))
    if verdict["passed"] and verdict["checks"] > 0:
        return result(True, f"passed, {verdict['checks']} checks")
    return result(False, verdict["message"] or "No check of this test was reached; does something go wrong before main?")


def grade(lab: Lab, folder, student="student", secret="public", seed=None, programs=("public", "hidden"), on_test=None, within=None):
    """The result of grading the submission in `folder`. Never raises for what a submission does. `seed` replays one. Tests that have not begun
    `within` seconds are not run."""
    started = time.monotonic()
    result = Result(lab.name, student, missing_protection=sandbox.missing_protection())

    def add(test_result):
        result.tests.append(test_result)
        result.seconds = time.monotonic() - started
        if on_test:
            on_test(result)

    def fail(tests, why):
        for test in tests:
            add(TestResult(test.name, test.task, test.points, 0, False, why, 0, hidden=test.program == "hidden"))

    with tempfile.TemporaryDirectory(prefix="cairn-build-", ignore_cleanup_errors=True) as name:
        build = Build(lab, name)
        why_none = submission.collect(pathlib.Path(folder), lab, build.sources)
        built = {program: (None, "", why_none) if why_none else build.program(program) for program in programs}
        said = [said for program, (path, said, _) in built.items() if program == programs[0] or not path]  # once
        result.output = why_none or "\n".join(text.strip() for text in said).strip()
        if not why_none and build.as_root:
            result.missing_protection.append(f"{ROOT} is not readable for all users: the compiler ran as root")
        build.close()
        for program, (path, _, why) in built.items():
            tests = [test for test in lab.tests if test.program == program]
            for number, test in enumerate(tests):
                if path and within and time.monotonic() - started > within:
                    path, why = None, f"Not run: the {within:.0f} s for all tests were used up by the compiler and the tests before."
                if not path:
                    fail(tests[number:], why)
                    break
                add(run_test(lab, test, path, seed if seed is not None else seed_of(secret, student, lab.name, test.name)))
    return result
