"""Runs of the program `train`, for scripts that compare whole trainings."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import json_file
import measured_runs

# Errors with which `train` ends a run whose loss is not finite, or has grown to a multiple of its start.
DIVERGED = re.compile(r"training diverges|is -?(inf|nan)\b|not finite")


def program(build):
    """`train` of a build folder, or the one for float32 that the quickstart builds. Ends this script where there is neither."""
    for name in ("train", "train_float32"):
        if (build / "benchmarks" / name).exists():
            return build / "benchmarks" / name
    sys.exit(f"{build}/benchmarks/train does not exist; benchmarks/quickstart --build-only builds it")



def tuning_report(build, workload, *words, launch=()):
    """All that train --tune tried, with records of reference/ (benchmarks/train/tune_settings.hpp). `words`: its options; `launch`: what starts it on hosts."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        measured_runs.run_child([*launch, program(build), workload, "--records", measured_runs.ROOT / "reference", "--report", report, *words], None, figures=())
        return json.loads(report.read_text())


def attempt(options, workload, settings, steps=None, until=None, launch=()):
    """Trains once, at most so many steps; `launch`: mpirun and its options. `options`: build and data, folders (None: the workload generates its data), and threads where it has them.
    `until(lines)` is asked twice a second and at first more often whether the run may end. Returns the last line of the output, {} of a run that did not end by itself; the lines of
    metrics.jsonl; and the error with which it ended, None without one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*launch, str(program(options.build)), str(workload), "--out", f"{folder}/run"]
        if options.data:
            command += ["--data", str(options.data)]
        if getattr(options, "threads", None):
            command += ["--threads", str(options.threads)]
        if steps:
            command += ["--steps", str(steps)]
        for setting in settings:
            command += ["--set", setting]
        metrics, output, errors = (pathlib.Path(folder, name) for name in ("run/metrics.jsonl", "output", "errors"))
        with output.open("w") as out, errors.open("w") as err:
            process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=measured_runs.dies_with_parent)
            try:
                pause = 0.05
                while until and process.poll() is None:
                    time.sleep(pause)
                    pause = min(0.5, 1.2 * pause)
                    if until(written(metrics)):
                        return {}, written(metrics), None
                status = process.wait()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        lines = written(metrics)
        if status:
            said = errors.read_text(errors="replace").strip()
            return {}, lines, f"{' '.join(command)} failed:\n{said[-2000:]}"
        return json.loads([line for line in output.read_text().splitlines() if line.startswith("{")][-1]), lines, None


def run(options, workload, settings):
    """The last line of its output and the lines of its metrics.jsonl, as above. Ends this script where the run fails."""
    result, lines, fault = attempt(options, workload, settings)
    if fault:
        sys.exit(fault)
    return result, lines


def written(path):
    """The lines of metrics.jsonl so far; the last one may be half there."""
    if not path.exists():
        return []
    try:
        return json_file.metrics(path)
    except ValueError:
        text = path.read_text()
        whole = path.with_name("whole.jsonl")
        whole.write_text(text[:text.rfind("\n") + 1])
        try:
            return json_file.metrics(whole)
        except ValueError as problem:
            sys.exit(str(problem))


def curve(lines, metric):
    """[(step, value, seconds)] of a metric, from the lines of metrics.jsonl: "loss" of training where it is finite, or a figure of tests."""
    points, seconds = [], 0.0
    for line in lines:
        seconds = line.get("seconds", seconds)
        if line.get(metric) is not None:
            points.append((line["step"], line[metric], seconds))
    return points


def smoothed(curve, window):
    """Means of so many neighbours, each at the last one."""
    values = [value for _, value, _ in curve]
    return [(curve[i][0], sum(values[i - window + 1:i + 1]) / window, curve[i][2]) for i in range(window - 1, len(curve))]


def thinned(curve, points=500):
    """At most so many points, each with the last step and second and the mean value of some neighbours."""
    each = max(1, -(-len(curve) // points))  # of a run that diverged before its first test there is nothing
    pieces = [curve[i:i + each] for i in range(0, len(curve), each)]
    return [(piece[-1][0], round(sum(value for _, value, _ in piece) / len(piece), 4), round(piece[-1][2], 3)) for piece in pieces]


def is_better(metric, a, b):
    """Whether a is at least as good as b: losses and errors fall, all other figures rise."""
    return a <= b if re.search("loss|mae|rmse|error|bits", metric) else a >= b


def first_at(curve, metric, target):
    """Step and seconds of the first point at the target or beyond; (None, None) without one."""
    return next(((step, seconds) for step, value, seconds in curve if is_better(metric, value, target)), (None, None))


def best(curve, metric):
    """The best value; None of an empty curve."""
    values = [value for _, value, _ in curve]
    return None if not values else min(values) if is_better(metric, 0, 1) else max(values)
