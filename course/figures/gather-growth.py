"""Bytes that a rank sends for each byte of gradient, over the number of ranks."""

from style import BLUE, GREEN, GREY, INK, ORANGE, RED, plt, save

ranks = [2 ** (1 + 9 * i / 200) for i in range(201)]
ring = [2 * (p - 1) / p for p in ranks]
curves = [
    ("dense, ring all-reduce", ring, INK, "-"),
    ("bf16, ring all-reduce", [r / 2 for r in ring], GREY, "-"),
    ("sign, all-gather", [(p - 1) / 32 for p in ranks], ORANGE, "-"),
    ("sign, two phases", [r / 32 for r in ring], ORANGE, "--"),
    ("top-k 1 %, all-gather, 8 bytes a value", [(p - 1) * 0.02 for p in ranks], BLUE, "-"),
    ("PowerSGD rank 2 of 512 × 4,608, two all-reduces", [r * 2 * (512 + 4608) / (512 * 4608) for r in ring], GREEN, "-"),
]
figure, axes = plt.subplots(figsize=(7, 4))
for name, values, colour, line in curves:
    axes.loglog(ranks, values, color=colour, linestyle=line, label=name)
for p, x, y in ((64, 40, 2.5), (100, 108, 1.25)):
    axes.plot([p], [2 * (p - 1) / p], "o", color=RED)
    axes.annotate(f"p = {p}", (x, y), fontsize=8)
axes.set_ylim(2e-3, 40)
axes.set_xlabel("ranks")
axes.set_ylabel("bytes sent a byte of gradient")
axes.grid(True)
axes.legend(loc="upper left", fontsize=7.5)
save(figure)
