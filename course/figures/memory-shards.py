"""Bytes of parameters, gradients and optimizer state on each of 64 ranks, for 7.5 · 10⁹ parameters trained by Adam in mixed precision."""

from style import BLUE, GREEN, ORANGE, plt, save

PSI, N = 7.5, 64  # 10⁹ parameters; ranks
kinds = [("parameters, bf16", BLUE, 2), ("gradients, bf16", ORANGE, 2), ("Adam: master copy, m, v in fp32", GREEN, 12)]
stages = [("replicated", (1, 1, 1)), ("optimizer state in shards (ZeRO-1)", (1, 1, N)), ("and gradients (ZeRO-2)", (1, N, N)), ("and parameters (ZeRO-3)", (N, N, N))]

figure, axes = plt.subplots(figsize=(7, 2.5))
for row, (name, divided) in enumerate(stages):
    left = 0
    for (label, colour, size), by in zip(kinds, divided):
        axes.barh(row, PSI * size / by, left=left, color=colour, height=0.6, label=label if row == 0 else None)
        left += PSI * size / by
    axes.text(left + 1, row, f"{left:.1f} GB", va="center", fontsize=8.5)
axes.axvline(80, color="black", linewidth=0.9, linestyle="--")
axes.text(80.8, 3.3, "80 GB of one GPU", fontsize=8, va="center")
axes.set_yticks(range(len(stages)), [name for name, _ in stages])
axes.tick_params(axis="y", length=0)
axes.set_xlim(0, 132)
axes.invert_yaxis()
axes.set_xlabel("GB on each rank, activations not counted")
axes.legend(loc="lower right", fontsize=8, bbox_to_anchor=(1, 0.28), frameon=True, framealpha=1, edgecolor="white")
save(figure)
