#!/usr/bin/env python3
"""A workload of Cairn's trained with PyTorch on this machine's cores, on one generated batch, as fast as PyTorch can.

    benchmarks/peers/torch_newest.py --workload resnet18-cifar [--mode channels_last] [--precision bf16] [--threads 2] [--steps 10]

Modes: eager; channels_last, of weights and inputs with two or three spatial dimensions; compile, by torch.compile, on channels_last where there is
such a layout. bf16 is torch.autocast: weights and optimizer stay float32. With --ranks, DistributedDataParallel over Gloo: --batch is that of all
ranks, --comm-hook bf16 sends gradients as bfloat16. Optimizers are PyTorch's fused ones. The last line of the output is one JSON object.
benchmarks/compare_peers --pytorch runs this next to Cairn's `train`. Needs torch (pip install torch).
"""

import argparse
import json
import math
import pathlib
import sys

import torch_ranks

MODES = ("eager", "channels_last", "compile")
WARM_UP = {"eager": 3, "channels_last": 3, "compile": 8}  # steps; what is compiled is compiled in the first two


def distributed(network, options):
    """The network as DistributedDataParallel, which starts all ranks with the weights of rank 0."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
    from torch.nn.parallel import DistributedDataParallel

    # Each rank keeps its own running statistics, as in Cairn; gradients live in the buckets.
    parallel = DistributedDataParallel(network, broadcast_buffers=False, gradient_as_bucket_view=True, static_graph=True)
    if options.comm_hook == "bf16":
        parallel.register_comm_hook(None, bf16_compress_hook)
    return parallel


def largest_difference(parameters):
    """Between those of this rank and rank 0's. Collective."""
    import torch
    import torch.distributed as dist

    largest = 0.0
    for p in parameters:
        first = p.detach().clone()
        dist.broadcast(first, 0)
        largest = max(largest, float(torch.max(torch.abs(first - p.detach()))))
    return largest


def train(rank, options):
    import torch
    from torch_models import Workload

    baseline = torch_ranks.peak_bytes()  # the libraries themselves
    w = Workload(options.workload)
    batch = options.batch or w.batch
    if batch % options.ranks:
        raise ValueError(f"--batch {batch} is no multiple of the {options.ranks} ranks")
    torch.manual_seed(1 + rank)
    network = w.make().train()
    parameters = list(network.parameters())
    x, wanted = w.random_batch(batch // options.ranks)
    if options.mode != "eager" and w.channels_last():
        network, x = network.to(memory_format=w.channels_last()), x.contiguous(memory_format=w.channels_last())
    elif options.mode == "channels_last":
        raise ValueError(f"{w.name} has no channels to be last")
    if options.ranks > 1:
        network = distributed(network, options)
    optimizer = w.optimizer_of(parameters)

    def forward(x, wanted):
        return w.loss_of(network(x), wanted)

    if options.mode == "compile":
        forward = torch.compile(forward, fullgraph=True, dynamic=False)  # a graph that breaks is an error
    losses = []

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = forward(x, wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())

    warm_up = WARM_UP[options.mode] if options.warmup is None else options.warmup
    own = {"seconds": torch_ranks.timed(step, warm_up, options.steps), "peak_bytes": torch_ranks.peak_bytes(),
           "difference": largest_difference(parameters) if options.ranks > 1 else 0.0}
    of_ranks = [own]
    if options.ranks > 1:
        of_ranks = [None] * options.ranks
        torch.distributed.all_gather_object(of_ranks, own)
    if not all(map(math.isfinite, losses)):
        raise RuntimeError(f"the losses are not finite: {losses[0]} ... {losses[-1]}")
    difference = max(one["difference"] for one in of_ranks)
    if difference:
        raise RuntimeError(f"the parameters of the ranks differ by {difference}")
    if rank == 0:
        print(json.dumps({"workload": w.name, "samples_per_s": batch / max(one["seconds"] for one in of_ranks), "peak_bytes": own["peak_bytes"],
                          "peak_bytes_of_ranks": [one["peak_bytes"] for one in of_ranks], "baseline_bytes": baseline, "mode": options.mode,
                          "precision": options.precision, "comm_hook": options.comm_hook, "threads": torch.get_num_threads(), "batch": batch,
                          "ranks": options.ranks, "steps": options.steps, "parameters": sum(p.numel() for p in parameters),
                          "allocator": options.allocator, "losses": [losses[0], losses[-1]], "torch": torch.__version__}))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", required=True, help="a file, or the name of one of benchmarks/workloads")
    parser.add_argument("--mode", choices=MODES, default="eager")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--batch", type=int, help="samples a step (default: the workload's)")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--comm-hook", choices=("none", "bf16"), default="none", help="of DistributedDataParallel")
    parser.add_argument("--threads", type=int, default=2, help="of each rank (default 2)")
    parser.add_argument("--steps", type=int, default=10, help="measured steps (default 10)")
    parser.add_argument("--warmup", type=int, help="steps before them (default 3; 8 of what is compiled)")
    parser.add_argument("--allocator", choices=("best", "system"), default="best", help="jemalloc or glibc tuned, or glibc as it is")
    options = parser.parse_args()
    if min(options.ranks, options.threads, options.steps) < 1 or (options.batch or 1) < 1 or (options.warmup or 0) < 0:
        parser.error("--batch, --ranks, --threads and --steps are at least 1, --warmup 0")
    if options.ranks == 1 and options.comm_hook != "none":
        parser.error("--comm-hook is for several ranks")
    if options.ranks > 1 and options.mode == "compile":
        parser.error("--mode compile is for one rank")
    named = pathlib.Path(__file__).resolve().parent.parent / "workloads" / f"{options.workload}.toml"
    options.workload = named if named.exists() else pathlib.Path(options.workload)
    return options


def main():
    options = parse_options()
    torch_ranks.restart_tuned(options.threads, options.allocator == "best")
    try:
        import torch
    except ImportError as error:
        return f"torch_newest.py: {error}: install torch for this python3 ({sys.executable})"
    if options.ranks > 1:
        return torch_ranks.run_ranks(options.ranks, options.threads, lambda rank: train(rank, options))
    torch.set_num_threads(options.threads)
    try:
        train(0, options)
    except Exception as error:
        sys.stdout.flush()
        reason = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"torch_newest.py: {options.mode}, {options.precision}: {type(error).__name__}: {reason[0] if reason else 'no reason given'}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
