#!/usr/bin/env python3
"""A table that no test knows, as a new user has it: audited, trained on by one file, and refused where it gives its target away.

    tests/checks/tables.py BUILD
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

WORKLOAD = """name = "pumps"
[data]
format = "table"
[data.table]
target = ["state"]
leave_out = ["serial"]
split = "groups"
group = "site"
numbers = "piecewise"
[model]
kind = "mlp"
hidden = [16]
dropout = 0.1
[optimizer]
kind = "adamw"
lr = 0.01
[train]
epochs = 8
batch = 16
"""


def table(rows, leak=False):
    """Pumps that wear out where it is hot and they turn fast; every ninth pressure is missing."""
    draw = random.Random(3)
    lines = ["serial,site,temperature,turns,maker,pressure,state" + (",repaired" if leak else "")]
    for i in range(rows):
        temperature, turns = draw.gauss(60, 15), draw.choice([900, 1500, 3000])
        worn = temperature + turns / 50 + draw.gauss(0, 10) > 95
        pressure = "" if i % 9 == 0 else f"{draw.gauss(5, 1):.2f}"
        lines.append(f'{7000 + i},site {i % 23},{temperature:.1f},{turns},"{draw.choice(["A, Inc.", "B"])}",{pressure},{"worn" if worn else "sound"}' + (f",{int(worn)}" if leak else ""))
    return "\n".join(lines) + "\n"


def main():
    train = pathlib.Path(sys.argv[1]).resolve() / "benchmarks" / "train"
    with tempfile.TemporaryDirectory(prefix="cairn-tables-") as name:
        folder = pathlib.Path(name)
        workload = folder / "pumps.toml"
        workload.write_text(WORKLOAD)

        def run(*words):
            done = subprocess.run([str(word) for word in (train, workload, "--threads", 1, *words)], cwd=folder, capture_output=True, text=True, timeout=120)
            return done.returncode, done.stdout, done.stderr

        def check(good, what, *told):
            if not good:
                sys.exit(f"tables: {what}: {told}")

        data = folder / "pumps.csv"
        data.write_text(table(300))
        status, out, told = run("--data", data, "--audit-data")
        check(status == 0 and "no leak found" in out and "column 'serial' names rows; it is no input" in out, "the audit of a table without leaks", out, told)
        status, out, told = run("--data", data, "--out", folder / "run")
        check(status == 0 and "some are missing" in told and "2 categories: A, Inc., B" in told, "a training", told)
        last = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
        check(last["test_auc"] > 0.8 and last["test_macro_f1"] > 0.6, "what it learned", last)
        status, out, told = run("--data", data, "--out", folder / "other", "--set", "data.table.split=leave_one_group_out", "--set", "data.table.tested=['site 4']")
        check(status == 0 and "287 training and 13 test samples" in told, "one site left out", told)

        (folder / "leak.csv").write_text(table(300, leak=True))
        status, out, told = run("--data", folder / "leak.csv", "--audit-data")
        check(status == 1 and "LEAK  column 'repaired' alone predicts the target (AUC 1 on the test rows)" in out, "the audit of a table with a leak", out, told)
        status, out, told = run("--data", data, "--audit-data", "--set", "data.table.leave_out=[]")
        check(status == 1 and "LEAK  column 'serial' looks like names of rows" in out, "the audit of a table with names of rows", out, told)

        data.write_text(table(300) + "1,2\n")
        status, out, told = run("--data", data)
        check(status == 1 and "pumps.csv: line 302: 2 cells, the header has 7" in told, "a row of too few cells", told)
        status, out, told = run("--data", folder / "none.csv")
        check(status == 1 and "none.csv not found" in told, "no file", told)
    print("tables: all right")


if __name__ == "__main__":
    main()
