#!/usr/bin/env python3
"""Checks benchmarks/suite with programs in place of `train` whose speed and noise are known: verdicts, kills, failing launches, bad input, references, revisions."""

import contextlib
import datetime
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from checks import BENCHMARKS, check, end  # noqa: E402
import host  # noqa: E402
import json_file  # noqa: E402
from measured_runs import Failure  # noqa: E402
from regression import builds, programs, references, results, run as runs, suite_file, trainings  # noqa: E402

# Speed and noise by the name of the workload. The noise is drawn from the place of a launch (block, arm), which the
# run's files tell: a launch that is repeated after a kill gives the same figure.
TRAIN = r'''#!/bin/sh
case "$*" in *.toml\ --throughput\ --threads*--steps*) ;; *) echo "bad words: $*"; exit 9 ;; esac
name=${1##*/} name=${name%.toml} folder=${0%/benchmarks/*}
arm=${folder##*/} run=${folder%/arms/*}
blocks=$(grep -c '"order"' "$run/metrics/$name.json" 2>/dev/null)
slowdown=SLOWDOWN deviation=0.01
case $name in NOISE same) slowdown=1 ;; esac
case $name-$arm in
    disturbed-A2) slowdown=1.25 ;;
    none-*) echo "step 1"; exit ;;
    hangs-*) exec sleep 60 ;;
    dies-B) echo "out of memory"; exit 3 ;;
    dies_once-A2) [ "$blocks" != 2 ] || [ -e "$run/died" ] || { touch "$run/died"; kill -9 $$; } ;;
esac
[ -e "$CAIRN_CACHE/autotune.tsv" ] || { mkdir -p "$CAIRN_CACHE"; printf "chosen by $arm" > "$CAIRN_CACHE/autotune.tsv"; }
set -- $(echo "$name ${blocks:-0} $arm $CHANCE" | cksum)
awk -v seed=$(($1 % 1000003)) -v name=$name -v slowdown=$slowdown -v deviation=$deviation 'BEGIN {
    srand(seed); rate = 100 / slowdown * (1 + deviation * (rand() + rand() + rand() + rand() - 2))
    value = name == "zero" ? "0" : name == "nan" ? "NaN" : sprintf("%.9g", rate)
    printf "{\"samples_per_s\": %s, \"samples_per_s_of_tenths\": %s, \"batch\": 1, \"share_of_matrix_peak\": 0.25, \"peer\": %.9g}\n", value, value, 2 * rate
}'
'''
loader = importlib.machinery.SourceFileLoader("suite", str(BENCHMARKS / "suite"))
suite = importlib.util.module_from_spec(importlib.util.spec_from_loader("suite", loader))
loader.exec_module(suite)


class Place:
    """A folder with stand-in builds and workloads."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        os.environ["CAIRN_CACHE"] = str(self.folder / "cache")

    def build(self, name, slowdown=1.0, noise=None, options=""):
        folder = self.folder / name
        (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
        program = folder / "benchmarks" / "train"
        program.write_text(TRAIN.replace("SLOWDOWN", str(slowdown)).replace("NOISE", "".join(f"{name}) deviation={value} ;; " for name, value in (noise or {}).items())))
        program.chmod(0o755)
        if options:
            (folder / "CMakeCache.txt").write_text(options)
        return folder

    def suite(self, name, *workloads, **fields):
        text = ""
        for workload in workloads:
            (self.folder / f"{workload}.toml").write_text("")
            keys = {"name": workload, "program": "train", "workload": str(self.folder / f"{workload}.toml"), **fields}
            text += "[[metric]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def words(self, *words):
        return [*map(str, words), "--runs", str(self.folder / "runs")]

    def main(self, *words, status=0, says=()):
        """Runs benchmarks/suite in this process; returns what it printed."""
        out = io.StringIO()
        sys.argv = ["suite", *self.words(*words)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                found = suite.main()
            except SystemExit as end:
                found = end.code
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        check(found == status, f"suite {' '.join(map(str, words))} exits with {found}, expected {status}", out.getvalue())
        for text in says:
            check(text in out.getvalue(), f"suite {' '.join(map(str, words))} says: {text}", out.getvalue())
        return out.getvalue()

    def results(self, suite_name, number=1):
        return {result["name"]: result for result in json.loads((self.folder / "runs" / f"{suite_name}-{number:04}" / "results.json").read_text())}

    def measured(self, folder):
        """All that a run's files say, but for times and conditions."""
        found = {}
        for path in sorted((folder / "metrics").glob("*.json")):
            known = json.loads(path.read_text())
            found[path.stem] = [[(block["order"], [block[arm]["value"] for arm in sorted(block["order"])]) for block in series] for series in known["series"]]
        return found


def refused(action, *texts):
    try:
        action()
        check(False, f"{texts}: this was not refused")
    except Failure as problem:
        for text in texts:
            check(text in str(problem), f"the refusal says: {text}", problem)


def check_verdicts(at):
    same, slow, fast = at.build("same"), at.build("slow", 1.2), at.build("fast", 1 / 1.2)
    file = at.suite("verdicts", "lenet", "same")
    at.main("compare", same, slow, file, status=15, says=("slower: the worst of 2",))
    found = at.results("verdicts")
    check(found["lenet"]["verdict"] == "slower" and found["lenet"]["pairs"] == [6, 6], "20 % slower is found after six pairs and six that confirm it", found)
    check(abs(found["lenet"]["ratio"]["mean"] - 1.2) < 0.01, "by 20 %", found)
    check(found["same"]["verdict"] == "ok", "the other metric is ok", found)
    record = json.loads((at.folder / "runs" / "verdicts-0001" / "records" / "lenet.json").read_text())
    check(len(record["metrics"][0]["values"]) == 12 and record["metrics"][0]["better"] == "higher" and record["verdict"] == found["lenet"], "the record has raw values, direction and verdict", record)
    orders = [tuple(block["order"]) for block in record["series"][0]]
    check(len(set(orders)) == 6, f"the order of the arms goes through all permutations: {orders}")
    check(len(set(record["programs"].values())) == 1 and record["kernels"], "programs and kernel choices have digests", record)
    choices = at.folder / "runs" / "verdicts-0001" / "kernels" / "lenet"
    check({arm: (choices / arm / "autotune.tsv").read_text() for arm in ("A", "A2", "B")} == dict.fromkeys(("A", "A2", "B"), "chosen by A"), "A's kernel choices are those of all arms")
    check("slower" in at.main("verdict", "verdicts", status=15), "the verdict can be asked for again")
    at.main("compare", same, fast, at.suite("fast", "lenet"), status=10, says=("faster",))
    at.main("compare", same, same, at.suite("disturbed", "disturbed"), status=12, says=("the same program",))
    at.main("compare", same, slow, at.suite("tolerant", "lenet", tolerance=0.5), says=("ok: the worst",))
    at.main("compare", same, slow, at.suite("many", "lenet", threads=4096), status=14, says=("oversubscribed", "not judged"))
    at.main("compare", same, slow, at.suite("short", "lenet"), "--budget", "1e-9", status=14, says=("the budget ended",))
    quiet = at.build("noisy", noise={"lenet": 0.3})
    at.main("compare", quiet, quiet, at.suite("quick", "lenet", peer="peer"), "--quick", status=11, says=("--quick ended",))
    check(at.results("quick")["lenet"]["pairs"] == [10], "--quick has ten pairs", at.results("quick"))
    check(at.results("quick")["lenet"]["share_of_matrix_peak"] == 0.25, "the share of the peak that launches told", at.results("quick"))
    check(abs(at.results("quick")["lenet"]["of_peer"] - 2) < 1e-6 and "of_peer" not in found["lenet"], "twice the cost of a peer that is twice as fast, where one is named", at.results("quick"))
    at.main("run", at.suite("peerless", "lenet", peer="rows/0/peer"), "--build", same, status=14, says=("it printed no rows/0/peer",))


def check_kills(at):
    """The run that was killed at random moments has the files of one that was not."""
    a, b = at.build("a", noise={"lenet": 0.03}), at.build("b", 1.1, {"lenet": 0.03})
    file = at.suite("kills", "lenet", "same")
    began = time.monotonic()
    at.main("compare", a, b, file, "--out", at.folder / "whole", status=15)
    long = time.monotonic() - began
    chance = random.Random(7)
    command = [sys.executable, str(BENCHMARKS / "suite"), *at.words("compare", a, b, file, "--out", at.folder / "killed")]
    looks = set()
    for kill in range(10):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            process.wait(chance.uniform(0.1, 0.35) * long)
            break  # it was through
        except subprocess.TimeoutExpired:
            process.send_signal((signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1, signal.SIGKILL)[kill % 4])
            said = process.communicate()[0]
            taken = [line for line in said.splitlines() if " pairs" in line]
            check(not looks & set(taken), "no look is taken twice", f"{looks} {taken}")
            looks |= set(taken)
            check(kill % 2 or process.returncode in (130, 15, -15, -10) or "Traceback" not in said, "a stop is no crash", said)
    if not runs.is_finished(at.folder / "killed"):
        at.main("compare", a, b, file, "--out", at.folder / "killed", status=15)
    check(at.measured(at.folder / "killed") == at.measured(at.folder / "whole"), "a killed run has the blocks of one that was not", f"{at.measured(at.folder / 'killed')}\n{at.measured(at.folder / 'whole')}")
    verdicts = [[(result["name"], result["verdict"], result["ratio"]) for result in json.loads((at.folder / name / "results.json").read_text())] for name in ("killed", "whole")]
    check(verdicts[0] == verdicts[1], "and its verdicts", verdicts)
    at.main("compare", a, b, file, "--out", at.folder / "killed", status=1, says=("has a finished run",))


def check_failing(at):
    a = at.build("a")
    at.main("compare", a, a, at.suite("failing", "dies", "zero", "nan", "none", "dies_once", "lenet"), status=14)
    found = at.results("failing")
    for name, text in (("dies", "out of memory"), ("zero", "samples_per_s_of_tenths = 0: a positive number"), ("nan", "samples_per_s_of_tenths = nan"), ("none", "no line that is a JSON object")):
        check(found[name]["verdict"] == "not-run" and text in found[name]["why"], f"{name}: {text}", found[name])
    check(found["dies_once"]["verdict"] == "ok" and found["dies_once"]["dropped"] == 1, "a block with a launch that dies is dropped and measured again", found["dies_once"])
    dropped = json.loads((at.folder / "runs" / "failing-0001" / "metrics" / "dies_once.json").read_text())["dropped"]
    check(dropped[0]["block"] == 2 and dropped[0]["arm"] == "A2" and "exit status -9" in dropped[0]["why"], "and told", dropped)
    check(found["lenet"]["verdict"] == "ok", "the others are measured", found["lenet"])
    hanging = suite_file.Metric("hangs", "train", str(at.folder / "hangs.toml"), timeout=0.3)
    (at.folder / "hangs.toml").write_text("")
    source = builds.Build(a, None, {})
    run = runs.Run(at.folder / "hang", suite_file.Suite("hang", (hanging,)), (hanging,), "compare", {"A": source, "A2": source, "B": source})
    run.measure(None, lambda line: None)
    check("no end after" in run.known["hangs"]["given_up"], "a launch that hangs is ended", run.known)
    refused(lambda: runs.Run(at.folder / "hang", suite_file.Suite("hang", (hanging,)), (hanging,), "compare", {"A": source, "A2": source, "B": source}), "another run works there")
    write, json_file.write = json_file.write, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    refused(lambda: runs.Run(at.folder / "full", suite_file.Suite("x", (hanging,)), (hanging,), "alone", {"B": source}), "No space left", "Make room")
    json_file.write = write
    for value in (-3.0, math.inf, True, "fast", None):
        refused(lambda value=value: programs.value_of(hanging, {"samples_per_s_of_tenths": value}), "a positive number is needed")
    refused(lambda: programs.value_of(hanging, {"rows": []}), "printed no samples_per_s")


def check_files(at):
    """Files of runs that are damaged, or of something else."""
    a, b = at.build("a"), at.build("b", 1.01)
    file = at.suite("files", "lenet")
    folder = at.folder / "runs" / "files-0001"
    at.main("compare", a, b, file, "--budget", "1e-9", status=14)
    shutil.rmtree(folder / "records")
    at.build("b", 1.3)  # another program
    at.main("compare", a, b, file, "--out", folder, status=1, says=("a run of other arms",))
    at.main("compare", a, b, file, status=15, says=("a fresh run begins", "files-0002"))
    at.main("run", at.suite("files", "same", "lenet"), "--build", a, "--only", "lenet", status=13, says=("0 stored runs, at least 5",))
    (folder / "metrics" / "lenet.json").write_text('{"series": [[')
    at.build("b", 1.01)
    at.main("compare", a, b, at.suite("files", "lenet"), "--out", folder, status=1, says=("truncated?", "Remove it"))
    at.main("verdict", folder, status=1, says=("is not finished",))
    record = at.folder / "runs" / "files-0002" / "records" / "lenet.json"
    text = record.read_text()
    for broken, says in ((text[:100], "truncated?"), (text.replace('"schema": 1', '"schema": 7'), "field 'schema' is 7")):
        record.write_text(broken)
        at.main("verdict", at.folder / "runs" / "files-0002", status=1, says=(says,))


SUITES = (
    ("", "the suite is empty"),
    ("metric = []", "the suite is empty"),
    ("[[metric]]\nname = 'a'\nprogram = 'train'\nworkload = 'w'\n" * 2, "two metrics are called a"),
    ("[[metric]\n", "Expected"),
    ("budget = 0\n[[metric]]", "minutes above 0"),
    ("speed = 1\n[[metric]]", "unknown speed"),
    ("[[metric]]\nname = 'a'", "program is missing"),
    ("[[metric]]\nname = '../a'\nprogram = 'train'", "letters, digits"),
    ("[[metric]]\nname = 'a'\nprogram = 'train'\nfast = 1", "unknown fast"),
    ("[[metric]]\nname = 'a'\nprogram = 'train'", "train needs a workload"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nworkload = 'w'", "workload and settings are train's"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nthreads = '2'", "threads = '2' is of type str"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nthreads = true", "is of type bool"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nranks = 0", "at least 1"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nseconds = 0.5", "at least 2"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nseconds = nan", "seconds"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\ntolerance = 3", "such as 0.03"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\ntimeout = 1", "has to be longer"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nfigure = 'f'", "given together"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\nbetter = 'more'", "higher"),
    ("[[metric]]\nname = 'a'\nprogram = 'x'\narguments = [1]", "which is no text"),
)


def check_input(at):
    path = at.folder / "bad.toml"
    for text, says in SUITES:
        path.write_text(text)
        refused(lambda: suite_file.read(path), says, "bad.toml")
    a = at.build("a")
    at.main("compare", a, a, "nothing", status=1, says=("there is no suite nothing; there are: ", "quick"))
    file = at.suite("input", "lenet")
    at.main("compare", a, a, file, "--only", "resnet", status=1, says=("no metric of input",))
    named = suite_file.read(at.suite("named", "lenet", "lenet-2"))
    check([metric.name for metric in suite_file.selected(named, ["lenet"])] == ["lenet"] and len(suite_file.selected(named, ["lene"])) == 2, "--only NAME is that metric alone")
    at.main("compare", a, at.folder / "nowhere", file, status=1, says=("neither a build folder",))
    (at.folder / "empty" / "benchmarks").mkdir(parents=True)
    at.main("compare", a, at.folder / "empty", file, status=1, says=("Build it:",))
    at.main("compare", a, a, file, "--budget", "-1", status=2)
    at.main("compare", a, status=2)
    other = at.build("other", options="CMAKE_BUILD_TYPE:STRING=Debug\n"), at.build("release", options="CMAKE_BUILD_TYPE:STRING=Release\n")
    at.main("compare", *other, file, status=1, says=("CMAKE_BUILD_TYPE = 'Debug'", "configure them alike"))
    native = at.build("native", options="CMAKE_BUILD_TYPE:STRING=Release\nCAIRN_NATIVE:BOOL=ON\n"), at.build("plain", options="CMAKE_BUILD_TYPE:STRING=Release\nCAIRN_NATIVE:BOOL=OFF\n")
    at.main("compare", *native, file, status=1, says=("CAIRN_NATIVE = 'ON'",))
    path.write_text("[[metric]]\nname = 'a'\nprogram = 'strange'\n")
    at.main("compare", a, a, path, status=1, says=("name figure and better",))
    path.write_text("[[metric]]\nname = 'a'\nprogram = 'train'\nworkload = 'nowhere'\n")
    at.main("compare", a, a, path, status=1, says=("there is no workload nowhere",))
    for name in suite_file.FOLDER.glob("*.toml"):
        at.main("list", name.stem)
        if trainings.has(name):
            trainings.read(name)
            continue
        for metric in suite_file.read(name).metrics:
            check(not metric.workload or metric.workload_path(), f"{name}: {metric.name} has a workload")
            programs.figure_of(metric)


def check_programs(at):
    kernel = suite_file.Metric("gemm", "kernels", arguments=("--benchmark_filter=^gemm$",))
    words = programs.command(kernel, pathlib.Path("/b"), 5, pathlib.Path("/s"))
    check(words[0] == "/b/benchmarks/kernels" and "--benchmark_out=/s/benchmark.json" in words and "--benchmark_min_time=0.4" in words, "kernels run five repetitions in two seconds", words)
    path = at.folder / "google.json"
    row = {"name": "gemm", "run_name": "gemm", "run_type": "iteration", "time_unit": "ms", "cpu_time": 1.0}
    rows = [row | {"real_time": time} for time in (3.0, 1.0, 2.0)] + [row | {"run_type": "aggregate", "real_time": 9.0}]
    path.write_text(json.dumps({"benchmarks": rows}))
    check(programs.google_benchmark(path) == {"real_time": 0.002, "cpu_time": 0.001}, "the median of the repetitions in seconds", programs.google_benchmark(path))
    path.write_text(json.dumps({"benchmarks": rows + [row | {"run_name": "other", "real_time": 1}]}))
    refused(lambda: programs.google_benchmark(path), "selects 2 benchmarks", "one is needed")
    path.write_text('{"benchmarks": [')
    refused(lambda: programs.google_benchmark(path), "not Google Benchmark's JSON")
    collectives = suite_file.Metric("ring", "collectives", ranks=2)
    words = programs.command(collectives, pathlib.Path("/b"), 5, pathlib.Path("/s"))
    check(words[0] == "mpirun" and words[words.index("-np") + 1] == "2" and words[-2:] == ["--seconds", "2"], "ranks are mpirun's", words)
    check(programs.value_of(collectives, {"rows": [{"seconds_of_tenths": {"auto": 0.5}}]}) == 0.5, "a figure in lists")
    named = [suite_file.Metric("t", "train", workload="lenet-mnist", peer=peer).hash() for peer in ("", "peer")]
    check(named[0] == named[1], "naming a peer does not change what is measured: references stay")
    times = suite_file.Metric("ring", "collectives", peer="p")
    check(results.beside(times, {"series": [[{"B": {"value": 0.5, "peer": 0.25}}]]}, "B") == {"peer": "p", "of_peer": 2.0}, "half the time is half the cost")
    train = suite_file.Metric("t", "train", workload="lenet-mnist", seconds=4)
    check(programs.steps_for(train, {"samples_per_s": 1000, "batch": 100}, 5) == 40 and programs.steps_for(train, {"samples_per_s": 1, "batch": 100}, 5) == 5, "as many steps as fill the seconds, five at least")


def check_references(at):
    """Five accepted runs make a reference. The build is of a commit."""
    git = lambda *words: subprocess.run(["git", "-C", str(at.folder / "repository"), *words], check=True, capture_output=True)
    (at.folder / "repository").mkdir()
    git("init", "-q")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "begin")
    cache = f"CMAKE_HOME_DIRECTORY:INTERNAL={at.folder / 'repository'}\n"
    a, slow = at.build("a", options=cache), at.build("slow", 1.2, options=cache)
    file = at.suite("stored", "lenet")
    at.main("run", file, "--build", at.build("unknown"), status=13)
    at.main("accept", "stored", "--reason", "first", status=1, says=("which no commit has",))
    for number in range(5):
        os.environ["CHANCE"] = str(number)
        at.main("run", file, "--build", a, status=13, says=(f"{number} stored runs, at least 5",))
        at.main("accept", "stored", "--reason", " ", status=1, says=("say why",))
        at.main("accept", "stored", "--reason", "it is fast")
    at.main("accept", "stored", "--reason", "again", status=1, says=("already",))
    at.main("run", file, "--build", a, says=("ok: the worst", "beside 5 earlier runs"))
    at.main("run", file, "--build", slow, status=15, says=("slower",))
    metric, machine = suite_file.read(file).metrics[0], host.machine()["fingerprint"]
    stored = references.read(references.path_for(references.cache() / "references", "stored", machine))
    check(stored[0]["accepted"]["reason"] == "it is fast" and len(stored) == 5, "references have their reason")
    today = datetime.date.fromisoformat(stored[0]["accepted"]["when"])
    for change, today, text in (
        ({"machine": {"fingerprint": "another"}}, today, "of another machine"),
        ({"settings_hash": "x"}, today, "of other settings"),
        ({"oversubscribed": True}, today, "oversubscribed"),
        ({}, today + datetime.timedelta(days=366), "5 past their expiry"),
    ):
        values, why = references.values_for([entry | change for entry in stored], metric, machine, today)
        check(values == [] and text in why, f"no reference: {text}", why)
    made = [entry | {"when": "2000-01-01T00:00:00Z"} for entry in stored[:1]]
    refused(lambda: references.accept(at.folder / "r.json", [made[0] | {"verdict": {"verdict": "disturbed"}}], "x"), "disturbed", "measure again")
    refused(lambda: references.accept(at.folder / "r.json", [], "x"), "nothing was measured")
    (at.folder / "r.json").write_text("[{")
    refused(lambda: references.read(at.folder / "r.json"), "r.json", "truncated?")
    (at.folder / "r.json").write_text(json.dumps([{**stored[0], "threads": "two"}]))
    refused(lambda: references.read(at.folder / "r.json"), "record 0", "field 'threads'")
    path = references.path_for(references.cache() / "references", "stored", machine)
    references.accept(path, made, "slower on purpose", anew=True)
    check([entry["accepted"]["reason"] for entry in references.read(path)] == ["slower on purpose"], "--anew begins anew")
    at.main("calibrate", file, "--build", a, says=("floor",))
    floor = references.floors(machine)[metric.hash()]
    before = metric.hash()
    (at.folder / "lenet.toml").write_text("# changed")
    check(metric.hash() != before, "what a changed workload measures is something else")
    check(floor["blocks"] == 10 and 0 <= floor["floor"] < 0.01, "calibrate measures by how much equal programs differ", floor)
    noisy = at.build("drift", noise={"disturbed": 0})
    at.main("calibrate", at.suite("drift", "disturbed"), "--build", noisy)
    at.main("compare", noisy, at.build("slow", 1.2), at.suite("drift", "disturbed"), says=("ok",))


def check_revisions(at):
    """A revision is built in a worktree; cmake is a script that copies the source's program."""
    root = at.folder / "repository"
    (root / "program").mkdir(parents=True)
    tools = at.folder / "tools"
    tools.mkdir()
    cmake = tools / "cmake"
    cmake.write_text('#!/bin/sh\necho "$@" >> "$CALLS"\ncase $1 in --preset) mkdir -p "$6/benchmarks"; echo "CMAKE_BUILD_TYPE:STRING=Release" > "$6/CMakeCache.txt";;\n'
                     '--build) test -f program/bad && echo "error: bad" && exit 1; cp program/train "$2/benchmarks/$4";; esac\n')
    cmake.chmod(0o755)
    os.environ["CALLS"] = str(at.folder / "calls")
    path, os.environ["PATH"] = os.environ["PATH"], f"{tools}:{os.environ['PATH']}"
    git = lambda *words: subprocess.run(["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(at.build("x") / "benchmarks" / "train", root / "program" / "train")
    git("init", "-q")
    for message in ("one", "two"):
        git("add", "-A")
        git("commit", "-q", "-m", message, "--allow-empty")
        (root / "program" / "bad").write_text("")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            build = builds.find("HEAD~1", ["train"], root)
            again = builds.find("HEAD~1", ["train"], root)
        check(build == again and build.revision == git("rev-parse", "HEAD~1")[:12] and (build.folder / "benchmarks" / "train").is_file(), "a revision is built", build)
        check(len((at.folder / "calls").read_text().splitlines()) == 2, "once")
        check(build.options == {"CMAKE_BUILD_TYPE": "Release"}, "by the preset release", build.options)
        with contextlib.redirect_stdout(io.StringIO()):
            refused(lambda: builds.find("HEAD", ["train"], root), "does not build", "error: bad")
    finally:
        os.environ["PATH"] = path


if __name__ == "__main__":
    for part in (check_verdicts, check_kills, check_failing, check_files, check_input, check_programs, check_references, check_revisions):
        with tempfile.TemporaryDirectory() as folder:
            part(Place(folder))
    end("suite")
