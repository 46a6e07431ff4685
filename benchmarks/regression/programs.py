"""How the programs of a suite are started, and which figure of what they print counts. A launch measures at least the metric's seconds and gives one number,
the median of what it repeated:
    train        --throughput: samples_per_s_of_tenths. Each launch takes as many steps as fill the seconds at the reference's speed.
    collectives  rows/0/seconds_of_tenths/auto, of an all-reduce of the first size
    kernels      Google Benchmark: real_time, the median of five repetitions of the one benchmark that --benchmark_filter selects
    others       figure and better of the metric, in the last line that is a JSON object

Of tenths: the median of ten parts of the launch. A program that is stopped for 2 ms in each 20 ms is a tenth slower, which the median of its steps does not
show where steps are short and fewer than half of them are hit; that of tenths does.
"""

import json
import math
import shlex
import statistics

import measured_runs
from measured_runs import Failure

REPETITIONS = 5  # of a kernel in a launch
LEAST_STEPS = 5
OWN = {"train": ("samples_per_s_of_tenths", "higher", "1/s"), "collectives": ("rows/0/seconds_of_tenths/auto", "lower", "s"), "kernels": ("real_time", "lower", "s")}


def figure_of(metric):
    """Path, direction and unit of the metric's figure. Failure where the program has none of its own and the metric names none."""
    if metric.figure:
        return metric.figure, metric.better, ""
    if metric.program not in OWN:
        raise Failure(f"{metric.name}: name figure and better: {metric.program} has no figure of its own (those with: {', '.join(OWN)})")
    return OWN[metric.program]


def command(metric, build, steps, scratch):
    """The words that start one launch. `steps`: of train; `scratch`: folder for files that the program writes."""
    words = [str(build / "benchmarks" / metric.program)]
    if metric.ranks > 1:
        words = [*shlex.split(measured_runs.default_mpirun()), "-np", str(metric.ranks), *words]
    if metric.program == "train":
        words += [str(metric.workload_path()), "--throughput", "--threads", str(metric.threads), "--steps", str(steps)]
        words += [word for setting in metric.settings for word in ("--set", setting)]
    elif metric.program == "collectives":
        words += ["--seconds", f"{metric.seconds:g}"]
    elif metric.program == "kernels":
        words += [f"--benchmark_min_time={metric.seconds / REPETITIONS:g}", f"--benchmark_repetitions={REPETITIONS}"]
        words += [f"--benchmark_out={scratch / 'benchmark.json'}", "--benchmark_out_format=json"]
    return words + list(metric.arguments)


def steps_for(metric, printed, steps):
    """Steps of train that fill the metric's seconds, from what a launch of so many printed."""
    try:
        rate = printed["samples_per_s"] / printed["batch"]
        return max(LEAST_STEPS, math.ceil(metric.seconds * rate))
    except (KeyError, TypeError, ZeroDivisionError, OverflowError, ValueError):
        return steps


def printed_object(output):
    """The last line that is a JSON object. Failure shows the last lines where there is none."""
    if (found := measured_runs.last_object(output)) is None:
        raise Failure(f"it ended well, but printed no line that is a JSON object:\n{measured_runs.last_lines(output, 6)}")
    return found


def google_benchmark(path):
    """{"real_time": seconds, "cpu_time": seconds} of the one benchmark in a JSON file of Google Benchmark: medians of its repetitions."""
    try:
        rows = [row for row in json.loads(path.read_text())["benchmarks"] if row.get("run_type", "iteration") == "iteration"]
        scale = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
        names = sorted({row.get("run_name", row["name"]) for row in rows})
        found = {key: [row[key] * scale[row["time_unit"]] for row in rows if not row.get("error_occurred")] for key in ("real_time", "cpu_time")}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise Failure(f"its file {path.name} is not Google Benchmark's JSON: {problem!r}") from None
    if len(names) != 1 or not found["real_time"]:
        raise Failure(f"--benchmark_filter selects {len(names)} benchmarks ({', '.join(names[:4])}): one is needed, such as --benchmark_filter=^NAME$")
    return {key: statistics.median(values) for key, values in found.items()}


def printed(metric, output, scratch):
    """What a launch printed, as an object."""
    return google_benchmark(scratch / "benchmark.json") if metric.program == "kernels" else printed_object(output)


def value_of(metric, found):
    """The metric's figure. Failure where it is missing, no number, not finite, zero or negative."""
    return value_at(figure_of(metric)[0], found)


def value_at(path, found):
    """The positive number at a path of what a launch printed. Failure as above."""
    value = found
    try:
        for key in path.split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
    except (KeyError, IndexError, TypeError, ValueError):
        raise Failure(f"it printed no {path}") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise Failure(f"it printed {path} = {value}: a positive number is needed")
    return float(value)
