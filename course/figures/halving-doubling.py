"""Halving and doubling on eight ranks: partners, and what each rank works on."""

from style import BLUE, GREEN, GREY, INK, bare, plt, save

P, STEPS = 8, [4, 2, 1, 1, 2, 4]

figure, axes = plt.subplots(figsize=(7.4, 3.9))
bare(axes)
WIDTH, GAP = 1.0, 0.62
first, width = [0] * P, [P] * P
for column in range(len(STEPS) + 1):
    left = column * (WIDTH + GAP)
    done = column >= 3
    for rank in range(P):
        y = P - 1 - rank
        axes.add_patch(plt.Rectangle((left, y + 0.2), WIDTH, 0.6, facecolor="none", edgecolor=GREY, linewidth=0.8))
        axes.add_patch(plt.Rectangle((left + WIDTH * first[rank] / P, y + 0.2), WIDTH * width[rank] / P, 0.6, facecolor=GREEN if done else BLUE,
                                     alpha=1 if done else 0.3 + 0.25 * column))
        if column == 0:
            axes.text(left - 0.1, y + 0.5, f"rank {rank}", ha="right", va="center", fontsize=8)
    if column == len(STEPS):
        break
    bit = STEPS[column]
    for rank in range(P):
        peer = rank ^ bit
        axes.annotate("", (left + WIDTH + GAP - 0.04, P - 1 - peer + 0.5), (left + WIDTH + 0.04, P - 1 - rank + 0.5),
                      arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 0.7})
    axes.text(left + WIDTH + GAP / 2, P + 0.22, f"bit {bit}", ha="center", fontsize=8)
    for rank in range(P):
        if column < 3:
            width[rank] //= 2
            first[rank] += bit if rank & bit else 0
    if column >= 3:
        for rank in range(P):
            width[rank] *= 2
            first[rank] -= bit if rank & bit else 0
right = 7 * WIDTH + 6 * GAP
axes.text(1.5 * (WIDTH + GAP) + WIDTH / 2, -0.35, "halving: 1/2, 1/4, 1/8 of the array travel, and are added", ha="center", va="top", fontsize=8.5)
axes.text(4.7 * (WIDTH + GAP) + WIDTH / 2, -0.35, "doubling: the complete parts come back", ha="center", va="top", fontsize=8.5)
axes.set_xlim(-0.75, right + 0.05)
axes.set_ylim(-0.85, P + 0.6)
save(figure)
