"""A step of CosmoFlow on two ranks that share each volume, as it ran; and halos' share of bytes and time by layer."""

import statistics

from parallel_record import RECORD, median_step
from style import BLUE, GREEN, GREY, ORANGE, SKY, plt, save

SIDE = 64  # of the volume; each pooling halves it
record = RECORD["spatial"]
assert any(one.startswith("data.") and one.endswith(f"size={SIDE}") for one in record["set"])
step = median_step(record["steps"])
length = max(end for *_, end in step)

figure, (axes, shares) = plt.subplots(2, 1, figsize=(7.4, 5), height_ratios=(1.25, 1))
for rank, thread, kind, name, begin, end in step:
    layer, last = name.split()[0].split("/")[0], name.split("/")[-1]
    if kind == "communication" and last not in ("copy halo", "wait for halo", "wait for gradients"):
        continue  # on a thread of its own, beside backward
    together = layer == "flatten" or name == "wait for gradients"
    colour = GREEN if together else ORANGE if kind == "communication" else BLUE if layer.startswith("conv") else SKY
    axes.barh(1.25 * rank, (end - begin) / 1e3, left=begin / 1e3, height=0.86, color=colour)
    if kind == "compute" and end - begin > length / 25:
        axes.text((begin + end) / 2e3, 1.25 * rank - 0.56, layer, ha="center", va="center", fontsize=7)
turn = min(begin for *_, name, begin, _ in step if name.endswith("backward")) / 1e3
axes.axvline(turn, color=GREY, linestyle=":", linewidth=1)
axes.text(turn - 0.4, -0.95, "forward", ha="right", va="center", fontsize=8, color=GREY)
axes.text(turn + 0.4, -0.95, "backward", va="center", fontsize=8, color=GREY)
axes.set_yticks((0, 1.25), ("rank 0", "rank 1"))
axes.tick_params(axis="y", length=0)
axes.spines["left"].set_visible(False)
axes.set_ylim(1.75, -1.1)
axes.set_xlim(0, length / 1e3)
axes.set_xlabel("milliseconds   blue: convolutions, orange: halos, copied and waited for,\n"
                "green: volumes gathered, sum of gradients, light blue: other layers, update")

layers = [f"conv{i}" for i in range(1, 5)]
sides = [SIDE >> i for i in range(4)]


def halo_share(layer):
    """Of the time of a layer, forward and backward, on both ranks: median of the steps."""
    own = [[e for e in s if e[3].startswith((f"{layer} ", f"{layer}/"))] for s in record["steps"]]
    return statistics.median(sum(e[5] - e[4] for e in s if "/" in e[3]) / sum(e[5] - e[4] for e in s if "/" not in e[3]) for s in own)


shares.loglog(sides, [200 / side for side in sides], "s-", color=GREY, markersize=4, label="rows: halo / own, 1 / (D/2)")
shares.loglog(sides, [100 * halo_share(layer) for layer in layers], "o-", color=ORANGE, label="time: halos / layer, median of five steps")
shares.set_xticks(sides, [f"{layer}\nD = {side}, {16 << i} channels" for i, (side, layer) in enumerate(zip(sides, layers))])
shares.set_xticks([], minor=True)
shares.set_xlim(1.25 * SIDE, sides[-1] / 1.25)
shares.set_yticks((1, 3, 10, 30), ("1 %", "3 %", "10 %", "30 %"))
shares.set_yticks([], minor=True)
shares.set_ylim(1, 40)
shares.grid(True)
shares.legend(fontsize=8, loc="upper left")
save(figure)
