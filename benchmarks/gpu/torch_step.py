"""PyTorch's training step of the same network: the peer of gpu_step.cu. Prints one line of JSON.

    python3 benchmarks/gpu/torch_step.py resnet18|resnet50|cosmoflow|gpt 256 tf32|exact|amp|fp16 [--compile [MODE]] [--layout contiguous] [--steps 15]

PyTorch at its best: amp: autocast in bfloat16; fp16: in float16, with GradScaler. Channels last, every algorithm of cuDNN tried, fused SGD with
momentum 0.9 and weight decay 1e-4, no word to the host from step to step: the time of a step is that between two events, all of which are read
when the last step is done. Random images (cosmoflow: volumes of 128³ with 4 channels; gpt: texts of 512 tokens of 256) that lie on the GPU. Memory is the driver's figure after
the caches of the first steps are let go, and PyTorch's own peak. Needs torch alone: networks are spelled out here.
--device cpu with --size and few --steps only tries the script.
"""

import argparse
import json
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("network", choices=["resnet18", "resnet50", "cosmoflow", "gpt"])
parser.add_argument("batch", type=int)
parser.add_argument("products", choices=["exact", "tf32", "amp", "fp16"])
parser.add_argument("--compile", nargs="?", const="default", choices=["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
parser.add_argument("--layout", choices=["channels_last", "contiguous"], default="channels_last")
parser.add_argument("--steps", type=int, default=15)
parser.add_argument("--warm-up", type=int, default=10)
parser.add_argument("--size", type=int, help="of images (224), volumes (128) or texts (512)")
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
options = parser.parse_args()
if min(options.batch, options.steps, options.warm_up) < 1:
    parser.error("BATCH, --steps and --warm-up are at least 1")

try:
    import torch
except ImportError as error:
    sys.exit(f"torch_step.py: {error}: install torch for this python3 ({sys.executable})")
from torch import nn

on_gpu = options.device == "cuda"
if on_gpu and not torch.cuda.is_available():
    sys.exit("torch_step.py: PyTorch sees no GPU (no NVIDIA driver, one too old for this PyTorch, or CUDA_VISIBLE_DEVICES)")
free_before = torch.cuda.mem_get_info()[0] if on_gpu else 0
torch.set_float32_matmul_precision("highest" if options.products == "exact" else "high")  # high: TF32
torch.backends.cudnn.allow_tf32 = options.products != "exact"
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark_limit = 0  # all of its algorithms
torch.manual_seed(1)


def conv_bn(into, out, kernel, stride=1):
    return [nn.Conv2d(into, out, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(out)]


class Residual(nn.Module):
    """Of ResNet-18 (two 3x3) or 50 (1x1, 3x3, 1x1 to four times the width), as torchvision has them: the stride is the 3x3's."""

    def __init__(self, into, width, out, stride):
        super().__init__()
        relu = nn.ReLU(inplace=True)
        if out == width:
            self.body = nn.Sequential(*conv_bn(into, width, 3, stride), relu, *conv_bn(width, out, 3))
        else:
            self.body = nn.Sequential(*conv_bn(into, width, 1), relu, *conv_bn(width, width, 3, stride), relu, *conv_bn(width, out, 1))
        self.shortcut = nn.Sequential(*conv_bn(into, out, 1, stride)) if stride != 1 or into != out else nn.Identity()
        self.relu = relu

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


def resnet(blocks, growth):
    parts, into = [*conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(blocks):
        for block in range(count):
            width = 64 << stage
            parts.append(Residual(into, width, growth * width, 2 if stage and not block else 1))
            into = growth * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))


def cosmoflow(size):  # MLPerf HPC's, as cairn/models/cosmoflow.hpp
    parts, into = [], 4
    for filters in (16, 32, 64, 128, 256):
        parts += [nn.Conv3d(into, filters, 3, padding=1), nn.MaxPool3d(2), nn.LeakyReLU(0.3, inplace=True)]
        into = filters
    parts.append(nn.Flatten())
    into *= (size // 32) ** 3
    for out in (128, 64):
        parts += [nn.Linear(into, out), nn.LeakyReLU(0.3, inplace=True), nn.Dropout(0.5)]
        into = out
    return nn.Sequential(*parts, nn.Linear(into, 3))


class Block(nn.Module):
    """Of GPT-2, as cairn/models/transformer.hpp has it: normalisation in front."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """Tokens (batch, length) to logits (batch, tokens, length), as cross_entropy wants them."""

    def __init__(self, length, tokens=256, width=768, heads=12, blocks=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)), nn.LayerNorm(width), nn.Linear(width, tokens, bias=False))

    def forward(self, text):
        return self.blocks(self.tokens(text) + self.positions).transpose(1, 2)


if options.network == "gpt":
    size, layout = options.size or 512, torch.contiguous_format
    model, wanted, loss_of = Gpt(size), torch.randint(256, (options.batch, size), device=options.device), nn.functional.cross_entropy
elif options.network == "cosmoflow":
    size = options.size or 128
    model, shape, layout = cosmoflow(size), (4, size, size, size), torch.channels_last_3d
    wanted, loss_of = torch.rand(options.batch, 3, device=options.device) - 0.5, nn.functional.mse_loss
else:
    size = options.size or 224
    model, shape, layout = resnet(*{"resnet18": ((2, 2, 2, 2), 1), "resnet50": ((3, 4, 6, 3), 4)}[options.network]), (3, size, size), torch.channels_last
    wanted, loss_of = torch.arange(options.batch, device=options.device) % 1000, nn.functional.cross_entropy
if options.layout == "contiguous":
    layout = torch.contiguous_format
model = model.to(options.device).to(memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
inputs = torch.randint(256, (options.batch, size), device=options.device) if options.network == "gpt" else \
    (torch.rand(options.batch, *shape, device=options.device) - 0.5).contiguous(memory_format=layout)
network = torch.compile(model, mode=options.compile) if options.compile else model
scaler = torch.amp.GradScaler(options.device, enabled=options.products == "fp16")
short = torch.float16 if options.products == "fp16" else torch.bfloat16


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(options.device, short, enabled=options.products in ("amp", "fp16")):
        loss = loss_of(network(inputs), wanted)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def marked():
    """The time, on the GPU's own clock."""
    if not on_gpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


begin = time.perf_counter()
for _ in range(options.warm_up):
    loss = step()
if on_gpu:
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what trials of algorithms took
    torch.cuda.reset_peak_memory_stats()
for _ in range(3):
    loss = step()
float(loss)  # which waits
warm_up = time.perf_counter() - begin
marks = [marked()]
for _ in range(options.steps):
    loss = step()
    marks.append(marked())
if on_gpu:
    torch.cuda.synchronize()
times = [a.elapsed_time(b) / 1e3 if on_gpu else b - a for a, b in zip(marks, marks[1:])]
seconds = statistics.median(times)
print(json.dumps({"network": options.network, "batch": options.batch, "products": options.products, "compiled": options.compile, "layout": options.layout,
                  "device": options.device, "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                  "seconds_a_step": seconds, "samples_per_s": options.batch / seconds, "quickest": min(times), "slowest": max(times),
                  "seconds_of_warm_up": warm_up, "loss": float(loss), "loss_scale": scaler.get_scale() if scaler.is_enabled() else None,
                  "driver_megabytes": (free_before - torch.cuda.mem_get_info()[0]) / 1e6 if on_gpu else None,
                  "allocated_peak_megabytes": torch.cuda.max_memory_allocated() / 1e6 if on_gpu else None}))
