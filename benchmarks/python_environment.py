"""Packages of PyPI in virtual environments, for the scripts that compare Cairn with them: python_with for any, python_with_torch for PyTorch."""

import pathlib
import shlex
import subprocess
import sys

from measured_runs import ROOT


def python_with(venv, name, module, packages, size, index_url=None):
    """A python3 of this environment that can import `module`, installed where it is not there yet; None, with a word why, where it cannot be had."""
    python = venv / "bin" / "python3"

    def run(*command):
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, (done.stdout.strip().splitlines() or ["it ended without a word"])[-1]

    has_module = [python, "-c", f"import {module}"]
    if python.exists() and run(*has_module)[0] == 0:
        return python
    index = ["--index-url", index_url] if index_url else []
    print(f"installing {name} into {venv} (once; {size})", file=sys.stderr, flush=True)
    for command in ([sys.executable, "-m", "venv", venv], [python, "-m", "pip", "install", *packages, *index], has_module):
        try:
            status, last = run(*command)
        except OSError as error:
            status, last = 1, str(error)
        if status:
            print(f"skipped: no {name}: {shlex.join(map(str, command))}: {last}")
            return None
    return python


def add_options(parser):
    parser.add_argument("--venv", type=lambda text: pathlib.Path(text).absolute(), default=ROOT / "build" / "torch", metavar="DIR",
                        help="virtual environment of PyTorch (build/torch)")
    parser.add_argument("--index-url", metavar="URL", help="where pip finds torch (default: as pip is configured)")


def python_with_torch(options, module="torch"):
    """A python3 that can import this module of torch."""
    return python_with(options.venv, "PyTorch", module, ["torch", "numpy"], "some gigabytes with CUDA's libraries, which PyPI's needs", options.index_url)
