"""PyPI's newest PyTorch in a virtual environment, for the scripts that compare Cairn with it."""

import pathlib
import shlex
import subprocess
import sys

from measured_runs import ROOT


def add_options(parser):
    parser.add_argument("--venv", type=lambda text: pathlib.Path(text).absolute(), default=ROOT / "build" / "torch", metavar="DIR",
                        help="virtual environment of PyTorch (build/torch)")
    parser.add_argument("--index-url", metavar="URL", help="where pip finds torch (default: as pip is configured)")


def python_with_torch(options, module="torch"):
    """A python3 that can import this module of torch, installed where it is not there yet; None, with a word why, where it cannot be had."""
    python = options.venv / "bin" / "python3"

    def run(*command):
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        return done.returncode, (done.stdout.strip().splitlines() or ["it ended without a word"])[-1]

    has_torch = [python, "-c", f"import {module}"]
    if python.exists() and run(*has_torch)[0] == 0:
        return python
    index = ["--index-url", options.index_url] if options.index_url else []
    print(f"installing PyTorch into {options.venv} (once; some gigabytes with CUDA's libraries, which PyPI's needs)", file=sys.stderr, flush=True)
    for command in ([sys.executable, "-m", "venv", options.venv], [python, "-m", "pip", "install", "torch", "numpy", *index], has_torch):
        try:
            status, last = run(*command)
        except OSError as error:
            status, last = 1, str(error)
        if status:
            print(f"skipped: no PyTorch: {shlex.join(map(str, command))}: {last}")
            return None
    return python
