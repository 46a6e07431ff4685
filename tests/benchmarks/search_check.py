#!/usr/bin/env python3
"""Checks benchmarks/search with a program in place of `train` whose figures are known: strategies, bad input, kills. tests/checks/search.py runs the program itself."""

import json
import math
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from checks import BENCHMARKS, check, end  # noqa: E402
from search_space import space as spaces, strategies  # noqa: E402

# Ten steps an epoch. State: a hash of all settings, step by step, so that it tells how a run was trained.
# test_accuracy: the sum of lr over its epochs; a negative rate diverges. Each epoch leaves a version; --resume and
# --from go on from one. `counted` has a line for each step trained.
TRAIN = r'''#!/usr/bin/env -S python3 -SE
import hashlib, json, os, pathlib, signal, sys, time
words = sys.argv[1:]
def word(name, default=None):
    return words[words.index(name) + 1] if name in words else default
setting = dict(w.split("=", 1) for name, w in zip(words, words[1:]) if name == "--set")
if "--plan" in words:
    for key in setting:
        if key.split(".")[0] not in ("train", "state", "optimizer"):
            sys.exit(f"train: unknown setting {key}")
    sys.exit()
resume, start = word("--resume"), word("--from")
out = pathlib.Path(resume or word("--out"))
def newest(run):
    return sorted((pathlib.Path(run) / "states").iterdir())[-1]
if resume:
    setting = json.loads((out / "settings").read_text())
    state = json.loads((newest(out) / "manifest.json").read_text())
elif start:
    run, _, step = start.rpartition("@")
    version = newest(run)
    state = json.loads((version / "manifest.json").read_text())
    assert state["step"] == int(step), (state, step)
else:
    state = {"step": 0, "digest": "0", "sum": 0.0}
if not resume:
    if out.exists():
        sys.exit(f"train: {out} holds a run already")
    out.mkdir()
    (out / "settings").write_text(json.dumps(setting))
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
rate = float(setting["optimizer.lr"])
if rate < 0:
    sys.exit("train: step 3: training diverges: the loss was 1")
while state["step"] < 10 * int(word("--epochs")) and not stop:
    state = {"step": state["step"] + 1, "digest": hashlib.sha256((state["digest"] + json.dumps(sorted(setting.items()))).encode()).hexdigest()[:16], "sum": state["sum"] + rate / 10}
    with (out.parent / "counted").open("a") as file:
        file.write(f"{out.name} {state['step']}\n")
    time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
    if state["step"] % 10 == 0 or stop:
        folder = out / "states" / f"{state['step']:08}-abcabcabcabc"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_text(json.dumps(state))
        (folder / "manifest").write_text(f"cairn manifest 1\nstep {state['step']}\npack 100 00 rank-0000.pack\ndigest {state['digest']}\n")
finished = not stop
(out / "record.json").write_text(json.dumps({"result": {"finished": finished, "steps": state["step"], "epochs": state["step"] / 10, "seconds": 1.0, "test_accuracy": state["sum"]}}))
sys.exit(0 if finished else 130)
'''
SPACE = """workload = "w.toml"
figure = "test_accuracy"
[[stage]]
epochs = 2
vary = {"optimizer.lr" = [1, 2, 3, 4]}
[[stage]]
epochs = 1
choices = [{"optimizer.lr" = 10}, {"optimizer.lr" = 20, "optimizer.momentum" = 0.5}]
vary = {"train.seed" = [1]}
"""


class Folder:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        train = self.folder / "build" / "benchmarks" / "train"
        train.parent.mkdir(parents=True)
        train.write_text(TRAIN)
        train.chmod(0o755)
        (self.folder / "w.toml").write_text("name = 'w'\n")

    def command(self, text, out, *words):
        file = self.folder / "space.toml"
        file.write_text(text)
        return [sys.executable, str(BENCHMARKS / "search"), str(file), "--out", str(self.folder / out), "--build", str(self.folder / "build"), *words]

    def search(self, text, out, *words, status=0, **environment):
        json_file = self.folder / "result.json"
        json_file.unlink(missing_ok=True)
        done = subprocess.run(self.command(text, out, "--json", str(json_file), *words), capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)
        check(done.returncode == status, f"search {words} exits with {done.returncode}, expected {status}", done.stdout + done.stderr)
        return json.loads(json_file.read_text()) if json_file.exists() else done.stdout + done.stderr

    def counted(self, out):
        file = self.folder / out / "counted"
        return file.read_text().splitlines() if file.exists() else []


def check_grid(at):
    found = at.search(SPACE, "grid", "--check")
    trials = found["trials"]
    accuracies = sorted((2 * first + second for first in (1, 2, 3, 4) for second in (10, 20)), reverse=True)
    check(len(trials) == 8 and all(math.isclose(t["test_accuracy"], a, rel_tol=1e-9) for t, a in zip(trials, accuracies)), "all trials, the best first", str(trials))
    check(found["steps_trained"] == 4 * 20 + 8 * 10 and found["steps_alone"] == 8 * 30, "steps are those of the tree's edges", str(found))
    check(found["same_digests"] == 8 and found["steps_trained_alone"] == 8 * 30, "trials alone have the same states", str(found))
    shared = [line for line in at.counted("grid") if not line.startswith("alone")]
    check(len(shared) == len(set(shared)) == 160, f"each step was trained once: {len(shared)}")
    check(all(t["steps"] == 30 and t["bytes"] == 300 and t["seconds"] == 2 for t in trials), "steps, bytes (a version an epoch here) and seconds of the whole path", str(trials[0]))
    before = len(at.counted("grid"))
    check(at.search(SPACE, "grid", "--check")["trials"] == trials and len(at.counted("grid")) == before, "a finished search trains nothing")
    more = at.search(SPACE.replace("[1]}", "[1, 3]}"), "grid", "--jobs", "2", "--oversubscribe")
    check(len(more["trials"]) == 16 and len(at.counted("grid")) == before + 80, "a larger space trains what is new alone")
    rows = at.search(SPACE, "grid", "--sql", "SELECT stage, count(*) AS n FROM node GROUP BY stage")["trials"]
    check(rows == [{"stage": 1, "n": 4}, {"stage": 2, "n": 8}], "--sql", str(rows))
    check("no such table" in at.search(SPACE, "grid", "--sql", "SELECT 1 FROM x", status=2), "bad SQL is named")


def check_strategies(at):
    found = at.search(SPACE, "halving", "--strategy", "halving")
    check(found["runs"] == 4 + 2 * 2 and found["steps_trained"] == 80 + 40, "the better half goes on", str(found))
    check([t["test_accuracy"] for t in found["trials"][:2]] == [28, 26] and len(found["trials"]) == 4 + 2, "of the rates 3 and 4; the others' versions stay", str(found))
    check(at.search(SPACE, "halving")["steps_trained"] == 160, "and go on later")
    check(len(at.counted("halving")) == 160, "from where they were")
    diverges = SPACE.replace("[1, 2, 3, 4]", "[1, -1]")
    found = at.search(diverges, "diverges")
    check(len(found["trials"]) == 3 and found["trials"][-1]["test_accuracy"] is None, "a trial that diverges ends there", str(found))
    text = 'workload = "w.toml"\nfigure = "test_accuracy"\nstrategy = "population"\npopulation = {members = 4, rounds = 3, seed = 7}\n[[stage]]\nepochs = 1\nvary = {"optimizer.lr" = [1, 2, 4, 8]}\n'
    one, two = at.search(text, "population"), at.search(text, "again", "--jobs", "2", "--oversubscribe")
    for result in (one, two):
        result["trials"] = [{key: t[key] for key in ("run", "settings", "test_accuracy", "digest")} for t in result["trials"]]
    check(one["trials"] == two["trials"] and 100 <= one["steps_trained"] <= 4 * 3 * 10, "a population is the same with the same seed", str(one["trials"]))
    check(at.search(text.replace("seed = 7", "seed = 8"), "other")["trials"] != one["trials"], "and another with another seed")
    space = spaces.read(at.folder / "space.toml")
    # By hand: the last round's worst goes on from the best, at 0.8 or 1.25 times its rate, within the range.
    value = {}

    def value_of(node):
        value[node] = sum(epochs * dict(chosen)["optimizer.lr"] for epochs, chosen in node.path)
        return value[node]

    nodes = strategies.wanted(space, value_of)
    first = [node for node in nodes if len(node.path) == 1]
    rates = [node.settings["optimizer.lr"] for node in nodes if len(node.path) == 2]
    best = max(first, key=value_of)
    new = [node for node in nodes if len(node.path) == 2 and node.parent == best and node.settings != best.settings]
    expected = {max(1, min(8, factor * best.settings["optimizer.lr"])) for factor in (0.8, 1.25)} - {best.settings["optimizer.lr"]}
    check(all(node.settings["optimizer.lr"] in expected for node in new) and max(rates) <= 8 and min(rates) >= 1, f"exploration stays within 0.8 to 1.25 and the range: {rates}")


def check_bad_input(at):
    for text, words, part in (
            (SPACE.replace('"optimizer.lr" = [1', '"optimiser.lr" = [1'), (), "unknown setting optimiser.lr"),
            (SPACE.replace('"train.seed"', '"data.seed"'), ("--strategy", "halving"), "unknown setting data.seed"),
            (SPACE.replace("[1, 2, 3, 4]", "[]"), (), "at least one value"),
            (SPACE.replace("[1, 2, 3, 4]", "[1, 1]"), (), "duplicates"),
            (SPACE.replace("epochs = 2", "epochs = 0"), (), "epochs is a whole number"),
            (SPACE.replace("epochs = 2", "epochs = 'two'"), (), "epochs is no int"),
            (SPACE.replace("epochs = 2", "epoch = 2"), (), "epoch is not known"),
            (SPACE.replace("w.toml", "none.toml"), (), "none.toml"),
            (SPACE.replace('"train.seed" = [1]', '"optimizer.lr" = [1, 2]'), (), "in vary and in choices"),
            (SPACE.replace('"train.seed" = [1]', 'init = ["x"]'), (), "init is for the first stage"),
            (SPACE + "[stage.vary]\n", (), "twice"),
            ("workload = 'w.toml'\n", (), "at least one [[stage]]"),
            ("workload = 3\n", (), "workload is no str"),
            ("", (), "a space needs"),
            (SPACE, ("--strategy", "population"), "population has one stage"),
            (SPACE, ("--jobs", "99"), "--oversubscribe"),
            (SPACE, ("--set", "train.epochs=3"), "train.epochs"),
            (SPACE, ("--set", "rate"), "KEY=VALUE"),
            (SPACE.replace('"optimizer.lr" = [1', 'optimizer.lr = [1'), (), "optimizer")):
        found = at.search(text, "bad", *words, status=2)
        check(part in str(found), f"bad input is named: {part}", str(found))
        check(not at.counted("bad"), f"{part}: nothing was trained")
    check("No such file" in subprocess.run([BENCHMARKS / "search", "none.toml", "--out", at.folder / "bad"], capture_output=True, text=True).stderr, "a file that is not there")


def check_kills(at):
    chance = random.Random(1)
    # An epoch that was begun twice leaves its version twice, in other steps.
    def result(out):
        return [{**t, "seconds": 0, "bytes": 0} for t in at.search(SPACE, out)["trials"]]

    expected = result("grid")
    for trial in range(2):
        out, kills = f"killed{trial}", 0
        while kills < 4:
            process = subprocess.Popen(at.command(SPACE, out, "--jobs", "2", "--oversubscribe"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env={**os.environ, "STEP_SECONDS": "0.05"})
            time.sleep(chance.uniform(0.3, 1.0))
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGKILL if trial == 0 else signal.SIGTERM)
            process.wait()
            kills += 1
        check(kills > 1, f"the search was killed {kills} times")
        found = result(out)
        check(found == expected, "a search that was killed ends with the same table and states", f"{found}\n{expected}")


def main():
    with tempfile.TemporaryDirectory() as name:
        at = Folder(name)
        check_grid(at)
        check_strategies(at)
        check_bad_input(at)
        check_kills(at)
    end("search")


if __name__ == "__main__":
    main()
