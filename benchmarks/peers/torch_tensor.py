#!/usr/bin/env python3
"""A transformer trained with PyTorch's tensor parallelism (DTensor) on this machine's cores, one process a rank, joined by Gloo.

    benchmarks/peers/torch_tensor.py [--ranks 2] [--threads 1] [--steps 20]

Megatron's plan by torch.distributed.tensor.parallel.parallelize_module: qkv and the first map of the MLP by columns, their successors by rows, heads
whole, tokens by rows of the vocabulary, the head by columns with its cross-entropy on slices (loss_parallel). The network, batch and optimizer are
those of the workload file; float32, random bytes, the batch of every step the same. The last line of the output is one JSON object. Needs torch.
"""

import argparse
import json
import math
import pathlib
import sys

import torch_ranks


def train(rank, options):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
    from torch_transformer import Back, Block, Front, Workload, loss_of, optimizer_of, stage_of

    w = Workload(options.workload)
    if w.heads % options.ranks:
        raise ValueError(f"{w.heads} heads on {options.ranks} ranks: PyTorch needs a multiple")
    mesh = init_device_mesh("cpu", (options.ranks,))
    network = stage_of(w, 0, 1)
    plans = {
        Front: {"tokens": RowwiseParallel(input_layouts=Replicate())},
        Block: {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel(), "into": ColwiseParallel(), "out": RowwiseParallel()},
        Back: {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)},
    }
    for part in network:
        parallelize_module(part, mesh, plans[type(part)])
    parameters = list(network.parameters())
    optimizer = optimizer_of(w, parameters)
    text, wanted = w.random_batch()
    losses = []

    def step():
        with loss_parallel():
            loss = loss_of(network(text), wanted)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = loss.detach()
        losses.append(float(loss.full_tensor() if isinstance(loss, DTensor) else loss))

    seconds = torch_ranks.timed(step, 3, options.steps)
    if not (all(map(math.isfinite, losses)) and losses[-1] < losses[0]):
        raise RuntimeError(f"losses {losses[0]} ... {losses[-1]}: it does not learn its one batch")
    peaks = [None] * options.ranks
    dist.all_gather_object(peaks, torch_ranks.peak_bytes())
    if rank == 0:
        print(json.dumps({"schedule": "tensor", "workload": w.name, "samples_per_s": w.batch / seconds, "peak_bytes": peaks[0],
                          "peak_bytes_of_ranks": peaks, "threads": torch.get_num_threads(), "batch": w.batch, "ranks": options.ranks,
                          "steps": options.steps, "parameters": sum(p.numel() for p in parameters), "losses": [losses[0], losses[-1]],
                          "torch": torch.__version__}))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--workload", type=pathlib.Path, default=here.parent / "workloads" / "transformer-text.toml")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank (default 1)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps (default 20)")
    options = parser.parse_args()
    if min(options.ranks, options.threads, options.steps) < 1:
        parser.error("--ranks, --threads and --steps are at least 1")
    return options


if __name__ == "__main__":
    chosen = parse_options()
    torch_ranks.restart_tuned(chosen.threads)
    try:
        import torch  # noqa: F401: so that its absence is told once, not by every rank
    except ImportError as error:
        sys.exit(f"torch_tensor.py: {error}: install torch for this python3 ({sys.executable})")
    sys.exit(torch_ranks.run_ranks(chosen.ranks, chosen.threads, lambda rank: train(rank, chosen)))
