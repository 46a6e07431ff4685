"""A transformer's block on two ranks that share its matrices, as it ran: what each rank computes, and the all-reduces."""

import statistics

from parallel_record import RECORD, median_step
from style import BLUE, GREEN, INK, ORANGE, SKY, plt, save

BLOCK, BLOCKS = 3, 4
record = RECORD["tensor"]
STEP = median_step(record["steps"])
COLOUR = {"qkv": BLUE, "in": BLUE, "out": BLUE, "attention": GREEN, "gelu": GREEN}  # others: norm and dropout


def block(step, rank, number, phase):
    """(layers, all-reduces, begin, end) of a block and pass."""
    mine = [e for e in step if e[0] == rank]
    layers = [e for e in mine if e[2] == "compute" and e[3].startswith(f"block{number}/") and e[3].endswith(phase)]
    begin, end = min(e[4] for e in layers), max(e[5] for e in layers)
    return layers, [e for e in mine if e[3].endswith("tensor all-reduce") and begin <= e[4] <= end], begin, end


def share(step, phase):
    """Of a pass through all blocks on both ranks, what all-reduces take. Backward: which part runs while the rank computes is not recorded."""
    parts = [block(step, rank, number, phase) for rank in (0, 1) for number in range(1, BLOCKS + 1)]
    return sum(e[5] - e[4] for _, reduces, _, _ in parts for e in reduces) / sum(end - begin for *_, begin, end in parts)


figure, panels = plt.subplots(2, 1, figsize=(7.4, 4.6))
for axes, phase in zip(panels, ("forward", "backward")):
    both = [block(STEP, rank, BLOCK, phase) for rank in (0, 1)]
    first = min(begin for _, _, begin, _ in both)
    for rank, (layers, reduces, begin, end) in enumerate(both):
        assert len(reduces) == 2
        for _, thread, _, name, start, stop in layers + reduces:
            communication = name.endswith("all-reduce")
            layer = name.split()[0].rsplit("/", 1)[-1]
            row = 2.4 * rank + (0.95 if communication else 0)
            colour = ORANGE if communication else COLOUR.get(layer, SKY)
            axes.barh(row, (stop - start) / 1e3, left=(start - first) / 1e3, height=0.86, color=colour, edgecolor="white", linewidth=0.6)
            if stop - start > 0.055 * (end - begin) and not communication:
                axes.text(((start + stop) / 2 - first) / 1e3, row, layer, ha="center", va="center", fontsize=7, color=INK if colour == SKY else "white")
    axes.set_yticks([0, 0.95, 2.4, 3.35], ["rank 0", "all-reduce", "rank 1", "all-reduce"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.invert_yaxis()
    taken = statistics.median(share(step, phase) for step in record["steps"])
    beside = {"forward": "nothing beside them", "backward": "dW beside them"}[phase]
    axes.set_title(f"block {BLOCK}, {phase}; all-reduces take {100 * taken:.0f} % of the time of all blocks, {beside}")
panels[1].set_xlabel("milliseconds   blue: products with a rank's slice of a matrix, green: its heads and hidden numbers,\n"
                     "light blue: norm and dropout, on both ranks the same, orange: all-reduce, and wait for the other rank")
save(figure)
