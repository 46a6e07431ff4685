"""Compiles what does not change from one submission of a lab to the next:  python3 -m cairn_grader.prepare LAB"""

import sys

from . import grading
from .lab import LabError, find

try:
    grading.main_object()
    grading.precompiled(find(sys.argv[1]))
except LabError as error:
    sys.exit(str(error))
