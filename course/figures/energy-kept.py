"""What top-k keeps of a gradient: the share of ‖x‖² in the largest values, beside what its contract promises."""

import math
import statistics

from style import BLUE, GREEN, GREY, ORANGE, plt, save

N = 20000
normal = statistics.NormalDist()
at = [(i + 0.5) / N for i in range(N)]
kinds = {  # quantiles of |x|, not samples: the same figure each time
    "normal values": ([normal.inv_cdf(0.5 + u / 2) for u in at], BLUE),
    "Laplace: more small ones": ([-math.log(1 - u) for u in at], GREEN),
    "layers of sizes 1 to 1/16": (sorted(2 ** -layer * normal.inv_cdf(0.5 + u / 2) for layer in range(5) for u in at[::5]), ORANGE),
}
figure, axes = plt.subplots(figsize=(7, 3.4))
for name, (magnitudes, colour) in kinds.items():
    energy, kept, shares = sum(v * v for v in magnitudes), 0.0, []
    for v in reversed(magnitudes):
        kept += v * v
        shares.append(kept / energy)
    axes.semilogx([(i + 1) / len(shares) for i in range(len(shares))], shares, color=colour, label=name)
grid = [10 ** (-3 + 3 * i / 100) for i in range(101)]
axes.semilogx(grid, grid, color=GREY, linestyle=":", label="promised for any x: k/n")
axes.axvline(0.01, color=GREY, linewidth=0.8)
axes.set_xlim(1e-3, 1)
axes.set_xlabel("k/n, share of the values that is sent")
axes.set_ylabel("share of ‖x‖² that arrives")
axes.grid(True)
axes.legend(loc="upper left", fontsize=8)
save(figure)
