"""Compiles what does not change from one submission of a lab to the next:  python3 -m cairn_grader.prepare LAB"""

import sys

from . import build
from .lab import LabError, find

try:
    lab = find(sys.argv[1])
    build.worker_parts(lab)
    for program in ("public", "hidden"):
        if lab.sources(program):
            build.judge(lab, program)
except LabError as error:
    sys.exit(str(error))
