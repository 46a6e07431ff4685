#!/usr/bin/env python3
"""Runs the program states as a user would, on runs of a few steps: lists, trees, differences, checks, tags, removal, and bad input.

    tests/checks/states.py build/dev [--python PYTHON]

--python: one that can import PyPI's safetensors and numpy, which then read and write the same files.
"""

import array
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from program import check, failures, small_workload  # noqa: E402


# Reads what was exported, compares it with bytes of the pack, writes a file of its own, and compares what came back.
peer = """
import sys
import numpy as np
from safetensors.numpy import load_file, save_file
if sys.argv[1] == "write":
    pack = open(sys.argv[2], "rb").read()
    exported = load_file("a.safetensors")
    assert len(exported) > 10 and all(v.dtype == np.float32 and v.tobytes() in pack for v in exported.values())
    random = np.random.default_rng(0)
    save_file({"a/w": random.normal(size=(3, 4)).astype("f4"), "half": random.normal(size=5).astype("f2"), "n": np.arange(6).reshape(2, 3),
               "none": np.zeros((0, 3), "f4"), "one": np.array(3.5, "f8"), "d": random.normal(size=7)}, "peer.safetensors", {"x": "y"})
else:
    given, back = load_file("peer.safetensors"), load_file("back.safetensors")
    given["half"] = given["half"].astype("f4")
    assert set(given) == set(back) and all(given[k].dtype == back[k].dtype and given[k].shape == back[k].shape
                                           and given[k].tobytes() == back[k].tobytes() for k in given)
"""


def floats(path):
    """All numbers of a safetensors file of float32."""
    data = path.read_bytes()
    header = int.from_bytes(data[:8], "little")
    return array.array("f", data[8 + header:])


def main():
    arguments = sys.argv[1:]
    python = arguments[arguments.index("--python") + 1] if "--python" in arguments else None
    programs = pathlib.Path(arguments[0] if arguments else "build/dev").resolve() / "benchmarks"
    if not (programs / "states").exists():
        print("skipped: no program states (it needs libsqlite3-dev)")
        return 0
    os.environ["CAIRN_CEILINGS"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        workload = small_workload(folder)

        def run(program, *arguments):
            result = subprocess.run([str(programs / program), *map(str, arguments)], capture_output=True, text=True, cwd=folder,
                                    stdin=subprocess.DEVNULL, timeout=300)
            return result.returncode, result.stdout + result.stderr, result.stdout

        def states(*arguments, status=0):
            code, text, out = run("states", *arguments)
            check(code == status, f"states {' '.join(map(str, arguments))} exits with {code}, expected {status}", text)
            return json.loads(out) if "--json" in arguments and code == status else text

        def train(*arguments):
            code, text, _ = run("train", *arguments)
            check(code == 0, f"train {' '.join(map(str, arguments))} exits with {code}", text)

        keep = ("--set", 'state.keep=["last 9"]')
        train(workload, "--steps", 2, "--out", "runs/a", *keep)  # each start leaves a version at its end
        train("--resume", "runs/a", "--steps", 4)
        train("--resume", "runs/a", "--steps", 6)
        train("--from", "runs/a@4", "--steps", 6, "--out", "runs/b", "--set", "optimizer.lr=0.0005")  # and one at its beginning
        train("--resume", "runs/b", "--steps", 8)
        train(workload, "--steps", 2, "--out", "runs/c")
        a, b = pathlib.Path(folder, "runs/a"), pathlib.Path(folder, "runs/b")

        rows = states("list", "--json")
        check([(row["run"], row["step"]) for row in rows] == [("runs/a", 2), ("runs/a", 4), ("runs/a", 6), ("runs/b", 4), ("runs/b", 6), ("runs/b", 8), ("runs/c", 2)],
              "list has every version of every run", str(rows))
        rows = states("list", "runs/b", "c", "--where", '"optimizer.lr" = 0.0005 AND step > 6', "--json")
        check([row["step"] for row in rows] == [8], "list --where goes by settings", str(rows))
        check("no such column" in states("list", "--where", "stepp > 6", status=2), "a misspelt column is named")
        tree = states("log", "runs/a@4", "--json")
        check([state["step"] for state in tree["ancestors"]] == [2] and sorted((s["run"], s["step"]) for s in tree["descendants"])
              == [("runs/a", 6), ("runs/b", 4), ("runs/b", 6), ("runs/b", 8)], "log has ancestors and what came from them", str(tree))
        text = states("log", "b@6")
        check("branch: runs/b  step 4" in text and text.index("runs/a  step 4") < text.index("branch") < text.index("* runs/b  step 6"), "log prints a tree", text)
        check("optimizer" in states("show", "a@4") and states("show", "a", "--json")["ranks"] == 1, "show")

        difference = states("diff", "a@2", "c", "--json")
        check(difference["same"], "two runs of the same steps have the same state", str(difference))
        difference = states("diff", "a", "b@6", "--json", status=1)
        first = difference["differ"][0]
        check(first["tensor"].startswith("model/") and first["a"] != first["b"] and first["differ"] > 0, "diff finds the tensor", str(first))
        check("the first: " + first["tensor"] in states("diff", "a", "b@6", status=1), "diff prints it")
        difference = states("diff", "a", "b@6", "--tolerance", 1, "--json")
        check(difference["same"], "within the tolerance", str(difference))

        states("verify")
        pack = b / "states" / [n for n in os.listdir(b / "states") if n.startswith("00000006")][0] / "rank-0000.pack"
        good = pack.read_bytes()
        middle = len(good) // 2
        pack.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1:])
        text = states("verify", status=1)
        check(str(pack.relative_to(folder)) in text and "checksum" in text, "verify names the damaged file", text)
        states("verify", "runs/a", "runs/b@8")
        states("verify", "runs/b@6", status=1)
        states("diff", "runs/b@6", "a", status=2)
        damaged = pack.read_bytes()
        text = states("verify", "runs/b@6", "--repair", status=1)
        check("no other version has it" in text and pack.read_bytes() == damaged, "what nothing heals stays as it is, and is named", text)
        spare = pathlib.Path(folder, "disk", pack.parent.name)
        spare.mkdir(parents=True)
        (spare / pack.name).write_bytes(good)
        text = states("verify", "runs/b@6", "--repair", "--local", os.path.join(folder, "disk"))
        check("rank-0000.pack from" in text and pack.read_bytes() == good, "verify --repair heals from an equal pack", text)
        states("verify")

        (a / "states").joinpath(sorted(os.listdir(a / "states"))[0], "lineage.json").write_text("{")
        rows = states("list", "runs/a", "--json")
        check(len(rows) == 3 and rows[0]["epoch"] is None, "a damaged lineage is a row that says less", str(rows))
        states("tag", "a@2", "start", "first")
        states("untag", "a@start", "first")
        check("no tag" in states("untag", "a@2", "first", status=2), "a tag that is not there is named")
        states("keep", "b@6")
        check("newest" in states("rm", "a", status=2) and "tagged" in states("rm", "a@start", status=2), "rm refuses the newest and the tagged")
        with open(a / "run.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            check("in use" in states("rm", "a@4", status=2) and "in use" in states("gc", "a", "last 1", status=2), "nothing is removed while a run works")
        states("rm", "a@4")
        text = states("log", "runs/b@8")
        check("gone: " in text and "runs/a" in text, "log tells that a parent is gone", text)
        check("would remove runs/a" not in states("gc", "a", "last 1", "--dry-run"), "gc keeps what has a tag, and the newest")
        states("gc", "runs/a", "last 1")
        check([row["step"] for row in states("list", "a", "b", "--json")] == [2, 6, 4, 6, 8], "and says before what it does")
        check("is no rule" in states("gc", "a", "first 3", status=2), "an unknown rule is refused")
        usage = states("du", "--json")
        check(usage[-1]["bytes"] == sum(f.stat().st_size for f in pathlib.Path(folder, "runs").glob("*/states/*/*")), "du", str(usage))
        check(states("query", "SELECT run, max(step) AS most FROM states GROUP BY run", "--json")
              == [{"run": "runs/a", "most": 6}, {"run": "runs/b", "most": 8}, {"run": "runs/c", "most": 2}], "query")
        states("export", "b", "all.safetensors", "--all")
        states("import", "all.safetensors", "runs/all")
        check(states("diff", "b", "all", "--json")["same"], "what --all exports is imported as the same state")
        states("export", "b", "a.safetensors")
        states("import", "a.safetensors", "runs/weights")
        check("has saved states" in states("import", "a.safetensors", "runs/weights", status=2), "a run is not imported over")
        states("export", "weights", "again.safetensors")
        exported, again = (pathlib.Path(folder, name).read_bytes() for name in ("a.safetensors", "again.safetensors"))
        check(exported.split(b"}", 1)[1] == again.split(b"}", 1)[1], "weights come back bit for bit")
        code, text, _ = run("train", workload, "--steps", 1, "--init", "runs/weights", "--out", "runs/d")
        check(code == 0 and "from " in text, "train --init takes imported weights", text)
        check("init: runs/d" in states("log", "weights"), "and log tells where they came from")
        states("average", "runs/b@6", "runs/b@8", "--out", "runs/mean")
        for name, version in (("x", "runs/b@6"), ("y", "runs/b@8"), ("z", "runs/mean")):
            states("export", version, f"{name}.safetensors")
        x, y, z = (floats(pathlib.Path(folder, f"{name}.safetensors")) for name in "xyz")
        check(len(x) == len(z) > 100 and all(abs((p + q) / 2 - r) <= 1e-6 * (1 + abs(r)) for p, q, r in zip(x, y, z)), "average is the mean of weights and statistics")
        check("average: runs/mean" in states("log", "runs/b@6"), "log tells what was averaged")
        code, text, out = run("train", "--evaluate", "runs/b@6", "runs/mean", "--fresh-statistics")
        check(code == 0 and len(json.loads(out)["versions"]) == 2 and json.loads(out)["mean"]["test_loss"] > 0, "train --evaluate tests versions and their mean", text)
        check("no saved state" in states("average", "runs/b", "none", "--out", "runs/m", status=2) and not pathlib.Path(folder, "runs/m").exists(), "average of nothing")
        pathlib.Path(folder, "bad.safetensors").write_bytes(exported[:-3])
        check("bytes of data" in states("import", "bad.safetensors", "runs/bad", status=2), "a truncated file is refused")
        if python:
            states("export", "runs/b@6", "a.safetensors")
            for step in (["write", pack], ["compare"]):
                done = subprocess.run([python, "-c", peer, *map(str, step)], capture_output=True, text=True, cwd=folder)
                check(done.returncode == 0, f"PyPI's safetensors: {step[0]}", done.stderr)
                if step[0] == "write":
                    states("import", "peer.safetensors", "runs/peer")
                    states("export", "runs/peer", "back.safetensors")
        check("not authorized" in states("query", "DELETE FROM states", status=2), "SQL that would write is refused")
        for bad, part in [(("show", "none"), "no run"), (("show", "a@77"), "no version of step or tag 77"), (("list", "none"), "no run"),
                          (("tag", "a", "x@y"), "is no tag")]:
            check(part in states(*bad, status=2), f"{bad} is refused")
    print("states: all right" if not failures else f"states: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
