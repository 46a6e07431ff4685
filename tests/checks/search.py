#!/usr/bin/env python3
"""Runs benchmarks/search with the program train, on a network of a few steps: states of a tree of stages against those of the same trials trained alone, also after kills.

    tests/checks/search.py build/dev
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from program import check, failures  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKLOAD = """name = "tiny"
[data]
format = "cosmology"
[data.cosmology]
size = 8
volumes = 48
test_volumes = 8
[model]
kind = "cosmoflow"
filters = 4
blocks = 1
normalise = true
dropout = 0.1
[optimizer]
kind = "adam"
lr = 2e-3
[lr_schedule]
kind = "one_cycle"
[train]
batch = 4
"""
SPACE = """workload = "tiny.toml"
[[stage]]
epochs = 2
vary = {"optimizer.lr" = [1e-3, 2e-3]}
[[stage]]
epochs = 1
choices = [{"optimizer.weight_decay" = 0.0}, {"optimizer.weight_decay" = 0.1}, {"optimizer.lr" = 1e-4}]
"""


def main():
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev").resolve()
    os.environ["CAIRN_CEILINGS"] = "0"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "tiny.toml").write_text(WORKLOAD)
        (folder / "space.toml").write_text(SPACE)

        def command(out, *words):
            return [str(ROOT / "benchmarks" / "search"), str(folder / "space.toml"), "--out", str(folder / out), "--build", str(build), "--threads", "1",
                    "--json", str(folder / "result.json"), *words]

        def search(out, *words, status=0):
            (folder / "result.json").unlink(missing_ok=True)
            done = subprocess.run(command(out, *words), capture_output=True, text=True, timeout=300)
            check(done.returncode == status, f"search {' '.join(words)} exits with {done.returncode}", done.stdout + done.stderr)
            return json.loads((folder / "result.json").read_text()) if status == 0 and done.returncode == 0 else done.stderr

        found = search("whole", "--check")
        check(found and found["same_digests"] == 6 and found["steps_trained"] == 2 * 24 + 6 * 12 and found["steps_alone"] == 6 * 36,
              "six trials share their first stages, and end as those trained alone", str(found))
        check(len({t["digest"] for t in found["trials"]}) == 6, "six trials have six states", str(found))
        check("optimizer.rate" in search("bad", "--set", "optimizer.rate=1", status=2), "a setting that train does not know is named")
        check(not list(folder.glob("bad/*/states")), "before anything trains")
        # With the kernels of the first search: kernels are chosen by measurement, and others have other last bits.
        cache = folder / "cache"
        cache.mkdir()
        os.environ["CAIRN_CACHE"] = str(cache)
        (cache / "autotune.tsv").write_text(next((folder / "whole").glob("kernels-1-*/autotune.tsv")).read_text())
        begin = time.monotonic()
        expected = {t["settings"]: t["digest"] for t in search("same")["trials"]}
        whole = time.monotonic() - begin  # with one job; two take at least half of that
        chance, kills = random.Random(2), 0
        while kills < 5:
            process = subprocess.Popen(command("killed", "--jobs", "2", "--oversubscribe"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(whole * chance.uniform(0.1, 0.4))
            process.send_signal(signal.SIGKILL)
            if process.wait() == 0:
                break
            kills += 1
        killed = {t["settings"]: t["digest"] for t in search("killed")["trials"]}
        check(kills > 0 and killed == expected, f"killed {kills} times, a search ends in the states of one that was not", f"{killed}\n{expected}")
    print("search with train: " + ("all right" if not failures else f"{len(failures)} failures"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
