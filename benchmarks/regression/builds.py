"""The builds that a suite compares: folders, or revisions of this repository, which are built in worktrees of their own under build/suite/."""

import dataclasses
import hashlib
import pathlib
import re
import shutil
import subprocess

import revision
from measured_runs import Failure

WORKTREES = pathlib.Path("build", "suite")


@dataclasses.dataclass(frozen=True)
class Build:
    folder: pathlib.Path
    revision: str | None  # of the source; None: not known
    options: dict  # of CMake that change speed; empty without a CMakeCache.txt


def options_of(folder):
    """Type, compiler and flags from CMakeCache.txt."""
    try:
        text = (folder / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return {}
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.M))
    build_type = cache.get("CMAKE_BUILD_TYPE", "")
    names = ["CMAKE_CXX_COMPILER", "CMAKE_CXX_FLAGS", f"CMAKE_CXX_FLAGS_{build_type.upper()}", "CAIRN_NATIVE", "CAIRN_SANITIZE"]
    return {"CMAKE_BUILD_TYPE": build_type} | {name: cache[name] for name in names if name in cache}


def require_alike(a, b):
    """Failure where two builds differ in what is not the code: type, compiler, flags or instruction set."""
    if a.options and b.options and a.options != b.options:
        name = next(name for name in [*a.options, *b.options] if a.options.get(name) != b.options.get(name))
        raise Failure(f"{a.folder} has {name} = {a.options.get(name)!r}, {b.folder} {b.options.get(name)!r}: builds of one kind are compared; configure them alike")


def program(build, name):
    """Failure with the command that builds it."""
    path = build.folder / "benchmarks" / name
    if not path.is_file():
        raise Failure(f"there is no {path}. Build it:  cmake --build {build.folder} --target {name}")
    return path


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def copy(build, names, folder):
    """Copies programs to folder/benchmarks, so that what is measured stays what it was while somebody builds."""
    (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy2(program(build, name), folder / "benchmarks" / name)


def _git(root, *words):
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise Failure(f"git {' '.join(words)}: {problem}") from None
    return done.stdout.strip() if done.returncode == 0 else None


def _built(root, commit, names):
    """The folder of a revision's release build with these programs, made where it is not there."""
    place = root / WORKTREES / commit[:12]
    source, folder = place / "source", place / "build"
    if all((folder / "benchmarks" / name).is_file() for name in names):
        return folder
    if not source.is_dir():
        _git(root, "worktree", "prune")
        if _git(root, "worktree", "add", "--detach", str(source), commit) is None:
            raise Failure(f"git worktree add {source} {commit} failed; is there room, and is {place} another program's?")
    for words in (["cmake", "--preset", "release", "-S", str(source), "-B", str(folder)], ["cmake", "--build", str(folder), "--target", *names]):
        print(f"revision {commit[:12]}: {' '.join(words)}", flush=True)
        try:
            done = subprocess.run(words, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        except OSError as problem:
            raise Failure(f"{words[0]} cannot be started: {problem}") from None
        if done.returncode:
            tail = "\n".join("    " + line for line in done.stdout.splitlines()[-15:])
            raise Failure(f"revision {commit[:12]} does not build: {' '.join(words)}\n{tail}")
    return folder


def find(text, names, root):
    """The build that a folder or a revision names, with these programs. Failure where it is neither, or lacks one."""
    folder = pathlib.Path(text)
    if (folder / "benchmarks").is_dir() and folder.resolve() != root.resolve():
        source = re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", (folder / "CMakeCache.txt").read_text(errors="replace"), re.M) if (folder / "CMakeCache.txt").is_file() else None
        build = Build(folder.resolve(), revision.of(pathlib.Path(source[1])) if source else None, options_of(folder))
    else:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
        if not commit:
            raise Failure(f"{text} is neither a build folder (with benchmarks/ in it) nor a revision of {root}")
        folder = _built(root, commit, names)
        build = Build(folder, commit[:12], options_of(folder))
    for name in names:
        program(build, name)
    return build
