"""One training step of a rank: gradients reduced after backward, and in buckets during backward."""

from style import BLUE, GREY, INK, ORANGE, SKY, bar, plt, save

LAYERS = [("layer 4", 1.6), ("layer 3", 1.4), ("layer 2", 1.2), ("layer 1", 1.0)]  # in the order of backward
FORWARD, COMM, UPDATE = 2.6, [1.3, 0.9, 0.7, 0.5], 0.4

figure, (after, during) = plt.subplots(2, 1, figsize=(7.4, 3.4), sharex=True)
for axes, overlapped in ((after, False), (during, True)):
    bar(axes, 0, FORWARD, 1, SKY, "forward")
    at = FORWARD
    ready = []
    for name, seconds in LAYERS:
        bar(axes, at, at + seconds, 1, BLUE, name)
        at += seconds
        ready.append(at)
    free = at if not overlapped else 0
    if overlapped:
        for i, seconds in enumerate(COMM):
            begin = max(ready[i], free)
            bar(axes, begin, begin + seconds, 0, ORANGE, f"bucket {i}" if i < 2 else f"{i}")
            free = begin + seconds
    else:
        bar(axes, at, at + sum(COMM), 0, ORANGE, "all gradients")
        free = at + sum(COMM)
    done = max(at, free)
    bar(axes, done, done + UPDATE, 1, GREY)
    if overlapped:
        axes.annotate("", (at, 1.58), (done, 1.58), arrowprops={"arrowstyle": "<->", "color": INK, "linewidth": 0.9})
        axes.text(at, 1.7, "exposed", ha="left", va="bottom", fontsize=8)
    axes.set_yticks([0, 1], ["network", "processor"])
    axes.tick_params(length=0)
    axes.set_ylim(-0.6, 2.2)
    axes.set_xticks([])
    axes.spines["left"].set_visible(False)
    axes.plot([done + UPDATE] * 2, [-0.6, 1.4], color=GREY, linewidth=0.8, linestyle=":")
    axes.set_title("all-reduce during backward, in buckets" if overlapped else "all-reduce after backward")
during.set_xlabel("time →")
save(figure)
