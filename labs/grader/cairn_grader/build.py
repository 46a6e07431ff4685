"""Makes the programs of a lab: the judge, once, of the lab's tests; a worker, of each submission and the lab's adapter, against a copy of those
headers alone that the lab allows. No compiler sees both a submission and a test."""

import fcntl
import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess

from . import sandbox
from .lab import LabError

ROOT = pathlib.Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "labs" / "grader" / "include"
# Designated initialisers may leave members out.
FLAGS = ["-std=c++20", "-O1", "-g0", "-D_GLIBCXX_ASSERTIONS", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-pthread"]
DEBUG = ["-O0", "-g", "-Wno-unknown-pragmas"]
FOR_WORKERS = ("worker.hpp", "wire.hpp")  # of INCLUDE
CLOCK = 5  # times the processor time that something may take, it may take by the clock


def compiler():
    found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not found:
        raise LabError("no C++ compiler (Debian: apt-get install g++)")
    return found


@functools.cache
def version(compiler):
    return subprocess.run([compiler, "--version"], capture_output=True).stdout


def is_clang(compiler):
    return b"clang" in version(compiler)


@functools.cache
def toolchain(compiler):
    """Of this compiler, the grader's headers and the library's: what everything here is made with."""
    made = hashlib.sha256(version(compiler))
    for path in (*sorted(INCLUDE.iterdir()), *sorted((ROOT / "include").rglob("*.hpp"))):
        made.update(b"\0" + path.read_bytes())
    return made.digest()


def digest(*parts):
    """A key for what is made of these texts and files."""
    made = hashlib.sha256(toolchain(compiler()))
    for part in parts:
        made.update(b"\0" + (part.read_bytes() if isinstance(part, pathlib.Path) else str(part).encode()))
    return made.hexdigest()[:16]


def kept(key, make, mode=0o755):
    """The folder build/labs/KEY, filled by make(folder) the first time, in its place (a precompiled header of clang cannot be moved). Who wants the
    same one meanwhile waits."""
    folder = pathlib.Path(os.environ.get("CAIRN_LAB_CACHE") or ROOT / "build" / "labs") / key
    if not (folder / "made").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.with_name(f".{key}.lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                shutil.rmtree(folder, ignore_errors=True)  # whoever made it was interrupted
                folder.mkdir()
                make(folder)
                folder.chmod(mode)
                (folder / "made").touch()
        finally:
            os.close(lock)
    return folder


def trusted(command, what):
    """Runs the compiler on texts of the grader and the lab."""
    done = subprocess.run([compiler(), *map(str, command)], capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise LabError(f"{what} does not compile (Debian: apt-get install catch2):\n{done.stderr[-3000:]}")
    return done.stdout


def judge(lab, program):
    """The program of the lab's "public" or "hidden" tests."""
    if not lab.sources(program):
        raise LabError(f"{lab.name} has no {program} tests here; with --public, the public ones alone are run")
    tests = [path for name in ("tests", "grading") for path in sorted(lab.part(name).glob("*")) if path.is_file()]
    common = kept("judge-" + digest(), make_judge_objects)

    def make(folder):
        trusted([*FLAGS, "-include", common / "judge_pch.hpp", "-I", lab.folder / "tests", "-I", INCLUDE, "-I", ROOT / "include", *lab.sources(program), common / "judge_main.o",
                 common / "router.o", *lab.link, "-o", folder / "judge"], f"lab {lab.name}: the judge of the {program} tests")

    return kept(f"{program}-" + digest(str(lab.folder), program, *lab.link, *tests), make, mode=0o700) / "judge"


def make_judge_objects(folder):
    (folder / "judge_pch.hpp").write_text('#include "judge.hpp"\n')
    trusted([*FLAGS, "-I", INCLUDE, "-I", ROOT / "include", "-x", "c++-header", folder / "judge_pch.hpp", "-o", folder / "judge_pch.hpp.gch"], "judge.hpp")
    for name in ("judge_main", "router"):
        trusted([*FLAGS, "-I", INCLUDE, "-I", ROOT / "include", "-c", INCLUDE / f"{name}.cpp", "-o", folder / f"{name}.o"], f"the grader's {name}.cpp")


def worker_parts(lab, flags=FLAGS):
    """A folder with include/, which holds the headers that the lab allows and what they include, and what of a worker does not change."""
    text = "".join(f"#include <{name}>\n" for name in ("worker.hpp", *lab.headers))

    def make(folder):
        closure = folder / "include"
        (closure / "grader").mkdir(parents=True)
        for name in FOR_WORKERS:
            shutil.copyfile(INCLUDE / name, closure / "grader" / name)
        (folder / "allowed.hpp").write_text(text)
        rule = trusted([*FLAGS, "-I", INCLUDE, "-I", ROOT / "include", "-MM", folder / "allowed.hpp"], f"what lab {lab.name} allows")
        for word in re.findall(r"(?:\\.|\S)+", rule.replace("\\\n", " ")):
            path = pathlib.Path(word.replace("\\", ""))
            if path.is_relative_to(ROOT / "include"):
                name = path.relative_to(ROOT / "include")
                if hit := next((f for f in lab.forbidden_includes if str(name).startswith(f)), None):
                    raise LabError(f"lab {lab.name} allows {hit}…, which it forbids: {name} is included by one of its headers")
                (closure / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, closure / name)
        paths = ["-I", closure / "grader", "-I", closure]
        trusted([*flags, *paths, "-x", "c++-header", folder / "allowed.hpp", "-o", folder / "allowed.hpp.gch"], f"what lab {lab.name} allows")
        trusted([*flags, "-I", INCLUDE, "-c", INCLUDE / "worker_main.cpp", "-o", folder / "worker_main.o"], "the grader's worker_main.cpp")
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    return kept("worker-" + digest(text, *lab.forbidden_includes, *flags), make)


class Worker:
    """Compiles a submission, in a folder of its own."""

    def __init__(self, lab, folder, flags=FLAGS):
        self.lab, self.flags, self.folder = lab, flags, pathlib.Path(folder)
        self.folder.chmod(0o711)
        self.user = sandbox.private_user()
        self.parts = worker_parts(lab, flags)
        if self.user and not sandbox.readable_by_others(self.parts):
            self.parts = shutil.copytree(self.parts, self.folder / "parts", ignore=shutil.ignore_patterns("*.gch") if is_clang(compiler()) else None)
        self.work, self.sources = self.folder / "work", self.folder / "work" / "submission"
        self.sources.mkdir(parents=True)
        for path in lab.folder.glob("adapter*.?pp"):
            shutil.copyfile(path, self.work / path.name)
        if not (self.work / "adapter.cpp").exists():
            raise LabError(f"lab {lab.name} has no adapter.cpp")

    def run(self, command):
        """Whether the compiler succeeds, and what it says."""
        for path in (self.work, *self.work.rglob("*")) if self.user else ():
            os.chown(path, self.user, self.user, follow_symlinks=False)
        most = self.lab.limits
        done = sandbox.run([compiler(), *command], sandbox.Limits(most.compile_seconds, CLOCK * most.compile_seconds, most.compile_megabytes, output_kilobytes=32),
                           self.work, read=(self.parts, self.work), write=(self.work,), user=self.user)
        said = done.output
        for place in (self.sources, self.work, self.parts / "include" / "grader", self.parts / "include"):
            said = said.replace(f"{place}/", "")
        if done.ended_by or done.status < 0:
            said += f"\nThe compiler did not come to its end: {done.reason}\n"
        return done.status == 0, said

    def compile(self, *how):
        paths = ["-I", self.sources, "-I", self.parts / "include" / "grader", "-I", self.parts / "include"]
        few_errors = [] if is_clang(compiler()) else ["-fmax-errors=20"]  # clang's own habit
        return self.run([*self.flags, *few_errors, "-include", self.parts / "allowed.hpp", *paths, *how, self.work / "adapter.cpp"])

    def program(self, files, starter):
        """(the worker, what the compiler says, {file: its errors} of those that were replaced by the starter's). `files`: {name: text or None}; of
        None the starter's stands in from the beginning."""
        def put(name, text):
            (self.sources / name).write_text(text, encoding="utf-8")

        def link():
            program = self.folder / "worker"
            right, words = self.run([self.parts / "worker_main.o", self.work / "adapter.o", "-pthread", *self.lab.link, "-o", self.work / "worker"])
            if right and (self.work / "worker").is_file() and not (self.work / "worker").is_symlink():
                shutil.copyfile(self.work / "worker", program)
                program.chmod(0o555)
            return (program if right else None), words

        for name, text in files.items():
            put(name, starter[name] if text is None else text)
        right, said = self.compile("-c", "-o", self.work / "adapter.o")
        faults = {}
        if not right:
            # One after another takes its place among the starter's: which one is it that does not compile?
            for name in files:
                put(name, starter[name])
            for name, text in files.items():
                if text is None:
                    continue
                put(name, text)
                alone, words = self.compile("-c", "-o", self.work / "alone.o")
                if not alone:
                    faults[name] = words
                    put(name, starter[name])
            if len(faults) == len(files):
                return None, said, faults
            right, rest = self.compile("-c", "-o", self.work / "adapter.o")
            said = "\n".join((*faults.values(), rest))
            if not right:  # each by itself does, all together do not
                return None, said, {name: said for name, text in files.items() if text is not None}
        program, words = link()
        if not program:  # a second main, say, or a function without a body: no compiler can tell whose it is
            faults = {name: words for name, text in files.items() if text is not None}
        return program, said + words, faults

    def close(self):
        """From now on nobody but the grader reads what the program was made of."""
        if self.user:
            os.chown(self.work, 0, 0)
        self.work.chmod(0o700)
