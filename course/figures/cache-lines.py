"""Cache lines that a transposition moves, element by element and in tiles, in a cache of 64 lines of 8 elements."""

from collections import OrderedDict

from style import BLUE, GREY, ORANGE, plt, save

LINES, ELEMENTS = 64, 8


def moved(places):
    """How often an element's line is not there, when the line unused for longest makes room."""
    held, misses = OrderedDict(), 0
    for place in places:
        line = place // ELEMENTS
        if line in held:
            held.move_to_end(line)
            continue
        misses += 1
        if len(held) == LINES:
            held.popitem(last=False)
        held[line] = True
    return misses


def transposition(n, tile):
    for top in range(0, n, tile):
        for left in range(0, n, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, n)):
                    yield i * n + j
                    yield n * n + j * n + i


sizes = list(range(8, 129, 8))
figure, axes = plt.subplots(figsize=(7, 3))
for name, colour, tile in (("element by element", ORANGE, 10 ** 9), ("tiles of 8 × 8", BLUE, 8)):
    axes.plot(sizes, [moved(transposition(n, tile)) / n ** 2 for n in sizes], "o-", markersize=3, color=colour, label=name)
axes.axhline(2 / ELEMENTS, color=GREY, linewidth=1, linestyle=":")
axes.text(128, 0.27, "each line of both matrices once", ha="right", va="bottom", fontsize=8, color=GREY)
axes.set_xlabel("rows and columns of the matrix")
axes.set_ylabel("cache lines moved for each element")
axes.set_ylim(0, 1.25)
axes.legend(loc="upper left")
save(figure)
