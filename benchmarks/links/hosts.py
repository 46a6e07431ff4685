"""One training run on several hosts with slow links, for the scripts beside it."""

import pathlib
import re
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "benchmarks"))
import json_file  # noqa: E402
import training_runs  # noqa: E402


def train(build, workload, data, hosts, rate, steps, settings, cluster_options=()):
    """Runs `train` on so many hosts of one rank each. Returns seconds and loss at each step, and the bytes that host 1 sent."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(root / "benchmarks" / "links" / "cluster"), str(hosts), rate, *cluster_options, "--",
                   str(training_runs.program(build)), str(root / "benchmarks" / "workloads" / f"{workload}.toml"),
                   *(["--data", str(data)] if data else []), "--out", f"{folder}/run", "--steps", str(steps)]
        for setting in ["train.log_every=1", "train.test_every=0", *settings]:
            command += ["--set", setting]
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        sent = re.search(r"host 1 sent (\d+) bytes", result.stderr)
        if result.returncode or not sent:
            sys.exit(f"{' '.join(command)} failed:\n{result.stdout[-1000:]}{result.stderr[-3000:]}")
        try:
            entries = [e for e in json_file.metrics(pathlib.Path(folder, "run", "metrics.jsonl")) if "loss" in e]
        except ValueError as problem:
            sys.exit(str(problem))
        return {"seconds": [e["seconds"] for e in entries], "losses": [e["loss"] for e in entries], "sent": int(sent.group(1))}


def bytes_a_step(record, options, kind, settings, steps=100):
    """Bytes that each of so many hosts sends a step with an optimizer, the mean over so many steps after the first, kept in the record; links are fast
    enough to take no time."""
    def measure():
        first, all_of_them = (train(options.build, options.workload.stem, options.data, options.hosts, "10gbit", n, [*options.set, *settings])["sent"]
                              for n in (1, 1 + steps))
        return {"bytes_a_step": (all_of_them - first) / steps}

    return record.once({"name": f"{kind}, bytes", "hosts": options.hosts}, measure)["bytes_a_step"]
