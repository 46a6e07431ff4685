"""PyTorch's networks of a workload file, layer for layer what Cairn builds, with batch, loss and optimizer.

Residual networks, CosmoFlow and LeNet (include/cairn/models); transformers are in torch_transformer.py and torch_transformer_xl.py. What may work in place does, as in
torchvision's networks: a ReLU's and a sum's output is all that their backward needs.
"""

import tomllib

import torch
from torch import nn
from torch.nn import functional

import torch_transformer
import torch_transformer_xl

TRANSFORMERS = "transformer", "transformer-xl"


def conv(into, out, kernel, stride=1):
    return nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False)


class Residual(nn.Module):
    """relu(branch(x) + x'), where x' is x, or bn(conv1x1(x)) where the shape changes (option B)."""

    def __init__(self, into, out, stride, *branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)
        same = into == out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(conv(into, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        return self.branch(x).add_(self.shortcut(x)).relu_()


def basic_block(into, width, stride):
    return Residual(into, width, stride, conv(into, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                    conv(width, width, 3), nn.BatchNorm2d(width))


def bottleneck(into, width, stride):
    """The 3x3 convolution holds the stride, as torchvision does."""
    return Residual(into, 4 * width, stride, conv(into, width, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                    conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                    conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width))


def resnet(depth, form, classes):
    """The stem of CIFAR is 3x3 at full resolution without pooling; every stage but the first halves the resolution."""
    blocks, block, expansion = {18: ((2, 2, 2, 2), basic_block, 1), 50: ((3, 4, 6, 3), bottleneck, 4)}[depth]
    layers = [conv(3, 64, 3) if form == "cifar" else conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    if form == "imagenet":
        layers.append(nn.MaxPool2d(3, 2, 1))
    into = 64
    for stage, number in enumerate(blocks):
        for i in range(number):
            layers.append(block(into, 64 << stage, 2 if stage > 0 and i == 0 else 1))
            into = expansion * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, classes))


def cosmoflow(size, channels, filters, dropout):
    """Leaky ReLU comes after the pooling, on an eighth of the values: the same function."""
    layers, into = [], channels
    for out in (filters << stage for stage in range(5)):
        layers += [nn.Conv3d(into, out, 3, padding=1), nn.MaxPool3d(2), nn.LeakyReLU(0.3, inplace=True)]
        into = out
    layers += [nn.Flatten(), nn.Linear(into * (size // 32) ** 3, 128), nn.LeakyReLU(0.3, inplace=True), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(128, 64), nn.LeakyReLU(0.3, inplace=True), nn.Dropout(dropout), nn.Linear(64, 3))


def lenet():
    relu = nn.ReLU(inplace=True)
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), relu, nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), relu, nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), relu, nn.Linear(120, 84), relu, nn.Linear(84, 10))


class Workload:
    """Network, generated batch, loss and optimizer of a workload file."""

    def __init__(self, path):
        with open(path, "rb") as file:
            settings = tomllib.load(file)
        data, model, loss, self.optimizer = (settings[section] for section in ("data", "model", "loss", "optimizer"))
        data = data.get(data["format"], {})
        self.name, self.batch, self.kind = settings["name"], settings["train"]["batch"], model["kind"]
        self.smoothing = loss.get("label_smoothing", 0.0)
        self.classes = data.get("classes", 10)
        if self.kind == "resnet":
            self.sample = (3, 32, 32) if model["form"] == "cifar" else (3, data["size"], data["size"])
            self.make = lambda: resnet(model["depth"], model["form"], self.classes)
        elif self.kind == "cosmoflow":
            self.sample = (data["channels"],) + 3 * (data["size"],)
            self.make = lambda: cosmoflow(data["size"], data["channels"], model["filters"], model["dropout"])
        elif self.kind == "lenet":
            self.sample, self.make = (1, 28, 28), lenet
        elif self.kind == "transformer":
            self.transformer = torch_transformer.Workload(path)
            self.sample, self.make = (), lambda: torch_transformer.stage_of(self.transformer, 0, 1)
        elif self.kind == "transformer-xl":
            self.transformer = torch_transformer_xl.Workload(path)
            self.sample, self.make = (), lambda: torch_transformer_xl.network_of(self.transformer)
        else:
            raise ValueError(f"{path}: model {self.kind}; the peers have resnet, cosmoflow, lenet, transformer and transformer-xl")
        expected = {"cosmoflow": "mse"}.get(self.kind, "cross_entropy"), "adamw" if self.kind in TRANSFORMERS else "sgd"
        if (loss["kind"], self.optimizer["kind"]) != expected:
            raise ValueError(f"{path}: {loss['kind']} with {self.optimizer['kind']}; the peer of {self.kind} has {' with '.join(expected)}")

    def channels_last(self):
        """The layout of the activations of this name; none where they are matrices."""
        return {3: torch.channels_last, 4: torch.channels_last_3d}.get(len(self.sample))

    def random_batch(self, n):
        """Inputs uniform in [0, 1), as of train --throughput, and targets."""
        if self.kind in TRANSFORMERS:
            self.transformer.batch = n
            return self.transformer.random_batch()
        x = torch.rand(n, *self.sample)
        return x, torch.randn(n, 3) if self.kind == "cosmoflow" else torch.randint(self.classes, (n,))

    def loss_of(self, output, wanted):
        if self.kind in TRANSFORMERS:
            return torch_transformer.loss_of(output, wanted)
        if self.kind == "cosmoflow":
            return functional.mse_loss(output.float(), wanted)
        return functional.cross_entropy(output, wanted, label_smoothing=self.smoothing)

    def optimizer_of(self, parameters):
        """The fused one. Weights decay; biases and scales do not. A small rate for SGD: random targets are not to be learnt, nothing may overflow."""
        parameters = list(parameters)
        if self.kind in TRANSFORMERS:
            return torch_transformer.optimizer_of(self.transformer, parameters)
        decay = self.optimizer.get("weight_decay", 0.0)
        groups = [{"params": [p for p in parameters if (p.dim() > 1) == decays], "weight_decay": decay if decays else 0.0} for decays in (True, False)]
        return torch.optim.SGD(groups, lr=1e-3, momentum=self.optimizer["momentum"], nesterov=self.optimizer.get("nesterov", False), fused=True)
