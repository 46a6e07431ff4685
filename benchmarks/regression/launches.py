"""One launch of a program of a suite, and what has to be settled before: kernel choices and the number of steps.

Kernel choices are measured once, by the first launches, whose figures do not count, and are the same in all that follow: `train` keeps them in
CAIRN_CACHE/autotune.tsv, and each launch gets a copy of that file. B begins with those of A, and adds what A has no kernel for.
"""

import contextlib
import os
import pathlib
import resource
import shutil
import tempfile
import time

import measured_runs

from . import builds, programs

CHOICES = "autotune.tsv"


def _children_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(metric, build, steps, choices):
    """Launches once with a copy of the folder `choices`. Returns {"value", "seconds" of wall time, "processor_s" of all its ranks, "share_of_matrix_peak"
    where it prints that, "peer" where the metric names one}, what it printed, and the copy, which is removed when the context ends. Failure tells what went wrong."""
    context = contextlib.ExitStack()
    scratch = pathlib.Path(context.enter_context(tempfile.TemporaryDirectory(prefix="cairn-suite-")))
    with context:
        if choices.is_dir():
            shutil.copytree(choices, scratch / "cache")
        words = programs.command(metric, build, steps, scratch)
        began, used = time.monotonic(), _children_seconds()
        threads = {} if metric.program == "train" else {"OMP_NUM_THREADS": str(metric.threads), "OPENBLAS_NUM_THREADS": str(metric.threads)}
        output = measured_runs.output_of(words, metric.timeout, CAIRN_CACHE=str(scratch / "cache"), **threads)
        launch = {"seconds": time.monotonic() - began, "processor_s": _children_seconds() - used}
        found = programs.printed(metric, output, scratch)
        launch["value"] = programs.value_of(metric, found)
        if metric.peer:
            launch["peer"] = programs.value_at(metric.peer, found)
        if isinstance(found, dict) and isinstance(found.get("share_of_matrix_peak"), float):
            launch["share_of_matrix_peak"] = found["share_of_matrix_peak"]
        keep = context.pop_all()
    return launch, found, scratch / "cache", keep


def measure(metric, build, steps, choices):
    """One launch that counts."""
    launch, _, _, context = start(metric, build, steps, choices)
    context.close()
    return launch


def _settle_choices(metric, build, steps, choices):
    """One launch that does not count, whose kernel choices stay in `choices`. Returns what it printed."""
    _, found, cache, context = start(metric, build, steps, choices)
    with context:
        if (cache / CHOICES).is_file():
            choices.mkdir(parents=True, exist_ok=True)
            new = choices / (CHOICES + ".new")
            shutil.copy(cache / CHOICES, new)
            os.replace(new, choices / CHOICES)
    return found


def prepare(metric, arms, folder):
    """Settles kernel choices, into `folder`/ARM, and steps before the first block. `arms`: build folders by name, A first where there is A. Returns
    {"steps", "kernels": digests by arm}. Failure."""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed here
    first, *others = arms
    found = _settle_choices(metric, arms[first], programs.LEAST_STEPS, folder / first)
    steps = programs.steps_for(metric, found, programs.LEAST_STEPS)
    for arm in others:
        if (folder / first).is_dir():
            shutil.copytree(folder / first, folder / arm)
        if arm == "B":  # A2 is the same program as A
            _settle_choices(metric, arms[arm], programs.LEAST_STEPS, folder / arm)
    files = {arm: folder / arm / CHOICES for arm in arms}
    return {"steps": steps, "kernels": {arm: builds.digest(file) for arm, file in files.items() if file.is_file()}}
