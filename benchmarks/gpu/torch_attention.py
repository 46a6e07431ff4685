"""PyTorch's fused attention on the shapes of gpu_kernels: the peer of device/grid/attention.hpp. One line of JSON a measurement.

    python3 benchmarks/gpu/torch_attention.py [--rounds 15]

torch.nn.functional.scaled_dot_product_attention, 12 heads of 64, 65,536 positions in all; backward alone, as gpu_kernels has it. Each of its fused
implementations (flash, efficient, cuDNN's) that takes the shape is measured, as gpu_kernels measures: the median of rounds of at least 5 ms, launched
without waiting. A line has the quickest one and the times of all. Needs torch. --device cpu with --positions 512 only tries the script.
"""

import argparse
import json
import statistics
import sys
import time
import warnings

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--rounds", type=int, default=15)
parser.add_argument("--positions", type=int, default=65536)
parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024, 4096])
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
options = parser.parse_args()
if min(options.rounds, options.positions, *options.lengths) < 1 or any(options.positions % length for length in options.lengths):
    parser.error("--rounds is at least 1, --positions a multiple of each of --lengths")

try:
    import torch
except ImportError as error:
    sys.exit(f"torch_attention.py: {error}: install torch for this python3 ({sys.executable})")
from torch.nn.attention import SDPBackend, sdpa_kernel

on_gpu = options.device == "cuda"
if on_gpu and not torch.cuda.is_available():
    sys.exit("torch_attention.py: PyTorch sees no GPU (no NVIDIA driver, one too old for this PyTorch, or CUDA_VISIBLE_DEVICES)")
torch.set_float32_matmul_precision("highest")
warnings.filterwarnings("ignore")  # of implementations that do not take a shape


def timed(work, repeats):
    if not on_gpu:
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        return (time.perf_counter() - start) / repeats
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def seconds_of(work):  # as gpu_benchmark::seconds_of
    timed(work, 3)
    repeats = min(max(int(5e-3 / max(timed(work, 1), 1e-7)), 1), 1000)
    return statistics.median(timed(work, repeats) for _ in range(options.rounds))


def measured(shape, dtype, causal):
    """Of each implementation that takes the shape: seconds forward and backward."""
    q, k, v = (torch.randn(shape, device=options.device, dtype=dtype, requires_grad=True) for _ in range(3))
    dy = torch.randn(shape, device=options.device, dtype=dtype)

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    found = {"forward": {}, "backward": {}}
    for how in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        name = how.name.removesuffix("_ATTENTION").lower()
        try:
            with sdpa_kernel(how):
                with torch.no_grad():
                    forwards = seconds_of(forward)
                y = forward()
                backwards = seconds_of(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
        except RuntimeError as error:  # not of this type, or not on this GPU
            print(f"{name}, {tuple(shape)}, {dtype}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        found["forward"][name], found["backward"][name] = forwards, backwards
    return found


for dtype, name in ((torch.float32, "float"), (torch.bfloat16, "bf16")):
    for causal in (False, True):
        for length in options.lengths:
            for direction, times in measured((options.positions // length, 12, length, 64), dtype, causal).items():
                kernel = f"{'causal ' if causal else ''}attention of {length} {direction}, {name}"
                if not times:
                    sys.exit(f"torch_attention.py: no implementation takes {kernel}")
                best = min(times, key=times.get)
                print(json.dumps({"torch": torch.__version__, "kernel": kernel, "implementation": best, "seconds": times[best], "all": times}), flush=True)
