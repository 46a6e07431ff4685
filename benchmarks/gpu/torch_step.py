"""PyTorch's training step of the same network: the peer of gpu_step.cu. Prints one line of JSON.

    python3 benchmarks/gpu/torch_step.py resnet18|resnet50|cosmoflow 256 tf32|exact|amp|fp16 [--compile] [--steps 15]

amp: autocast in bfloat16; fp16: in float16, with GradScaler. Channels last, SGD with momentum 0.9 and weight decay 1e-4, random images (cosmoflow: volumes of
128³ with 4 channels) that lie on the GPU. Needs torch, and torchvision for its ResNets.
"""

import argparse
import json
import statistics
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("network", choices=["resnet18", "resnet50", "cosmoflow"])
parser.add_argument("batch", type=int)
parser.add_argument("products", choices=["exact", "tf32", "amp", "fp16"])
parser.add_argument("--compile", action="store_true")
parser.add_argument("--steps", type=int, default=15)
options = parser.parse_args()

try:
    import torch
except ImportError as error:
    sys.exit(f"torch_step.py: {error}: install torch and torchvision for this python3 ({sys.executable})")
if not torch.cuda.is_available():
    sys.exit("torch_step.py: PyTorch sees no GPU")

free_before = torch.cuda.mem_get_info()[0]
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.products != "exact"
torch.backends.cudnn.benchmark = True
torch.manual_seed(1)
if options.network == "cosmoflow":  # MLPerf HPC's, as cairn/models/cosmoflow.hpp
    parts, width = [], 4
    for filters in (16, 32, 64, 128, 256):
        parts += [torch.nn.Conv3d(width, filters, 3, padding=1), torch.nn.MaxPool3d(2), torch.nn.LeakyReLU(0.3, inplace=True)]
        width = filters
    parts.append(torch.nn.Flatten())
    width *= (128 // 32) ** 3
    for out in (128, 64):
        parts += [torch.nn.Linear(width, out), torch.nn.LeakyReLU(0.3, inplace=True), torch.nn.Dropout(0.5)]
        width = out
    model, shape, layout = torch.nn.Sequential(*parts, torch.nn.Linear(width, 3)), (4, 128, 128, 128), torch.channels_last_3d
    wanted, loss_of = torch.rand(options.batch, 3, device="cuda") - 0.5, torch.nn.functional.mse_loss
else:
    import torchvision

    model, shape, layout = getattr(torchvision.models, options.network)(), (3, 224, 224), torch.channels_last
    wanted, loss_of = torch.arange(options.batch, device="cuda") % 1000, torch.nn.functional.cross_entropy
model = model.cuda().to(memory_format=layout)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
images = (torch.rand(options.batch, *shape, device="cuda") - 0.5).contiguous(memory_format=layout)
network = torch.compile(model) if options.compile else model
scaler = torch.amp.GradScaler("cuda", enabled=options.products == "fp16")
short = torch.float16 if options.products == "fp16" else torch.bfloat16


def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", short, enabled=options.products in ("amp", "fp16")):
        loss = loss_of(network(images), wanted)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


for _ in range(5):
    loss = step()
times = []
for _ in range(options.steps):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    loss = step()
    end.record()
    end.synchronize()
    times.append(begin.elapsed_time(end) / 1e3)
seconds = statistics.median(times)
print(json.dumps({"network": options.network, "batch": options.batch, "products": options.products, "compiled": options.compile,
                  "torch": torch.__version__, "seconds_a_step": seconds, "images_per_s": options.batch / seconds,
                  "loss": float(loss), "loss_scale": scaler.get_scale() if scaler.is_enabled() else None,
                  "driver_megabytes": (free_before - torch.cuda.mem_get_info()[0]) / 1e6}))
