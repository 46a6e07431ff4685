"""ReFrame tests (4.10 or newer) of a suite of benchmarks: one a metric, judged by benchmarks/suite, in pairs beside a build of the reference.

    CAIRN_SUITE=quick CAIRN_BUILD=build/release CAIRN_REFERENCE=build/reference \\
        reframe -C benchmarks/reframe/settings.py -c benchmarks/reframe/cairn_checks.py -r

CAIRN_SUITE: a name of benchmarks/suites, or a TOML file. CAIRN_REFERENCE: the build to measure beside; without it stored records of the machine are the
reference. Relative paths begin at the folder of this repository. One metric: -n 'CairnMetric%metric=lenet'.

One value beside a limit of ±10 % fails in 39 % of runs without cause on a busy machine, so ReFrame is not given one:
    least_cost_ratio   the favourable end of the interval of B / A in cost: this is judged. Its limit is 1 + the difference that matters, and 1 where the
                       suite says `slower`, whose interval lies above 1: a test fails exactly where the suite does, and noise alone fails none
    cost_ratio         the mean; told beside it, as is
    verdict            its number (exit statuses of benchmarks/suite: 0 ok, 10 faster, 11 inconclusive, 15 slower), and
    the metric's own figure, with the value of the reference.
A `disturbed` run, in which the reference differs from its copy, is measured once more: noise does that to one in a hundred.
What was not measured, or not beside a reference, fails the sanity: `not-run`, `no-reference`, `disturbed` twice, oversubscribed.
"""

import json
import os
import pathlib
import shlex
import sys

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.backends import getlauncher
from reframe.core.builtins import parameter, run_before, sanity_function, variable

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from regression import suite_file, verdict  # noqa: E402


def absolute(text):
    """Of a path in this repository, or anywhere; a name or a revision, and nothing, stay what they are. (ReFrame loads tests in their own folder.)"""
    return str(ROOT / text) if text and (ROOT / text).exists() else text


SUITE = suite_file.path_of(absolute(os.environ.get("CAIRN_SUITE", "quick"))).resolve()
METRICS = {metric.name: metric for metric in suite_file.read(SUITE).metrics}
JUDGED = ("ok", "faster", "inconclusive", "slower")


@rfm.simple_test
class CairnMetric(rfm.RunOnlyRegressionTest):
    metric = parameter(METRICS)
    build = variable(str, value=absolute(os.environ.get("CAIRN_BUILD", "build/release")))
    beside = variable(str, value=absolute(os.environ.get("CAIRN_REFERENCE", "")))
    descr = "a metric of a suite of Cairn, beside its reference"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    sourcesdir = None
    time_limit = "1h"
    exclusive_access = True
    require_reference = True
    executable = str(ROOT / "benchmarks" / "suite")
    keep_files = ["run*"]

    @run_before("run")
    def start_suite(self):
        metric = METRICS[self.metric]
        self.num_tasks, self.num_cpus_per_task = metric.ranks, metric.threads
        self.num_tasks_per_node = metric.ranks
        beside = ["--reference", self.beside] if self.beside else []
        self.executable_opts = ["run", str(SUITE), "--only", self.metric, "--build", self.build, *beside, "--out"]
        again = shlex.join([self.executable, *self.executable_opts, "run-again"])
        self.executable_opts += ["run"]
        self.postrun_cmds = [f"[ $? -ne {verdict.EXIT_STATUS['disturbed']} ] || {again}", "rm -rf run*/arms"]  # the copies of the programs
        self.job.launcher = getlauncher("local")()  # the suite starts ranks itself

    def file(self, name):
        """Of the newer run."""
        again = pathlib.Path(self.stagedir) / "run-again"
        return (again if again.is_dir() else pathlib.Path(self.stagedir) / "run") / name

    def measured(self, name):
        return json.loads(self.file(name).read_text())

    def result(self):
        return next(result for result in self.measured("results.json") if result["name"] == self.metric)

    @sanity_function
    def was_judged(self):
        if not self.file("results.json").is_file():
            said = (pathlib.Path(self.stagedir) / str(self.stderr)).read_text(errors="replace").strip().splitlines()
            return sn.assert_true(False, f"benchmarks/suite did not finish: {' | '.join(said[-3:])}")
        result = self.result()
        return sn.assert_true(result["verdict"] in JUDGED and result.get("ratio"), f"{result['verdict'] or 'not judged'}: {result.get('why', '')}")

    @run_before("performance")
    def tell_figures(self):
        result, record = self.result(), self.measured(f"records/{self.metric}.json")
        figure, ratio, slower = record["metrics"][0], result["ratio"], result["verdict"] == "slower"
        name = figure["name"].replace("/", "_")
        of_reference = figure["value"] * (ratio["mean"] if figure["better"] == "higher" else 1 / ratio["mean"])
        told = {
            "least_cost_ratio": (ratio["low"], (1, None, 0 if slower else result["delta"], "1")),
            "cost_ratio": (ratio["mean"], (1, None, None, "1")),
            "verdict": (verdict.EXIT_STATUS[result["verdict"]], (0, None, None, "status")),
            name: (figure["value"], (of_reference, None, None, figure["unit"])),
        }
        self.perf_variables = {key: sn.make_performance_function(sn.defer(value), reference[3]) for key, (value, reference) in told.items()}
        self.reference = {"*": {key: reference for key, (_, reference) in told.items()}}
