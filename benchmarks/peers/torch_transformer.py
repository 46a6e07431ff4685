"""PyTorch's network of models/transformer.hpp, with the sizes of a workload file, and its optimizer."""

import tomllib

import torch
from torch import nn
from torch.nn import functional

VOCABULARY = 256  # bytes


class Workload:
    """What the peers read of benchmarks/workloads/transformer-text.toml."""

    kind = "transformer"

    def __init__(self, path):
        with open(path, "rb") as file:
            settings = tomllib.load(file)
        model, optimizer = settings["model"], settings["optimizer"]
        if (model["kind"], optimizer["kind"]) != (self.kind, "adamw"):
            raise ValueError(f"{path}: model {model['kind']} with {optimizer['kind']}; this peer has {self.kind} with adamw")
        self.name, self.batch, self.length = settings["name"], settings["train"]["batch"], settings["data"]["text"]["length"]
        self.width, self.heads, self.blocks = model["embedding_dim"], model["heads"], model["blocks"]
        self.dropout, self.lr, self.weight_decay = model["dropout"], optimizer["lr"], optimizer["weight_decay"]

    def random_batch(self):
        """Bytes, and those that follow them: the same on every rank."""
        generator = torch.Generator().manual_seed(1)
        text = torch.randint(VOCABULARY, (self.batch, self.length + 1), generator=generator)
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Front(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, w.width)
        self.positions = nn.Parameter(0.02 * torch.randn(w.length, w.width))
        self.dropout = nn.Dropout(w.dropout)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, text):
        return self.dropout(self.tokens(text) + self.positions)


class Attention(nn.Module):
    """Rows of qkv lie head by head, so that a slice of them is whole heads."""

    def __init__(self, w):
        super().__init__()
        self.head_dim = w.width // w.heads
        self.qkv, self.out = nn.Linear(w.width, 3 * w.width), nn.Linear(w.width, w.width)

    def forward(self, x):
        qkv = self.qkv(x)
        q, k, v = qkv.unflatten(-1, (-1, 3, self.head_dim)).permute(3, 0, 2, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(w.width), nn.LayerNorm(w.width)
        self.attention = Attention(w)
        self.into, self.out = nn.Linear(w.width, 4 * w.width), nn.Linear(4 * w.width, w.width)
        self.dropout = nn.Dropout(w.dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.out(functional.gelu(self.into(self.mlp_norm(x)))))


class Back(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(w.width), nn.Linear(w.width, VOCABULARY, bias=False)

    def forward(self, x):
        return self.head(self.norm(x))


def stage_of(w, stage, stages):
    """A part of the network with its share of the blocks; drawn by (seed, stage)."""
    torch.manual_seed(1 + stage)
    parts = [Block(w) for _ in range(stage * w.blocks // stages, (stage + 1) * w.blocks // stages)]
    if stage == 0:
        parts.insert(0, Front(w))
    if stage == stages - 1:
        parts.append(Back(w))
    return nn.Sequential(*parts).train()


def loss_of(logits, wanted):
    return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def optimizer_of(w, parameters):
    """Weights decay; biases and scales do not. Parameters of one kind (plain, DTensor) a group: fused kernels take no mixture."""
    groups = {}
    for p in parameters:
        groups.setdefault((type(p.data), p.dim() > 1), []).append(p)
    return torch.optim.AdamW([{"params": group, "weight_decay": w.weight_decay if decays else 0} for (_, decays), group in groups.items()],
                             lr=w.lr, fused=True)
