#!/usr/bin/env python3
"""A transformer trained by torch.distributed.pipelining on this machine's cores, one process a rank, joined by Gloo.

    benchmarks/peers/torch_pipeline.py [--schedule 1f1b] [--ranks 2] [--micro-batches 8] [--threads 1] [--steps 20]

The network, batch and optimizer are those of the workload file; float32, random bytes, the batch of every step the same. The last line of the
output is one JSON object. benchmarks/compare_pipelines runs this next to Cairn's `train`. Needs torch (pip install torch).
"""

import argparse
import inspect
import json
import math
import pathlib
import sys

import torch_ranks

# Name: PyTorch's, stages a rank, and whether these lie as a V (the first and the last on rank 0).
SCHEDULES = {
    "gpipe": ("GPipe", 1, False),
    "looped_bfs": ("LoopedBFS", 2, False),
    "1f1b": ("1F1B", 1, False),
    "zb_h1": ("InterleavedZeroBubble", 1, False),
    "interleaved_1f1b": ("Interleaved1F1B", 2, False),
    "interleaved_zero_bubble": ("InterleavedZeroBubble", 2, False),
    "zbv_zero_bubble": ("ZBVZeroBubble", 2, True),
    "dualpipe_v": ("DualPipeV", 2, True),
}


def train(rank, options):
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
    from torch_transformer import Workload, loss_of, optimizer_of, stage_of

    w = Workload(options.workload)
    name, per_rank, v_shaped = SCHEDULES[options.schedule]
    stages = per_rank * options.ranks
    mine = [rank, stages - 1 - rank] if v_shaped else list(range(rank, stages, options.ranks))
    modules = [stage_of(w, s, stages) for s in mine]
    parts = [PipelineStage(module, s, stages, torch.device("cpu")) for s, module in zip(mine, modules)]
    make = get_schedule_class(name)
    schedule = make(parts if issubclass(make, PipelineScheduleMulti) else parts[0], options.micro_batches, loss_fn=loss_of)
    # The outputs of the whole batch are for those who evaluate.
    extra = {"return_outputs": False} if "return_outputs" in inspect.signature(schedule.step).parameters else {}
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = optimizer_of(w, parameters)
    text, wanted = w.random_batch()
    arguments, is_last = (text,) if 0 in mine else (), stages - 1 in mine
    losses_of_steps = []

    def step():
        losses = []
        schedule.step(*arguments, **({"target": wanted, "losses": losses} if is_last else {}), **extra)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if is_last:
            losses_of_steps.append(torch.stack(losses).detach().mean())

    seconds = torch_ranks.timed(step, 3, options.steps)
    own = {"peak_bytes": torch_ranks.peak_bytes(), "parameters": sum(p.numel() for p in parameters),
           "losses": [float(loss) for loss in losses_of_steps]}
    of_ranks = [None] * options.ranks
    dist.all_gather_object(of_ranks, own)
    losses = [loss for one in of_ranks for loss in one["losses"]]
    if not (all(map(math.isfinite, losses)) and losses[-1] < losses[0]):
        raise RuntimeError(f"losses {losses[0]} ... {losses[-1]}: it does not learn its one batch")
    if rank == 0:
        print(json.dumps({"schedule": options.schedule, "workload": w.name, "samples_per_s": w.batch / seconds, "peak_bytes": own["peak_bytes"],
                          "peak_bytes_of_ranks": [one["peak_bytes"] for one in of_ranks], "threads": torch.get_num_threads(), "batch": w.batch,
                          "micro_batches": options.micro_batches, "ranks": options.ranks, "stages": stages, "steps": options.steps,
                          "parameters": sum(one["parameters"] for one in of_ranks), "losses": [losses[0], losses[-1]],
                          "torch": torch.__version__}))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--workload", type=pathlib.Path, default=here.parent / "workloads" / "transformer-text.toml")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="of each rank (default 1)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps (default 20)")
    options = parser.parse_args()
    if min(options.ranks, options.micro_batches, options.threads, options.steps) < 1:
        parser.error("--ranks, --micro-batches, --threads and --steps are at least 1")
    return options


if __name__ == "__main__":
    chosen = parse_options()
    torch_ranks.restart_tuned(chosen.threads)
    try:
        import torch  # noqa: F401: so that its absence is told once, not by every rank
    except ImportError as error:
        sys.exit(f"torch_pipeline.py: {error}: install torch for this python3 ({sys.executable})")
    sys.exit(torch_ranks.run_ranks(chosen.ranks, chosen.threads, lambda rank: train(rank, chosen)))
