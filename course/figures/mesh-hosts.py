"""Eight ranks on two hosts, as `train --plan` places them: the lines of each axis, and which of them leave a host."""

import itertools
import re

from parallel_record import RECORD
from style import BLUE, GREEN, INK, ORANGE, PALE, bare, plt, save

_, *lines = RECORD["mesh"]["plan"]
ranks = []  # (place on each axis, host)
for number, line in enumerate(lines):
    rank, axes_of, host = re.fullmatch(r"rank (\d+): (.*?)  host (\S+), cores .*", line).groups()
    assert int(rank) == number
    ranks.append(({name: int(place) for name, place in re.findall(r"(\w+) (\d+)", axes_of)}, host))
COLOUR = {"pipeline": ORANGE, "data": GREEN, "tensor": BLUE}
assert list(ranks[0][0]) == list(COLOUR)
hosts = sorted({host for _, host in ranks})


def place(rank):
    host = hosts.index(ranks[rank][1])
    return 2 * sum(other == ranks[rank][1] for _, other in ranks[:rank]), -1.9 * host


figure, axes = plt.subplots(figsize=(7.4, 3.6))
bare(axes)
for i, host in enumerate(hosts):
    axes.add_patch(plt.Rectangle((-0.6, -1.9 * i - (0.45, 0.95)[i]), 7.2, 1.4, facecolor=PALE, edgecolor="none"))
    axes.text(-0.75, -1.9 * i, host, ha="right", va="center", fontsize=10)
for a, b in itertools.combinations(range(len(ranks)), 2):
    differ = [name for name in COLOUR if ranks[a][0][name] != ranks[b][0][name]]
    if len(differ) == 1:
        (xa, ya), (xb, yb) = place(a), place(b)
        bend = 0 if differ[0] != "data" else 0.3 if ya else -0.3
        axes.annotate("", (xb, yb), (xa, ya), zorder=1, arrowprops={
            "arrowstyle": "-", "color": COLOUR[differ[0]], "linewidth": 3, "connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0})
for rank, (at, _) in enumerate(ranks):
    x, y = place(rank)
    axes.scatter(x, y, s=850, color="white", edgecolor=INK, zorder=2)
    axes.text(x, y, f"{rank}\n{'·'.join(str(p) for p in at.values())}", ha="center", va="center", fontsize=8, zorder=3)
leaving = {name for name in COLOUR for a, b in itertools.combinations(ranks, 2)
           if a[1] != b[1] and [n for n in COLOUR if a[0][n] != b[0][n]] == [name]}
for name, colour in COLOUR.items():
    axes.plot([], [], color=colour, linewidth=3, label=f"{name}: {'between' if name in leaving else 'inside'} hosts")
axes.legend(loc="upper center", ncols=3, bbox_to_anchor=(0.5, -0.02))
axes.set_xlim(-1.6, 6.8)
axes.set_ylim(-3, 1.05)
axes.set_title("in a circle: rank, and its place on " + " · ".join(COLOUR))
save(figure)
