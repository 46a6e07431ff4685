#!/usr/bin/env python3
"""Checks the scripts that compare optimizers, with a program in place of `train` whose losses are known."""

import importlib.machinery
import importlib.util
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types

sys.dont_write_bytecode = True
from checks import BENCHMARKS, check, end  # noqa: E402
import intervals  # noqa: E402
import json_file  # noqa: E402
import record  # noqa: E402
import training_runs  # noqa: E402

# A hundred steps an epoch, or --steps. The loss is 10 exp(-r step / 100) / (1 + 256 / batch), r by optimizer.kind or
# optimizer.lr times a gain; the test accuracy after each epoch 1 - exp(-r step / 100). r 0 diverges after five steps,
# a negative one fails.
TRAIN = """#!/usr/bin/env python3
import json, math, os, pathlib, sys, time
if os.environ.get("OMPI_COMM_WORLD_RANK", "0") != "0":
    sys.exit()  # rank 0 alone writes
words = sys.argv[1:]
setting = dict(word.split("=", 1) for name, word in zip(words, words[1:]) if name == "--set")
out = pathlib.Path(words[words.index("--out") + 1])
steps = int(words[words.index("--steps") + 1]) if "--steps" in words else 100 * int(setting.get("train.epochs", 1))
kind = setting.get("optimizer.kind")
rate = {"adamw": 100.0, "kfac": 2.0}.get(kind, 1.0) * float(setting["optimizer.lr"]) if "optimizer.lr" in setting else {"kfac": 4.0, "soap": 0.0, "muon": -1.0}.get(kind, 1.0)
rate /= 1 + 256 / float(setting["train.batch"]) if "train.micro_batches" in setting else 1
out.mkdir()
with (out / "metrics.jsonl").open("w") as file:
    for step in range(1, steps + 1):
        if rate < 0 or rate == 0 and step > 5:
            sys.exit("train: " + ("no such setting" if rate < 0 else f"step {step}: training diverges: the loss was 1"))
        left = math.exp(-rate * step / 100)
        print(json.dumps({"step": step, "epoch": step / 100, "loss": 10 * left, "seconds": step / 10, "saved_bytes": 100}), file=file, flush=True)
        if setting.get("train.test_every") == "1" and step % 100 == 0:
            print(json.dumps({"step": step, "test_accuracy": 1 - left}), file=file, flush=True)
        time.sleep(float(setting.get("sleep", 0)))
print(json.dumps({"training_samples": 6400, "test_accuracy": 0.9, "epochs": steps // 100, "steps": steps, "flops_per_sample": 1e6, "peak_bytes": 1000, "samples_per_s": 10,
                  "test_r2_n_s": 1 - 0.1 * int(setting.get("train.seed", 1)), "seconds": steps / 10}))
"""


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(BENCHMARKS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-9)


def check_figures():
    curve = training_runs.curve([{"step": 1, "loss": 4, "seconds": 1}, {"step": 1, "test_accuracy": 0.5}, {"step": 2, "loss": None, "seconds": 2},
                                 {"step": 3, "loss": 2, "seconds": 3}], "loss")
    check(curve == [(1, 4, 1), (3, 2, 3)], f"a curve has the finite losses: {curve}")
    check(training_runs.curve([{"step": 1, "loss": 4, "seconds": 1}, {"step": 1, "test_accuracy": 0.5}], "test_accuracy") == [(1, 0.5, 1)],
          "a test has the seconds of the step before it")
    check(training_runs.smoothed(curve, 2) == [(3, 3, 3)], "means of two neighbours lie at the second one")
    check(training_runs.thinned([]) == [] and training_runs.thinned(curve, 1) == [(3, 3, 3)], "a run that diverged at once has no curve")
    check(training_runs.first_at(curve, "loss", 3) == (3, 3) and training_runs.first_at(curve, "loss", 1) == (None, None), "losses fall to a target")
    check(training_runs.first_at([(1, 0.1, 1), (2, 0.9, 2)], "test_accuracy", 0.5) == (2, 2), "accuracies rise to one")
    check(training_runs.best(curve, "loss") == 2 and training_runs.best(curve, "test_r2") == 4, "the best loss is the least, the best R² the largest")
    mean, low, high = intervals.geometric([1, 4])
    check(close(mean, 2) and close(low * high, 4) and low < 1e-3, "geometric means and their intervals")
    low, high = intervals.bootstrap([[1, 1, 1], [2, 2]], lambda groups: sum(map(sum, groups)))
    check((low, high) == (7, 7), "drawn anew, equal values give the same figure")
    low, high = intervals.bootstrap([[0, 1]] * 50, lambda groups: sum(map(sum, groups)) / 100)
    check(0.3 < low < 0.45 and 0.55 < high < 0.7, f"a hundred coins: {low} to {high}, expected half ± 0.1")


def check_record(folder):
    path, made = folder / "record.json", []

    def once(record, seed):
        return record.once({"name": "sgd", "seed": seed}, lambda: made.append(seed) or {"loss": seed / 2})

    record = json_file.Runs(path, {"workload": "w", "kinds": ("a", "b")})
    check(once(record, 1) == {"name": "sgd", "seed": 1, "loss": 0.5}, "a run has its name and what was made")
    record = json_file.Runs(path, {"workload": "w", "kinds": ("a", "b")})
    once(record, 1), once(record, 2), once(record, 2)
    check(made == [1, 2], f"runs are made once: {made}")
    check(len(json_file.Runs(path, {"workload": "w"}).of(seed=2)) == 1, "and are on file")
    for text, what in (({"workload": "v"}, "of other workload"), (None, "not a file of this program")):
        try:
            if text is None:
                path.write_text("{}")
            json_file.Runs(path, text or {})
            check(False, f"another file is refused: {what}")
        except SystemExit as problem:
            check(what in str(problem), f"{problem}: expected: {what}")


def check_runs(options):
    result, lines, fault = training_runs.attempt(options, "w.toml", ["optimizer.lr=2", "train.test_every=0"], steps=7)
    check(result["training_samples"] == 6400 and len(lines) == 7 and fault is None, "a run has its result, its lines and no fault")
    result, lines, fault = training_runs.attempt(options, "w.toml", ["optimizer.lr=0", "train.test_every=0"])
    check(result == {} and len(lines) == 5 and training_runs.DIVERGED.search(fault), f"a run that diverges says so: {fault}")
    result, lines, fault = training_runs.attempt(options, "w.toml", ["sleep=0.05", "train.test_every=0"], until=lambda lines: len(lines) > 9)
    check(result == {} and 9 < len(lines) < 50 and fault is None, f"a run ends where it may: {len(lines)} lines")
    metrics = options.build / "metrics.jsonl"
    metrics.write_text('{"step": 1}\n{"st')
    check(training_runs.written(metrics) == [{"step": 1}], "half a line is left for later")


def check_defaults(folder, build):
    defaults = script("optimizers_at_defaults")
    for steps, expected in ((None, []), (40, []), (20, ["train.epochs=2"]), (5, ["train.epochs=1", "data.train_samples=80"])):
        found = defaults.shortened(steps, 150, 16, 4)
        check(found == expected, f"{steps} steps: {found}, expected {expected}")
    rises = defaults.outcome([{"loss": 1}] * 10 + [{"loss": None}], None)
    check(rises["fault"] == "rose" and rises["loss"] is None, "a loss that ends as inf has risen")
    command = [BENCHMARKS / "optimizers_at_defaults", "--workloads", "cosmology-quickstart,mlp-mnist-admm,lenet-mnist", "--data", folder, "--kinds", "kfac,soap", "--seeds",
               "2", "--batches", "64,9999", "--build", build, "--json", folder / "defaults.json"]
    for rows in (4, 4):  # the second time from the file
        result = subprocess.run(command, capture_output=True, text=True)
        check(result.returncode == 1, f"kinds that must hold and diverge are an error: {result.stderr}")
        check("skipped: no data: lenet-mnist" in result.stdout and "mlp-mnist" not in result.stdout, f"workloads without data: {result.stdout}")
        check("soap     2 of 2 runs diverged" in result.stdout and "kfac     0 of 2 runs diverged; at most 1.02 on 1, below 1 on 1 of 1 rows" in result.stdout, result.stdout)
        check(len(json.loads((folder / "defaults.json").read_text())["runs"]) == 6, "three kinds, two seeds, the batch that fits")
    expected = f"{sum(math.exp(-4 * s / 100) for s in range(91, 101)) / sum(math.exp(-s / 100) for s in range(91, 101)):.3f} x the file's own"
    check(expected in result.stdout, f"{expected}: {result.stdout}")
    result = subprocess.run([*command[:-1], folder / "other.json", "--kinds", "muon"], capture_output=True, text=True)
    check(result.returncode == 1 and "FAILED: train: no such setting" in result.stdout, f"a run that fails is shown: {result.stdout}")


def check_comparison(folder, build):
    command = [BENCHMARKS / "compare_optimizers", "w.toml", "--data", folder, "--build", build, "--seeds", "2", "--json", folder / "comparison.json",
               "--of", "slow", "optimizer.lr=1", "--of", "fast", "optimizer.lr=2"]
    for _ in range(2):
        result = subprocess.run(command, capture_output=True, text=True)
        # Means of ten steps: the target is the slow one's last, at step 100; the fast one is there at step 53.
        check("fast: reached in 2 of 2 seeds; 1.9 (1.9-1.9) x fewer updates, 1.89 (1.89-1.89) x less time than slow" in result.stdout, result.stdout + result.stderr)
    result = subprocess.run([*command, "--accuracy", "0.95", "--json", folder / "accuracy.json"], capture_output=True, text=True)
    check("slow: test accuracy 90.00 ± 0.00 %" in result.stdout and "fast: the target was not reached" in result.stdout, result.stdout + result.stderr)


def check_compression(folder, build):
    if not shutil.which("mpirun"):
        print("skipped: no mpirun, compression_accuracy was not run")
        return
    said = check_goes_on(folder, ["compression_accuracy", "--data", folder, "--build", build, "--ranks", "2", "--epochs", "1", "--kinds", "none,bf16"], 2, "epochs")
    check(said.count("90.00 +-   0.00    90.00 90.00") == 2, f"two kinds, two seeds: {said}")


def check_goes_on(folder, words, runs_a_seed, other):
    """What a script says of two seeds whose first is on file; its file is a record with each run once, and one that is of another `other` is refused."""
    path = folder / f"{words[0]}.json"
    command = [BENCHMARKS / words[0], *words[1:], "--json", path]
    results = [subprocess.run([*command, "--seeds", seeds], capture_output=True, text=True) for seeds in "122"]
    said = results[-1].stdout
    check(not any(result.returncode for result in results) and said and results[1].stdout == said, f"{words[0]}: the last time is from the file", [(r.stdout, r.stderr) for r in results])
    try:
        made = record.read(path)
        check(made["benchmark"] == words[0] and len(made["runs"]) == 2 * runs_a_seed and len(made["continued"]) == 1, f"{words[0]}: a record with each run once", made)
        made[other] = "another"
        path.write_text(json.dumps(made))
    except (OSError, ValueError) as problem:
        check(False, f"{words[0]}: {problem}")
    refused = subprocess.run([*command, "--seeds", "2"], capture_output=True, text=True)
    check(refused.returncode == 1 and f"holds a comparison of other {other}" in refused.stderr, f"{words[0]}: another comparison's file is refused", refused.stderr)
    return said


def check_other_records(folder, build):
    said = check_goes_on(folder, ["compare_activation_memory", "w.toml", "--build", build], 2, "workload")
    check(said.count(" 0.9000 +- 0.0000") == 2, f"two policies, two seeds: {said}")
    said = check_goes_on(folder, ["compare_admm", "w.toml", "--data", folder, "--build", build, "--of", "plain", "train.epochs=2"], 5, "workload")
    check("plain: 86.47" in said and "sgd at equal arithmetic: 18.13" in said, f"a run of two epochs, and gradients of as much arithmetic: {said}")
    said = check_goes_on(folder, ["compare_resolutions", "--reduce", "1,2", "--build", build], 2, "size")
    check(said.count("0.850 +- 0.635") == 2, f"two resolutions, two seeds: {said}")


def check_points():
    import optimizer_ranges as ranges
    for dimensions in (3, 6):
        found = ranges.points(20, dimensions)
        check(len(set(found)) == 20, f"twenty points: {found}")
        for axis in zip(*found):
            check(sorted(int(20 * x) for x in axis) == list(range(20)), f"each twentieth of each axis has one: {sorted(axis)}")
    for kind, space in ranges.RANGES.items():
        drawn = ranges.trials(kind, 20)
        check({length for _, length in drawn} == set(ranges.LENGTHS), f"{kind}: schedules of all lengths")
        for settings, _ in drawn:
            value = dict(word.split("=") for word in settings)
            for name, (low, high) in space.items():
                x = float(value[name.removeprefix("1 - ")])
                check(0.99 * low <= (1 - x if name.startswith("1 - ") else x) <= 1.01 * high, f"{kind}: {name} = {x} is not in {low} to {high}")
    check(ranges.setting("1 - optimizer.momentum", 0.1) == "optimizer.momentum=0.9", "one minus a setting is drawn")


def check_tuning(folder, build):
    tune = script("tune_optimizers")
    options = types.SimpleNamespace(metric="loss", window=1)
    lines = [{"step": step, "epoch": step / 10, "loss": 1 / step, "seconds": 0} for step in range(1, 21)]  # two epochs

    def earlier(factor, epochs):
        return {"epochs": epochs, "curve": [(step, factor / step, 0) for step in range(1, 41)]}

    for factors, epochs, expected in (((0.5, 0.5, 2), 4, True), ((2, 2, 0.5), 4, False), ((0.5, 0.5), 4, False), ((0.5, 0.5, 0.5), 3, False)):
        found = tune.falls_behind(options, lines, 4, [earlier(f, epochs) for f in factors])
        check(found == expected, f"median rule, trials {factors} over {epochs} epochs: {found}")
    check(not tune.falls_behind(options, lines, 5, [earlier(0.5, 5)] * 3), "before half of its schedule no trial ends")
    trials = [{"best": b, "curve": curve} for b, curve in ((0.5, [(9, 0.5, 0)]), (0.2, [(20, 0.2, 0)]), (None, []))]
    check(tune.chosen(options, trials, 0.5) is trials[0] and tune.chosen(options, trials, 0.1) is trials[1], "the first at the target, or else the best")
    command = [BENCHMARKS / "tune_optimizers", "w.toml", "--epochs", "4", "--kinds", "kfac", "--trials", "6", "--seeds", "2", "--build", build, "--json", folder / "tuned.json"]
    once = subprocess.run(command, capture_output=True, text=True)
    again = subprocess.run(command, capture_output=True, text=True)
    check(once.returncode == 0 and once.stdout == again.stdout, f"the second time is from the file:\n{once.stdout}{once.stderr}\n{again.stdout}{again.stderr}")
    runs = json.loads((folder / "tuned.json").read_text())["runs"]
    short = [run for run in runs if run["name"].startswith(("sgd, trial", "adamw, trial")) and run["epochs"] <= 3]
    target = max(run["best"] for run in short)
    check(f"target: test_accuracy {target:.5g}" in once.stdout, f"the best of the short trials of sgd and adamw is the target, {target}:\n{once.stdout}")
    check(all(run["seed"] == 1001 for run in runs if "trial" in run["name"]) and {run["seed"] for run in runs if run["name"] == "kfac"} == {1, 2}, "seeds of trials are others")


def check_batches(folder, build):
    scaling = script("batch_scaling")
    s_min, critical = scaling.fit([(batch, 40 * (1 + 300 / batch)) for batch in (64, 256, 1024, 4096)])
    check(math.isclose(s_min, 40, rel_tol=1e-6) and math.isclose(critical, 300, rel_tol=1e-6), f"the fit finds its own formula: {s_min}, {critical}")
    command = [BENCHMARKS / "batch_scaling", "w.toml", "--loss", "1", "--epochs", "9", "--kinds", "sgd", "--batches", "64,512,4096", "--rates", "3", "--seeds", "2", "--window", "1",
               "--build", build, "--json", folder / "batches.json"]
    once = subprocess.run(command, capture_output=True, text=True)
    again = subprocess.run(command, capture_output=True, text=True)
    check(once.returncode == 0 and once.stdout == again.stdout, f"the second time is from the file:\n{once.stdout}{once.stderr}\n{again.stdout}{again.stderr}")
    found = [float(word) for word in re.search(r"s_min ([0-9.]+) .*critical batch ([0-9.]+) ", once.stdout).groups()]
    check(abs(found[0] - 46.05) < 1 and abs(found[1] - 256) < 10, f"steps to a tenth at rate 5 and the batch of the program's losses: {found}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        build = folder / "build"
        train = build / "benchmarks" / "train_float32"
        train.parent.mkdir(parents=True)
        train.write_text(TRAIN)
        train.chmod(0o755)
        train.with_name("train").symlink_to(train)
        check_figures()
        check_record(folder)
        check_runs(types.SimpleNamespace(build=build, data=None))
        check_defaults(folder, build)
        check_comparison(folder, build)
        check_compression(folder, build)
        check_other_records(folder, build)
        check_points()
        check_tuning(folder, build)
        check_batches(folder, build)
    end("runs of optimizers")


if __name__ == "__main__":
    main()
