"""Measured times of all-reduce on four ranks of the reference machine, and the model's (reference/collectives-2core.json)."""

import json
import pathlib

from style import BLUE, GREEN, GREY, INK, ORANGE, RED, plt, save

record = json.loads((pathlib.Path(__file__).resolve().parents[2] / "reference" / "collectives-2core.json").read_text())["4 ranks"]
rows = record["rows"]
sizes = [row["bytes"] for row in rows]
figure, axes = plt.subplots(figsize=(7, 3.4))
for name, colour, mark in (("ring", BLUE, "o"), ("recursive_doubling", ORANGE, "s"), ("halving_doubling", GREEN, "^")):
    axes.loglog(sizes, [1e3 * row["seconds"][name] for row in rows], mark + "-", color=colour, markersize=3.5, linewidth=0.9, label=name.replace("_", " "))
axes.loglog(sizes, [1e3 * row["seconds"]["native"] for row in rows], "v-", color=GREY, markersize=3.5, linewidth=0.9, label="MPI_Allreduce")
axes.loglog(sizes, [1e3 * row["seconds"]["auto"] for row in rows], color=INK, linewidth=2, label="what is chosen")
axes.loglog(sizes, [1e3 * row["model"] for row in rows], color=RED, linestyle=":", label="model of what is chosen")
axes.set_xticks([2**k for k in range(10, 29, 3)], ["1 KiB", "8 KiB", "64 KiB", "512 KiB", "4 MiB", "32 MiB", "256 MiB"])
axes.set_xticks([], minor=True)
axes.set_ylabel("milliseconds")
axes.grid(True)
axes.legend(fontsize=8)
axes.set_title(f"4 ranks on 2 cores, MPI; median error of the model {100 * record['model_median_error']:.1f} %")
save(figure)
