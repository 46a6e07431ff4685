"""One run of the program `train` to its end, for scripts that compare whole trainings."""

import json
import pathlib
import subprocess
import sys
import tempfile

import json_file


def run(options, workload, settings):
    """The last line of its output and the lines of its metrics.jsonl. `options`: build and data, folders; None: the workload generates its data. Ends this script where the run fails."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(options.build / "benchmarks" / "train"), str(workload), "--out", f"{folder}/run"]
        if options.data:
            command += ["--data", str(options.data)]
        for setting in settings:
            command += ["--set", setting]
        result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if result.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
        return json.loads(result.stdout.splitlines()[-1]), json_file.metrics(pathlib.Path(folder) / "run" / "metrics.jsonl")
