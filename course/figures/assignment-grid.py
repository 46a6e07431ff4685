#!/usr/bin/env python3
"""Eight ranks in the three grids of distributed K-FAC, and what travels for one layer.   assignment-grid.py OUT.svg"""

import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "cairn", "font.size": 9})
import matplotlib.pyplot as plt  # noqa: E402

RANKS = 8


def arrow(axis, start, end, colour):
    axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 11, "shrinkB": 11, "connectionstyle": "arc3,rad=0.25"})


def grid(axis, rows, column, maker, name):
    columns = RANKS // rows
    for rank in range(RANKS):
        at = (rank % columns, -(rank // columns))
        works = rank % columns == column
        axis.add_patch(plt.Circle(at, 0.3, facecolor="#1f5fa8" if rank == maker else "#9ecae1" if works else "white", edgecolor="0.3"))
        axis.text(*at, str(rank), ha="center", va="center", color="white" if rank == maker else "black")
        if works and rank != maker:
            arrow(axis, (maker % columns, -(maker // columns)), at, "#1f5fa8")
        if not works:
            arrow(axis, (column, -(rank // columns)), at, "#d95f0e")
    axis.set_xlim(-0.8, columns - 0.2)
    axis.set_ylim(-rows + 0.2, 0.8)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title(f"{name}\nm = {rows} gradient worker{'s' if rows > 1 else ''}", fontsize=9)


figure, axes = plt.subplots(1, 3, figsize=(9, 4.4), gridspec_kw={"width_ratios": [1.4, 2.4, 8]})
grid(axes[0], 8, 0, 2, "COMM-OPT")
grid(axes[1], 4, 1, 3, "HYBRID")
grid(axes[2], 1, 3, 3, "MEM-OPT")
figure.text(0.5, 0.03, "dark: decomposes    light: preconditions too    blue arrows: decompositions    orange arrows: directions", ha="center")
figure.subplots_adjust(bottom=0.1)
figure.savefig(sys.argv[1], format="svg", metadata={"Date": None})
