"""PyTorch's fused attention on the shapes of gpu_kernels: the peer of device/cuda/attention.hpp. One line of JSON a measurement.

    python3 benchmarks/gpu/torch_attention.py [--repeats 20]

torch.nn.functional.scaled_dot_product_attention, 12 heads of 64, 65,536 positions in all; backward alone, as gpu_kernels has it. Needs torch.
"""

import argparse
import json
import statistics
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--repeats", type=int, default=20)
options = parser.parse_args()

try:
    import torch
except ImportError as error:
    sys.exit(f"torch_attention.py: {error}: install torch for this python3 ({sys.executable})")
if not torch.cuda.is_available():
    sys.exit("torch_attention.py: PyTorch sees no GPU")

torch.backends.cuda.matmul.allow_tf32 = False


def seconds_of(work):
    for _ in range(3):
        work()
    times = []
    for _ in range(options.repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


for dtype, name in ((torch.float32, "float"), (torch.bfloat16, "bf16")):
    for causal in (False, True):
        for length in (256, 1024, 4096):
            shape = (65536 // length, 12, length, 64)
            q, k, v = (torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
            dy = torch.randn(shape, device="cuda", dtype=dtype)

            def forward():
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

            y = forward()
            kernel = f"{'causal ' if causal else ''}attention of {length}"
            with torch.no_grad():
                print(json.dumps({"torch": torch.__version__, "kernel": f"{kernel} forward, {name}", "seconds": seconds_of(forward)}))
            backward = seconds_of(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
            print(json.dumps({"torch": torch.__version__, "kernel": f"{kernel} backward, {name}", "seconds": backward}), flush=True)
