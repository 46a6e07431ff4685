"""PyTorch's network of models/transformer_xl.hpp, with the sizes of a workload file; the rest is torch_transformer.py's.

The attention is that of the paper's own code (github.com/kimiyoung/transformer-xl): two batched products, the relative shift by a view, softmax.
"""

import tomllib

import torch
from torch import nn

import torch_transformer
from torch_transformer import VOCABULARY, Back, optimizer_of  # noqa: F401


class Workload(torch_transformer.Workload):
    """What the peers read of benchmarks/workloads/transformer-xl-text.toml."""

    kind = "transformer-xl"

    def __init__(self, path):
        super().__init__(path)
        with open(path, "rb") as file:
            self.memory = tomllib.load(file)["model"]["memory_length"]


def encodings(n, width):
    """Of distances n - 1 to 0."""
    angles = torch.arange(n - 1, -1, -1.0)[:, None] * 10000 ** (-2 * torch.arange(width // 2) / width)
    return torch.cat((angles.sin(), angles.cos()), 1)


class Attention(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.heads, self.memory, self.scale = w.heads, w.memory, (w.width // w.heads) ** -0.5
        self.q, self.kv, self.r = (nn.Linear(w.width, n * w.width, bias=False) for n in (1, 2, 1))
        self.u, self.v = nn.Parameter(torch.zeros(w.width)), nn.Parameter(torch.zeros(w.width))
        self.out = nn.Linear(w.width, w.width)
        keys = w.memory + w.length
        self.register_buffer("distances", encodings(keys, w.width), persistent=False)
        self.register_buffer("hidden", torch.ones(w.length, keys, dtype=torch.bool).triu(1 + w.memory), persistent=False)
        self.register_buffer("remembered", torch.zeros(w.batch, w.memory, w.width), persistent=False)

    def split(self, x):
        """(batch, heads, positions, head_dim)"""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    @staticmethod
    def shifted(x):
        """Row i of x (batch, heads, L, K) moved by L - 1 - i places; what comes in from the next row lies behind the diagonal."""
        length, keys = x.shape[-2:]
        padded = torch.cat((x.new_zeros(*x.shape[:-1], 1), x), -1)
        return padded.flatten(-2)[..., length:].unflatten(-1, (length, keys))

    def forward(self, x):
        h = torch.cat((self.remembered.to(x.dtype), x), 1)
        q, (k, v), r = self.q(x), self.kv(h).chunk(2, -1), self.split(self.r(self.distances))
        scores = self.split(q + self.u) @ self.split(k).mT + self.shifted(self.split(q + self.v) @ r.mT)
        weights = (scores * self.scale).masked_fill(self.hidden, -torch.inf).softmax(-1).to(v.dtype)
        with torch.no_grad():
            self.remembered.copy_(h[:, h.shape[1] - self.memory:])
        return self.out((weights @ self.split(v)).transpose(1, 2).flatten(2))


class Block(torch_transformer.Block):
    def __init__(self, w):
        super().__init__(w)
        self.attention = Attention(w)


class Front(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.tokens, self.dropout = nn.Embedding(VOCABULARY, w.width), nn.Dropout(w.dropout)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, text):
        return self.dropout(self.tokens(text))


def network_of(w):
    torch.manual_seed(1)
    return nn.Sequential(Front(w), *(Block(w) for _ in range(w.blocks)), Back(w)).train()
