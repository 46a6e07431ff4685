#!/usr/bin/env python3
"""Checks benchmarks/suite convergence with a program in place of `train` whose steps to a quality are known: references, verdicts, kills, bad input."""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from checks import BENCHMARKS, check, end  # noqa: E402
from suite_check import Place, refused  # noqa: E402, stand-in builds
from regression import trainings  # noqa: E402

# Quality rises linearly to 1 at step SPEED × (100 + seed × 7 modulo 11), a test each step of 200. The workload's name
# chooses what goes wrong.
TRAIN = r'''#!/usr/bin/env python3
import json, os, pathlib, sys, time
words = sys.argv[1:]
out, name = pathlib.Path(words[words.index("--out") + 1]), pathlib.Path(words[0]).stem
settings = dict(word.split("=") for at, word in enumerate(words) if words[at - 1] == "--set")
seed = int(settings["train.seed"])
assert settings["train.batch"] == "8" and settings["train.epochs"] == "20" and words[words.index("--threads") + 1] == "1", words
steps = SPEED * (100 + seed * 7 % 11)
if name == "broken": sys.exit("no such data")
if name == "lost" and seed % 4 == 0: steps *= 100
out.mkdir(parents=True)
with (out / "metrics.jsonl").open("w") as file:
    for step in range(1, 201):
        print(json.dumps({"step": step, "loss": 1.0, "seconds": step / 100}), file=file)
        if name == "diverges" and step == 50: sys.exit("step 50: training diverges")
        if name != "silent": print(json.dumps({"step": step, "test_accuracy": step / steps}), file=file, flush=True)
        if step % 50 == 0: time.sleep(float(os.environ.get("PAUSE", 0)))
print(json.dumps({"steps": 200}))
'''


def build(at, name, speed=1.0):
    folder = at.folder / name / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train").write_text(TRAIN.replace("SPEED", str(speed)))
    (folder / "train").chmod(0o755)
    return folder.parent


def suite(at, name, *workloads, **fields):
    text = ""
    for workload in workloads:
        (at.folder / f"{workload}.toml").write_text("")
        keys = {"name": workload, "workload": str(at.folder / f"{workload}.toml"), "figure": "test_accuracy", "target": 1.0, "batch": 8, "epochs": 20, "seeds": 10, **fields}
        text += "[[training]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    path = at.folder / f"{name}.toml"
    path.write_text(text)
    return path


def records(at, folder):
    return {path.stem: json.loads(path.read_text()) for path in (at.folder / "runs" / folder / "records").glob("*.json")}


def in_commit(at, *builds):
    """Builds of a repository with one commit, so that references can be accepted."""
    git = lambda *words: subprocess.run(["git", "-C", str(at.folder / "repository"), *words], check=True, capture_output=True)
    (at.folder / "repository").mkdir()
    git("init", "-q")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begin")
    for folder in builds:
        (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={at.folder / 'repository'}\n")


def check_verdicts(at):
    honest, fast, slow = build(at, "honest"), build(at, "fast", 0.5), build(at, "slow", 1.9)
    in_commit(at, honest, fast, slow)
    file = suite(at, "c", "steady")
    at.main("convergence", file, "--build", honest, status=13, says=("0 of 0 seeds of the reference",))
    entry = records(at, "c-0001")["steady"]
    expected = [100 + seed * 7 % 11 for seed in range(1, 11)]
    check([found["steps"] for found in entry["convergence"]] == expected == entry["metrics"][0]["values"], "steps of each seed to the target", entry["convergence"][0])
    check([found["samples"] for found in entry["convergence"]] == [8 * steps for steps in expected] and entry["convergence"][0]["seconds"] == expected[0] / 100, "samples and seconds", entry["convergence"][0])
    check(entry["seeds"] == list(range(1, 11)) and entry["settings"]["batch"] == 8 and entry["settings"]["target"] == 1.0, "seeds, batch and target are stored", entry["settings"])
    at.main("accept", "c", "--reason", "first")
    at.main("convergence", file, "--build", honest, "--first-seed", 11, says=("ok: the worst", "can tell a speed-up of"))
    at.main("convergence", file, "--build", fast, "--first-seed", 11, "--seeds", 3, status=16, says=("too fast to be true",))
    at.main("convergence", file, "--build", slow, "--first-seed", 11, "--seeds", 3, status=15, says=("slower",))
    at.main("report", "c", "--html", at.folder / "page.html", "--mllog", at.folder / "log", "--google", at.folder / "google.json")
    text = (at.folder / "page.html").read_text()
    check("Steps, samples and seconds to the target" in text and "by a one-sided t test" in text, "its page")
    check(sum('"run_stop"' in line for line in (at.folder / "log").read_text().splitlines()) == 3, "its log")
    at.main("convergence", suite(at, "c", "steady", settings=["optimizer.lr=2"]), "--build", honest, "--seeds", 2, says=("not as in the reference: settings",))
    at.main("convergence", suite(at, "c", "steady", target=0.5), "--build", honest, "--seeds", 2, status=13)
    at.main("convergence", suite(at, "lost", "lost", "diverges", "broken", "silent"), "--build", honest, "--seeds", 5, status=14)
    found = {result["name"]: result for result in json.loads((at.folder / "runs" / "lost-0001" / "results.json").read_text())}
    check((found["lost"]["arrived"], found["diverges"]["arrived"], found["diverges"]["seeds"]) == (4, 0, 5), "seeds that do not arrive, and that diverge, are told", found)
    check("no such data" in found["broken"]["why"] and "test_accuracy is in no line" in found["silent"]["why"], "a training that fails is not-run", found)
    at.main("report", "lost", "--html", at.folder / "page.html", "--mllog", at.folder / "log")
    at.main("convergence", suite(at, "b", "steady"), "--build", honest, "--budget", "1e-9", says=("1 of 10 seeds: the budget ended",), status=13)
    at.main("convergence", suite(at, "few", "steady"), "--build", build(at, "few", 0.15), "--seeds", 1, says=("coarse: a seed arrived after 17 tests, 20 are needed",), status=13)


def check_lost(at):
    """Against a reference, more than one seed in ten that does not arrive is slower."""
    honest = build(at, "honest")
    (at.folder / "lost.toml").write_text("")
    file = suite(at, "lost", "lost")
    run = trainings.Run(at.folder / "x", trainings.read(file), trainings.read(file).metrics, trainings.builds.Build(honest, None, {}), 5)
    run.measure(None, at.folder, lambda line: None)
    stored = [{"benchmark": "lost", "settings": run.trainings[0].described(), "expires": expires, "when": "2026", "convergence": [{"seed": seed, "steps": 100 + seed} for seed in range(20, 30)]} for expires in (None, "2020-01-01")]
    found = list(trainings.evaluate(run, stored))[0]
    check(found["verdict"] == "slower" and "1 of 5 seeds do not arrive" in found["why"], "more than one seed in ten", found)
    check(list(trainings.evaluate(run, stored[1:]))[0]["verdict"] == "no-reference", "an expired reference is none")
    stored[0]["settings"] = stored[0]["settings"] | {"batch": 16}
    check(list(trainings.evaluate(run, stored))[0]["verdict"] == "no-reference", "one of another batch is none")


def check_kills(at):
    """Killed at any time it goes on, and has the seeds of a run that was not; its trainings end with it."""
    honest, file = build(at, "honest"), suite(at, "kills", "steady", "other", seeds=5)
    began = time.monotonic()
    at.main("convergence", file, "--build", honest, "--out", at.folder / "whole", status=13)
    long, chance = time.monotonic() - began, random.Random(3)
    command = [sys.executable, str(BENCHMARKS / "suite"), *at.words("convergence", file, "--build", honest, "--out", at.folder / "killed")]
    for kill in range(6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            process.wait(chance.uniform(0.2, 0.6) * long)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL if kill % 2 else signal.SIGTERM)
            said = process.communicate()[1]
            check("Traceback" not in said, "a stop is no crash", said)
    if not (at.folder / "killed" / "records").is_dir():
        at.main("convergence", file, "--build", honest, "--out", at.folder / "killed", status=13)
    seeds = lambda name: {path.stem: json.loads(path.read_text())["steps"] for path in (at.folder / name / "seeds").glob("*.json")}
    check(seeds("killed") == seeds("whole") and len(seeds("whole")) == 10, "a killed run has the seeds of one that was not", (seeds("killed"), seeds("whole")))


def check_input(at):
    for fields, says in (
        ({"test_every": 2}, "at least 20 tests"),
        ({"test_every": 0}, "epochs above 0"),
        ({"batch": 0}, "batch = 0"),
        ({"seeds": "ten"}, "is of type str"),
        ({"target": float("inf")}, "target = inf"),
        ({"settings": ["train.seed=3"]}, "given by the run"),
        ({"settings": ["train.batch=3"]}, "given as batch"),
        ({"speed": 1}, "unknown speed"),
        ({"workload": "nowhere"}, "no workload nowhere"),
    ):
        path = suite(at, "bad", "steady", **fields)
        path.write_text(path.read_text().replace("Infinity", "inf"))
        refused(lambda: trainings.read(path), says, "bad.toml" if "workload" not in fields else "steady")
    at.main("run", suite(at, "bad", "steady"), "--build", build(at, "honest"), status=1, says=("benchmarks/suite convergence bad",))
    at.main("convergence", at.suite("figures", "lenet"), "--build", build(at, "honest"), status=1, says=("benchmarks/suite run figures",))
    at.main("convergence", suite(at, "bad", "steady", data="mnist"), "--build", build(at, "honest"), "--data", at.folder, status=1, says=("benchmarks/fetch_data mnist",))
    at.main("convergence", suite(at, "bad", "steady"), "--seeds", 0, status=2)


if __name__ == "__main__":
    for part in (check_verdicts, check_lost, check_kills, check_input):
        with tempfile.TemporaryDirectory() as folder:
            part(Place(folder))
    end("suite convergence")
