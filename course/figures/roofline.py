"""The roofline of a machine of 1 Tflop/s and 50 GB/s, and on it a linear layer 1024 → 1024 in float for batches of several sizes."""

from style import BLUE, GREY, INK, RED, plt, save

PEAK, BANDWIDTH = 1000.0, 50.0  # Gflop/s, GB/s: a processor of 16 cores or so
ridge = PEAK / BANDWIDTH


def intensity(batch, n=1024):
    """Flops a byte, each operand moved once: x, W, b and y."""
    return 2 * batch * n * n / (4 * (batch * n + n * n + n + batch * n))


figure, axes = plt.subplots(figsize=(7, 3.4))
reach = [2 ** (i / 8) for i in range(-31, 81)]
axes.loglog(reach, [min(PEAK, BANDWIDTH * i) for i in reach], color=INK)
axes.text(0.3, 27, "50 GB/s from memory", rotation=30, fontsize=8.5, va="bottom")
axes.text(200, 1080, "1000 Gflop/s", fontsize=8.5, va="bottom")
axes.plot([ridge] * 2, [5, PEAK], color=GREY, linewidth=0.9, linestyle=":")
axes.text(ridge * 1.05, 6, f"ridge: {ridge:.0f} flop a byte", fontsize=8, color=GREY)
for batch in (1, 4, 16, 64, 256, 4096):
    i = intensity(batch)
    axes.plot([i], [min(PEAK, BANDWIDTH * i)], "o", color=BLUE)
    axes.annotate(f"batch {batch}", (i, min(PEAK, BANDWIDTH * i)), (5, -12), textcoords="offset points", fontsize=8, color=BLUE)
axes.plot([1 / 12], [BANDWIDTH / 12], "s", color=RED)
axes.annotate("adding two vectors", (1 / 12, BANDWIDTH / 12), (7, -3), textcoords="offset points", fontsize=8, color=RED)
axes.set_xlim(0.07, 1000)
axes.set_ylim(3, 2500)
axes.set_xlabel("flops for each byte from memory")
axes.set_ylabel("Gflop/s at most")
axes.grid(True)
save(figure)
