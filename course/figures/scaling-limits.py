"""ResNet-18 in data parallelism: predicted speed-up over ranks for three networks, and what the batch size does."""

from style import BLUE, GREEN, GREY, ORANGE, plt, save

STEP = 128 / 282.7  # seconds of one rank for a batch of 128: reference/README.md
BYTES = 4 * 11.17e6
links = [("100 Gbit/s", 5e-6, 12.5e9, GREEN), ("10 Gbit/s", 20e-6, 1.25e9, BLUE), ("1 Gbit/s", 50e-6, 0.125e9, ORANGE)]
ranks = range(1, 65)

figure, (strong, weak) = plt.subplots(1, 2, figsize=(7.4, 3.2), sharey=True)
for axes, share, name in ((strong, lambda p: STEP / p, "128 images together"), (weak, lambda p: STEP, "128 images each")):
    for label, alpha, bandwidth, colour in links:
        reduce = [0 if p == 1 else 2 * (p - 1) * alpha + 2 * (p - 1) / p * BYTES / bandwidth for p in ranks]
        speed = [STEP * (p if share(p) == STEP else 1) / (share(p) + t) for p, t in zip(ranks, reduce)]
        axes.plot(ranks, speed, color=colour, label=label)
    axes.plot(ranks, ranks, color=GREY, linestyle=":", label="ideal")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.set_yticks([0.5, 1, 2, 4, 8, 16, 32, 64], ["½", "1", "2", "4", "8", "16", "32", "64"])
    axes.set_ylim(0.5, 70)
    axes.set_xlabel("ranks")
    axes.set_title(name)
    axes.grid(True)
strong.set_ylabel("images a second, over those of one rank")
weak.legend(fontsize=8)
save(figure)
