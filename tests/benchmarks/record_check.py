#!/usr/bin/env python3
"""Checks the records of measurements: what makes a machine the same one, the conditions, what is no record, and that each file in reference/ is a record
or known as history."""

import argparse
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import host  # noqa: E402
import measured_runs  # noqa: E402
import record  # noqa: E402
import revision  # noqa: E402

CPUINFO = """processor\t: {n}
model name\t: Made Up 9000
cpu family\t: 6
model\t\t: 85
stepping\t: 7
cpu MHz\t\t: {mhz}
bogomips\t: {bogomips}
flags\t\t: fpu sse4_2 avx2 avx fma avx512f avx512_bf16 hypervisor {flag}

"""


def make_root(folder, mhz=2000.0, processors=2, memory=24684084, flag="", cache="1024K"):
    """A /proc and /sys of a machine."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "proc").mkdir(parents=True)
    (folder / "proc" / "cpuinfo").write_text("".join(CPUINFO.format(n=n, mhz=mhz + n, bogomips=2 * mhz, flag=flag) for n in range(processors)))
    (folder / "proc" / "meminfo").write_text(f"MemTotal:       {memory} kB\nMemFree: 1 kB\n")
    for index, (level, kind, size) in enumerate(((1, "Data", "32K"), (1, "Instruction", "32K"), (2, "Unified", cache))):
        place = folder / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        place.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (place / name).write_text(f"{text}\n")
    return str(folder)


def fingerprints(folder):
    here = host.machine(make_root(folder))
    assert here == {"cpu": "Made Up 9000 family 6 model 85 stepping 7", "processors": 2, "caches": "L1d 32K, L1i 32K, L2 1024K", "memory_gib": 24.0,
                    "instructions": "avx avx2 avx512_bf16 avx512f fma sse4_2", "fingerprint": here["fingerprint"]}, here
    # A reboot, an update that keeps a little more memory, and a mitigation's flag change nothing.
    assert host.machine(make_root(folder, mhz=3100.5, memory=24600000, flag="ibpb")) == here
    for change in ({"processors": 4}, {"memory": 33000000}, {"flag": "amx_tile"}, {"cache": "2048K"}):
        assert host.machine(make_root(folder, **change))["fingerprint"] != here["fingerprint"], change
    assert host.machine() == host.machine() and host.machine()["processors"] >= 1
    nothing = host.machine(str(folder / "nowhere"))  # not Linux
    assert nothing["cpu"] == "unknown processor" and nothing["memory_gib"] == 0
    # Published values of FNV-1a, 64 bits.
    assert (host.hashed(""), host.hashed("a"), host.hashed("foobar")) == ("cbf29ce484222325", "af63dc4c8601ec8c", "85944171f73967e8")
    assert [host.rounded_up(gib) for gib in (7.7, 15.6, 23.5, 62.8, 125.6, 377.5, 503.0)] == [8, 16, 24, 64, 128, 384, 512]


def conditions(folder):
    for path, text in (("proc/self/cgroup", "0::/a/b\n"), ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"), ("sys/fs/cgroup/a/cpu.max", "150000 100000\n")):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    assert host.quota(str(folder)) == 1.5  # of the group around
    (folder / "proc/self/cgroup").write_text("3:cpu,cpuacct:/c\n2:memory:/c\n")
    (folder / "sys/fs/cgroup/cpu,cpuacct/c").mkdir(parents=True)
    (folder / "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us").write_text("50000\n")
    (folder / "sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us").write_text("100000\n")
    assert host.quota(str(folder)) == 0.5 and host.quota(str(folder / "nowhere")) is None
    there = os.environ.pop("OMP_NUM_THREADS", None)
    assert (host.threads_on_links(1), host.threads_on_links(10**6)) == (len(os.sched_getaffinity(0)), 1)
    os.environ["OMP_NUM_THREADS"] = "3"
    assert host.threads_on_links(2) == 3
    os.environ.pop("OMP_NUM_THREADS")
    os.environ.update({"OMP_NUM_THREADS": there} if there else {})
    assert host.ranges({5, 0, 1, 2}) == "0-2,5" and host.ranges(set()) == ""
    cores = len(os.sched_getaffinity(0))
    assert host.is_oversubscribed(cores + 1, 1) and host.is_oversubscribed(1, cores + 1)

    watch = host.Watch()
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # it works while this waits
    time.sleep(1)
    with_other = watch.conditions()["others"]
    other.kill()
    other.wait()
    found = watch.conditions()
    assert with_other is None or 0.05 / (os.cpu_count() or 1) < with_other <= 1, with_other
    assert found["affinity"] and found["load"] >= 0 and json.dumps(found)

    os.environ.update({"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "2", "SLURM_JOB_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n2"})
    assert host.slurm() == {"job": "17", "nodes": "n[1-2]", "node": "n2", "restarts": 2} and host.binding().startswith("n2:")
    for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "SLURMD_NODENAME"):
        del os.environ[name]


def revisions(folder):
    repository = folder / "repository"
    repository.mkdir(parents=True)
    assert revision.of(repository) is None
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
        subprocess.run(git + words, check=True, capture_output=True)
    clean = revision.of(repository)
    assert len(clean) == 12 and not record.is_dirty({"revision": clean})
    (repository / "new").write_text("1")
    dirty = revision.of(repository)
    (repository / "new").write_text("2")
    assert dirty.startswith(clean + "+") and revision.of(repository) not in (clean, dirty) and record.is_dirty({"revision": dirty}) and record.is_dirty({"revision": None})


def refused(change, *parts):
    """A record that is changed so is refused, and the file and the field are named."""
    made = record.make("b", {"batch": 4}, [record.metric("t", 1.5, "s", "lower", "time", [[1.0, 1.5], [2.0, 1.0]])], threads=1)
    made = json.loads(json.dumps(record.check(made)))
    change(made)
    try:
        record.check(made, "file.json")
    except ValueError as problem:
        assert all(part in str(problem) for part in ("file.json", *parts)), (parts, str(problem))
        return
    raise AssertionError(f"not refused: {parts}")


def bad_records(folder):
    refused(lambda r: r.pop("schema"), "'schema'", "history")
    refused(lambda r: r.update(schema=2), "'schema' is 2")
    refused(lambda r: r.pop("conditions"), "'conditions' is missing")
    refused(lambda r: r.update(threads="2"), "'threads'", "a whole number or null", '"2"')
    refused(lambda r: r.update(threads=True), "'threads'")
    refused(lambda r: r.update(when="yesterday"), "'when'", "yesterday")
    refused(lambda r: r.update(expires="soon"), "'expires'")
    refused(lambda r: r["machine"].pop("fingerprint"), "machine.fingerprint")
    refused(lambda r: r["metrics"].append(r["metrics"][0]), "metrics[1].name", "two metrics")
    refused(lambda r: r["metrics"][0].update(value=float("nan")), "metrics[0].value", "NaN")
    refused(lambda r: r["metrics"][0].update(values=[[1.0, float("inf")]]), "metrics[0].values")
    refused(lambda r: r["metrics"][0].update(kind="speed"), "metrics[0]", "speed")
    refused(lambda r: r["metrics"][0].pop("unit"), "metrics[0].unit")
    path = folder / "r.json"
    good = record.make("b", {"y": 1, "x": "ä"}, [record.metric("rate", 3, "1/s", "higher", "rate")], seeds=[1, 2])
    record.write(path, good)
    assert record.read(path) == json.loads(json.dumps(good)) and record.value(good, "rate") == 3 and good["seeds"] == [1, 2]
    assert good["settings_hash"] == record.hash_of({"x": "ä", "y": 1}) != record.hash_of({"x": "a", "y": 1})
    path.write_text(path.read_text()[:-20])
    for reads, what in ((lambda: record.read(path), "truncated"), (lambda: record.value(good, "time"), "there are rate")):
        try:
            reads()
            raise AssertionError(f"not refused: {what}")
        except ValueError as problem:
            assert what in str(problem), problem
    other = copy.deepcopy(good)
    other["more"] = {"of": "its writer"}
    record.check(other)


def seeds():
    def run(seed, loss, rate="0.1"):
        return record.make("b", {"train.seed": str(seed), "lr": rate}, [record.metric("loss", loss, "", "lower", "quality")], seeds=[seed])

    together = record.check(record.joined([run(1, 3.0), run(2, 5.0)]))
    assert together["seeds"] == [1, 2] and together["metrics"][0]["values"] == [3.0, 5.0] and record.value(together, "loss") == 4.0
    assert together["settings"] == {"lr": "0.1"} and len(together["conditions"]["runs"]) == 2
    for others, what in (([run(2, 5.0, rate="0.2")], "differ in settings"), ([run(1, 5.0)], "twice")):
        try:
            record.joined([run(1, 3.0), *others])
            raise AssertionError(what)
        except ValueError as problem:
            assert what in str(problem), problem


def comparisons(folder):
    """Scripts' records have their options as settings, and what they found beside. Runs that are written one by one are a record from the first one on, and say where they went on; older files are read, and get no runs."""
    options = argparse.Namespace(json=folder / "x.json", pairs=3, set=["a=b"], accuracy=None)
    found = record.check(record.of_script("compare", options, {"threads": 2, "summary": [1]}))
    assert found["settings"] == {"json": str(folder / "x.json"), "pairs": 3, "set": ["a=b"], "accuracy": None} and found["threads"] == 2 and found["summary"] == [1]
    assert found["when"] == record.BEGIN.when
    path = folder / "runs.json"
    record.runs(path, "compare", {"workload": "w"}).once({"seed": 1}, lambda: {"loss": 0.5})
    first = record.read(path)
    assert first["benchmark"] == "compare" and first["runs"] == [{"seed": 1, "loss": 0.5}] and first["settings"] == {"workload": "w"} and "continued" not in first
    record.runs(path, "compare", {"workload": "w"}).once({"seed": 2}, lambda: {"loss": 0.25})
    second = record.read(path)
    assert len(second["runs"]) == 2 and second["when"] == first["when"] and [part["fingerprint"] for part in second["continued"]] == [host.machine()["fingerprint"]]
    path.write_text('{"workload": "w", "runs": [{"seed": 1}]}')
    assert record.runs(path, "compare", {"workload": "w"}).once({"seed": 1}, lambda: {"new": 1}) == {"seed": 1}  # read
    for text, says in ((path.read_text(), "older than records"), (path.read_text()[:-1] + ', "schema": 0}', "of schema 0, this program writes 1")):
        path.write_text(text)
        try:
            record.runs(path, "compare", {"workload": "w"}).once({"seed": 2}, lambda: {})
            raise AssertionError("a run is added to a file that is no record")
        except SystemExit as end:
            assert str(path) in end.code and says in end.code and "name another file" in end.code, end.code
        assert path.read_text() == text


def references():
    """Each file is a record, or named as history."""
    folder = measured_runs.ROOT / "reference"
    wrong = [name for name in record.history() if not (folder / name).is_file()]
    for path in sorted(folder.glob("*.json")):
        try:
            record.kind_of(path)
        except ValueError as problem:
            wrong.append(str(problem))
    assert not wrong, wrong


with tempfile.TemporaryDirectory() as name:
    fingerprints(pathlib.Path(name, "root"))
    conditions(pathlib.Path(name, "root"))
    revisions(pathlib.Path(name))
    bad_records(pathlib.Path(name))
    comparisons(pathlib.Path(name))
seeds()
references()
print("records: all right")
