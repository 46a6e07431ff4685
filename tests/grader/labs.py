"""A lab for the grader's tests, made by new-lab, and its solution."""

import atexit
import pathlib
import shutil
import subprocess
import sys
import tempfile

from cairn_grader import grading, lab, starter

folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-grader-test-"))
atexit.register(shutil.rmtree, folder, ignore_errors=True)
subprocess.run([sys.executable, grading.ROOT / "labs" / "grader" / "new-lab", "99-example", "--in", folder], check=True, capture_output=True)
example = lab.load(folder / "99-example")
solution = folder / "solution"
solution.mkdir()
starter.write(example, to_solution=solution)
