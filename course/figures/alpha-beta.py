"""Predicted times of all-reduce on 16 ranks over the size of the array."""

import math

from style import BLUE, GREEN, GREY, ORANGE, RED, plt, save

P, ALPHA, BETA = 16, 20e-6, 1 / 1.25e9  # 20 µs a message, 10 Gbit/s
steps = math.log2(P)
curves = {
    "everything to rank 0 and back": (lambda n: 2 * (P - 1) * (ALPHA + n * BETA), GREY, ":"),
    "ring": (lambda n: 2 * (P - 1) * ALPHA + 2 * (P - 1) / P * n * BETA, BLUE, "-"),
    "recursive doubling": (lambda n: steps * (ALPHA + n * BETA), ORANGE, "-"),
    "halving and doubling": (lambda n: 2 * steps * ALPHA + 2 * (P - 1) / P * n * BETA, GREEN, "--"),
}
sizes = [10 ** (2 + 7 * i / 200) for i in range(201)]
figure, axes = plt.subplots(figsize=(7, 3.6))
for name, (seconds, colour, line) in curves.items():
    axes.loglog(sizes, [1e3 * seconds(n) for n in sizes], color=colour, linestyle=line, label=name)
crossing = steps * ALPHA / (steps - 2 * (P - 1) / P) / BETA
axes.plot([crossing], [1e3 * steps * (ALPHA + crossing * BETA)], "o", color=RED)
axes.annotate(f"{crossing / 1e3:.0f} kB: from here on\nfewer bytes beat fewer messages", (crossing, 1e3 * steps * (ALPHA + crossing * BETA)),
              (crossing * 6, 0.09), fontsize=8, arrowprops={"arrowstyle": "-", "color": GREY}, va="center")
axes.set_xlabel("bytes in the array")
axes.set_ylabel("milliseconds")
axes.grid(True)
axes.legend(loc="upper left", fontsize=8)
axes.set_title("p = 16, α = 20 µs, 1/β = 1.25 GB/s, γ = 0")
save(figure)
