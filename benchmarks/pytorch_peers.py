"""compare_peers --pytorch: Cairn in float32 and bf16 beside PyTorch, each workload in turn with every configuration of PyTorch's."""

import shlex
import statistics
import sys
import time
from dataclasses import dataclass

from measured_runs import ROOT, Failure, print_spread, require_same, run_peer, spread

PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True)
class Workload:
    file: str  # benchmarks/workloads/FILE.toml
    steps: int  # measured steps of one run, so that a run takes seconds, not minutes
    modes: tuple = ("eager", "channels_last", "compile")  # torch_newest.py --mode
    ranks: int = 1  # of one thread each, where there are several

    @property
    def name(self):
        return self.file if self.ranks == 1 else f"{self.file}, {self.ranks} ranks"


WORKLOADS = [
    Workload("resnet18-cifar", 5),
    Workload("resnet50-imagenet", 4),
    Workload("transformer-text", 20, ("eager", "compile")),  # only matrices: there is no layout to choose
    Workload("transformer-xl-text", 10, ("eager", "compile")),
    Workload("cosmoflow", 10),
    Workload("lenet-mnist", 100),
    Workload("resnet18-cifar", 5, ("eager", "channels_last"), ranks=2),
]


def commands_of_ours(workload, options, train):
    """By precision."""
    launch = [] if workload.ranks == 1 else shlex.split(options.mpirun) + ["-np", workload.ranks]
    command = launch + [train, f"benchmarks/workloads/{workload.file}.toml", "--throughput", "--threads", threads_of(workload, options)]
    command += ["--steps", options.steps or workload.steps]
    return {precision: command + ["--set", f"train.precision={precision}"] for precision in options.precision}


def commands_of_torch(workload, options, python):
    """By name of the configuration; the steps, batch and allocator are to be added."""
    command = [python, ROOT / "benchmarks" / "peers" / "torch_newest.py", "--workload", workload.file, "--threads", threads_of(workload, options)]
    by_name = {}
    for mode in workload.modes:
        for precision in PRECISIONS:
            one = command + ["--mode", mode, "--precision", precision]
            by_name[f"{mode} {precision}"] = one
            if workload.ranks > 1:
                by_name[f"{mode} {precision}"] = one = one + ["--ranks", workload.ranks]
                if precision == "bf16":
                    by_name[f"{mode} {precision}+hook"] = one + ["--comm-hook", "bf16"]
    return by_name


def threads_of(workload, options):
    return options.threads if workload.ranks == 1 else 1


class Samples:
    """Runs of ours by precision and of PyTorch by configuration, and why those that did not run were left out."""

    def __init__(self, ours, peers):
        self.ours = {name: [] for name in ours}
        self.peers = {name: [] for name in peers}
        self.system = {}  # configuration -> one run with the system's allocator, for its memory
        self.left_out = {}

    def leave_out(self, name, failure):
        self.left_out[name] = str(failure).splitlines()[-1].strip()
        del self.peers[name]
        print(f"  left out: PyTorch's {name}: {failure}", file=sys.stderr, flush=True)
        if not self.peers:
            raise Failure("none of PyTorch's configurations ran")


def measure(workload, options, train, python, deadline):
    """Interleaved runs: ours, each configuration of PyTorch's, ours, ... Stops early, after whole pairs, at the deadline."""
    ours, torch = commands_of_ours(workload, options, train), commands_of_torch(workload, options, python)
    samples = Samples(ours, torch)
    expected = {"ranks": workload.ranks, "threads": threads_of(workload, options)}
    steps, slowest = options.steps or workload.steps, 0.0

    def checked(command, program):
        result = run_peer(command, options.timeout)
        for key, value in expected.items():
            require_same(result, key, value, program)
        return result

    for pair in range(options.pairs):
        if pair > 0 and time.monotonic() + slowest > deadline:
            print(f"  the time budget ends after {pair} of {options.pairs} pairs", file=sys.stderr)
            break
        begin = time.monotonic()
        for precision, command in ours.items():
            result = checked(command, "train")
            expected |= {key: result[key] for key in ("batch", "parameters")}
            samples.ours[precision].append(result)
        for name in list(samples.peers):
            command = torch[name] + ["--batch", expected["batch"]]
            try:
                result = run_peer(command + ["--steps", steps, "--allocator", options.peer_allocator], options.timeout)
                if pair == 0:
                    samples.system[name] = run_peer(command + ["--steps", 1, "--allocator", "system"], options.timeout)
            except Failure as failure:
                samples.leave_out(name, failure)
                continue
            for key, value in expected.items():
                require_same(result, key, value, "torch_newest.py")
            samples.peers[name].append(result)
        slowest = max(slowest, time.monotonic() - begin)
        if not options.quiet:
            speeds = [f"ours {name} {runs[-1]['samples_per_s']:.4g}" for name, runs in samples.ours.items()]
            speeds += [f"{name} {runs[-1]['samples_per_s']:.4g}" for name, runs in samples.peers.items()]
            print(f"  {workload.name} pair {pair + 1}: {'; '.join(speeds)}", file=sys.stderr, flush=True)
    return samples


def summarise(workload, samples):
    speed = {name: [run["samples_per_s"] for run in runs] for name, runs in samples.peers.items()}
    best = max(speed, key=lambda name: statistics.median(speed[name]))
    memory = {name: statistics.median(run["peak_bytes"] for run in runs) for name, runs in samples.peers.items()}
    memory |= {f"{name}, system allocator": run["peak_bytes"] for name, run in samples.system.items() if name in speed}
    thrifty = min(memory, key=memory.get)
    ours = {name: [run["samples_per_s"] for run in runs] for name, runs in samples.ours.items()}
    ours_memory = {name: statistics.median(run["peak_bytes"] for run in runs) for name, runs in samples.ours.items()}
    saved = {name: statistics.median(run["memory"].get("saved", 0) for run in runs) for name, runs in samples.ours.items()}
    one = samples.peers[best][0]
    return {
        "workload": workload.name,
        **{key: one[key] for key in ("batch", "ranks", "threads", "parameters", "torch")},
        "pairs": len(speed[best]),
        "ours_samples_per_s": {name: spread(values) for name, values in ours.items()},
        "torch_samples_per_s": {name: spread(values) for name, values in speed.items()},
        "best_of_torch": best,
        "speed_ratio": {name: spread([a / b for a, b in zip(values, speed[best])]) for name, values in ours.items()},
        "ours_peak_bytes": ours_memory,
        "torch_peak_bytes": memory,
        "memory_ratio": {name: peak / memory[thrifty] for name, peak in ours_memory.items()},
        "memory_ratio_against": thrifty,
        "torch_baseline_bytes": one["baseline_bytes"],  # its libraries alone
        "ours_saved_bytes": saved,  # for backward, without the batch
        "saved_bytes_ratio": saved["bf16"] / saved["float32"] if len(saved) == 2 and saved["float32"] else None,
        "left_out": samples.left_out,
    }


def print_summary(row):
    each = " a rank" if row["ranks"] > 1 else ""
    print(f"{row['workload']}: batch {row['batch']}, {row['threads']} threads{each}, {row['parameters']} parameters, PyTorch {row['torch']}, "
          f"{row['pairs']} pairs; medians (min - max); peak: resident{', of rank 0' if each else ''}\n")
    for name, values in row["ours_samples_per_s"].items():
        print_spread(f"ours {name} [samples/s]", values, f"   peak {row['ours_peak_bytes'][name] / 1e6:.0f} MB")
    for name, values in row["torch_samples_per_s"].items():
        print_spread(f"{name} [samples/s]", values, f"   peak {row['torch_peak_bytes'][name] / 1e6:.0f} MB")
    for name, values in row["speed_ratio"].items():
        print_spread(f"speed ratio {name}", values, f"   to PyTorch's best, {row['best_of_torch']}")
    for name, ratio in row["memory_ratio"].items():
        least = f"   to PyTorch's least, {row['torch_peak_bytes'][row['memory_ratio_against']] / 1e6:.0f} MB of {row['memory_ratio_against']}"
        print(f"{f'memory ratio {name}':36s} {ratio:9.2f}{least}")
    print(f"{'PyTorch, imported only':36s} {row['torch_baseline_bytes'] / 1e6:9.0f} MB")
    if row["saved_bytes_ratio"]:
        megabytes = {name: f"{saved / 1e6:.4g} MB" for name, saved in row["ours_saved_bytes"].items()}
        print(f"{'saved for backward, bf16 / float32':36s} {row['saved_bytes_ratio']:9.3f}   {megabytes['bf16']} / {megabytes['float32']}")
    for name, why in row["left_out"].items():
        print(f"left out: PyTorch's {name}: {why}")
    print(flush=True)
