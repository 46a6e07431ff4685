#!/usr/bin/env python3
"""What saved states of ResNet-18 with Adam (134 MB) cost a training in PyTorch, and what a plain copy and a plain write of as many bytes take.

    benchmarks/peers/torch_states.py --folder DIR [--threads 2] [--batch 16] [--versions 5]
    benchmarks/peers/torch_states.py --folder DIR --flips 500

By torch.distributed.checkpoint's save, async_save, and async_save with a stager that keeps its room, and by torch.save with fsync, in turn, while the
network trains on a generated batch: seconds of the call (stall), of it and of what the steps until the state is on disk take longer than those after
(cost), and until it is on disk (durable). Copy: into memory that was touched before; write: O_DIRECT in blocks of 4 MiB, then fsync; nothing trains.
--flips: of so many single bits flipped in the files of save and torch.save, how many loads fail (found), and how many bring other numbers (wrong).
The last line of the output is one JSON object. benchmarks/compare_states runs this next to Cairn's `train`. Needs torch (pip install torch).
"""

import argparse
import json
import logging
import mmap
import os
import pathlib
import random
import shutil
import statistics
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch_models import Workload

ROOT = pathlib.Path(__file__).resolve().parents[2]
AFTER = 4  # steps without a state under way, from which the median step is taken


class Training:
    def __init__(self, batch):
        torch.manual_seed(1)
        w = Workload(ROOT / "benchmarks" / "workloads" / "resnet18-cifar.toml")
        self.network = w.make().train().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3, fused=True)
        x, self.wanted = w.random_batch(batch)
        self.x, self.loss_of = x.contiguous(memory_format=torch.channels_last), w.loss_of

    def step(self):
        begin = time.monotonic()
        self.optimizer.zero_grad()
        self.loss_of(self.network(self.x), self.wanted).backward()
        self.optimizer.step()
        return time.monotonic() - begin

    def state(self):
        return {"model": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}


class Done:
    """Of a save that has blocked."""

    def done(self):
        return True

    def result(self):
        return None


def torch_save(state, path):
    path.mkdir()
    with open(path / "state.pt", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return Done()


def dcp_save(state, path):
    dcp.save(state, checkpoint_id=path)
    return Done()


class Cached:
    stager = None

    def __call__(self, state, path):
        # Pinned memory, a thread for the copy and copies that do not block need a GPU.
        self.stager = self.stager or DefaultStager(StagingOptions(False, False, False, False))
        return dcp.async_save(state, checkpoint_id=path, async_stager=self.stager)


METHODS = {
    "save": dcp_save,
    "async_save": lambda state, path: dcp.async_save(state, checkpoint_id=path),
    "async_save, cached stager": Cached(),
    "torch.save": torch_save,
}


def measured(training, save, path):
    """Stall, cost and durable of one state."""
    begin = time.monotonic()
    future = save(training.state(), path)
    stall = time.monotonic() - begin
    durable, during = (stall if future.done() else None), []
    while durable is None or not during:
        during.append(training.step())
        if durable is None and future.done():
            durable = time.monotonic() - begin
    future.result()
    usual = statistics.median(training.step() for _ in range(AFTER))
    shutil.rmtree(path)
    return {"stall": stall, "cost": stall + sum(seconds - usual for seconds in during), "durable": durable}


def plain_copy(source, room):
    begin = time.monotonic()
    room.copy_(source)
    return time.monotonic() - begin


def plain_write(room, bytes_in_all, path):
    begin = time.monotonic()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    for at in range(0, bytes_in_all, 4 << 20):
        os.pwrite(file, room[at:min(at + (4 << 20), bytes_in_all)], at)
    os.fsync(file)
    os.close(file)
    seconds = time.monotonic() - begin
    path.unlink()
    return seconds


def compare(options):
    training = Training(options.batch)
    for _ in range(4):
        training.step()
    numbers = sum(p.numel() for p in training.network.parameters()) * 3 + sum(b.numel() for b in training.network.buffers())
    source, room = torch.ones(numbers), torch.zeros(numbers)
    blocks = -(-4 * numbers // 4096) * 4096
    image = memoryview(mmap.mmap(-1, blocks))
    image[:] = bytes(blocks)
    found = {name: [] for name in METHODS}
    copies, writes = [], []
    for version in range(options.versions + 1):  # the first warms up
        for name, save in METHODS.items():
            one = measured(training, save, options.folder / f"state-{version}")
            if version:
                found[name].append(one)
        copies.append(plain_copy(source, room))
        writes.append(plain_write(image, blocks, options.folder / "image"))
    return {"threads": torch.get_num_threads(), "bytes": 4 * numbers, "torch": torch.__version__, "methods": found, "copy": copies[1:], "write": writes[1:]}


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def flips(options):
    """Of a state of 134 MB: one bit anywhere, then loaded."""
    training = Training(options.batch)
    training.step()
    saved = training.state()

    def load_torch(path):
        return torch.load(path / "state.pt", weights_only=True)

    def load_dcp(path):
        room = {"model": {k: torch.zeros_like(v) for k, v in saved["model"].items()},
                "optimizer": {"state": {i: {k: torch.zeros_like(v) for k, v in s.items()} for i, s in saved["optimizer"]["state"].items()},
                              "param_groups": saved["optimizer"]["param_groups"]}}
        dcp.load(room, checkpoint_id=path)
        return room

    found = {}
    for name, save, load in (("save", dcp_save, load_dcp), ("torch.save", torch_save, load_torch)):
        path = options.folder / "flipped"
        save(saved, path)
        assert same(saved, load(path)), "the state is not what was saved"
        files = [file for file in path.rglob("*") if file.is_file()]
        counts = {"flips": options.flips, "found": 0, "wrong": 0, "harmless": 0}
        for _ in range(options.flips):
            file = random.choices(files, [f.stat().st_size for f in files])[0]
            at, bit = random.randrange(file.stat().st_size), 1 << random.randrange(8)
            with open(file, "r+b") as io:
                flip(io, at, bit)
                try:
                    counts["harmless" if same(saved, load(path)) else "wrong"] += 1
                except Exception:
                    counts["found"] += 1
                flip(io, at, bit)
        found[name] = counts
        shutil.rmtree(path)
    return found


def flip(io, at, bit):
    io.seek(at)
    byte = io.read(1)[0]
    io.seek(at)
    io.write(bytes([byte ^ bit]))
    io.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--versions", type=int, default=5)
    parser.add_argument("--flips", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(options.threads)
    options.folder.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo", init_method=f"file://{options.folder.resolve()}/store", rank=0, world_size=1)
    random.seed(1)
    print(json.dumps(flips(options) if options.flips else compare(options)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
