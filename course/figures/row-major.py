"""A matrix of 3 × 8 doubles as it lies in memory, in cache lines, and the elements that a row and a column use."""

from style import BLUE, GREY, INK, ORANGE, PALE, bare, plt, save

ROWS, COLUMNS, LINE = 3, 8, 8
figure, (above, below) = plt.subplots(2, 1, figsize=(7, 2.6), height_ratios=(3, 1.4))


def cell(axes, x, y, colour, text):
    axes.add_patch(plt.Rectangle((x, y), 0.94, 0.94, color=colour))
    axes.text(x + 0.47, y + 0.47, text, ha="center", va="center", fontsize=7.5, color="white" if colour == BLUE else INK)


def colour(i, j):
    return BLUE if i == 1 else ORANGE if j == 2 else PALE


for i in range(ROWS):
    for j in range(COLUMNS):
        cell(bare(above), 8 + j, -i, colour(i, j), f"{i},{j}")
        cell(bare(below), COLUMNS * i + j, 0, colour(i, j), f"{i},{j}")
for line in range(ROWS * COLUMNS // LINE + 1):
    below.plot([line * LINE - 0.03] * 2, [-0.5, 1.3], color=INK, linewidth=1)
    if line < ROWS:
        below.text((line + 0.5) * LINE, -0.15, f"cache line {line}", ha="center", va="top", fontsize=8, color=GREY)
above.text(7.6, -0.53, "row 1: stride 1, one line", ha="right", va="center", fontsize=9, color=BLUE)
above.text(10.47, 1.25, "column 2: stride 8, a line for each element", ha="center", va="bottom", fontsize=9, color="#A06A00")
above.set_xlim(0, 24)
above.set_ylim(-2.2, 2.1)
below.set_xlim(-0.2, 24.2)
below.set_ylim(-1.2, 1.5)
save(figure)
