#!/usr/bin/env python3
"""What eight ranks send a step and keep, by the number of gradient workers: the closed forms of course/kfac.md for the autoencoder
784-1000-500-250-30 and back, factors every 10 steps, decompositions every 100.   assignment-traffic.py OUT.svg"""

import numpy as np
from style import BLUE, ORANGE, SKY, plt, save

RANKS = 8
WIDTHS = [784, 1000, 500, 250, 30, 250, 500, 1000, 784]
LAYERS = [(before + 1, after) for before, after in zip(WIDTHS, WIDTHS[1:])]
TRIANGLES = sum(n * (n + 1) // 2 for layer in LAYERS for n in layer)
DECOMPOSED = sum(n * n + n for layer in LAYERS for n in layer)
SQUARES = sum(n * n for layer in LAYERS for n in layer)
WEIGHTS = sum(a * g for a, g in LAYERS)

workers = [1, 2, 4, 8]
megabytes = 4e-6  # of a float
factors = np.array([2 * (RANKS - 1) * TRIANGLES / 10 for m in workers]) * megabytes
decompositions = np.array([(m - 1) * DECOMPOSED / 100 for m in workers]) * megabytes
directions = np.array([m * (RANKS // m - 1) * WEIGHTS for m in workers]) * megabytes
kept = np.array([SQUARES + DECOMPOSED * m / RANKS for m in workers]) * megabytes  # of a rank, on average

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2))
at = np.arange(len(workers))
left.bar(at, factors, color=SKY, label="factors")
left.bar(at, decompositions, bottom=factors, color=BLUE, label="decompositions")
left.bar(at, directions, bottom=factors + decompositions, color=ORANGE, label="directions")
left.set_ylabel("MB sent a step, all ranks")
left.legend()
right.bar(at, kept, color=SKY)
right.set_ylabel("MB kept by a rank, on average")
for axis in (left, right):
    axis.set_xticks(at)
    axis.set_xticklabels([f"{m}" for m in workers])
    axis.set_xlabel("gradient workers m (1: MEM-OPT, 8: COMM-OPT)")
save(figure)
