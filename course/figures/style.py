"""What the figures of the course share. A script course/figures/NAME.py draws NAME.svg:  python3 course/figures/NAME.py OUT.svg

    from style import BLUE, plt, save
    figure, axes = plt.subplots(figsize=(7, 3))
    ...
    save(figure)

The same file comes out each time: nothing is drawn at random, no date is written.
"""

import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

# Okabe and Ito's colours: told apart by everyone, and in grey.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442"
INK, GREY, PALE = "#222222", "#777777", "#E6E6E6"

plt.rcParams.update({
    "svg.hashsalt": "cairn", "font.family": "DejaVu Sans", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK, "axes.grid": False,
    "grid.color": PALE, "grid.linewidth": 0.8, "lines.linewidth": 1.8, "legend.frameon": False, "axes.titlesize": 9.5, "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
})


def save(figure):
    """Writes the file that the command line names."""
    figure.savefig(sys.argv[1], format="svg", metadata={"Date": None}, facecolor="white")


def bare(axes):
    """For drawings that are no plots."""
    axes.set_axis_off()
    return axes


def bar(axes, begin, end, row, colour, text="", height=0.8, **options):
    """An interval of a timeline, with its name in it."""
    axes.barh(row, end - begin, left=begin, height=height, color=colour, edgecolor="white", linewidth=1, **options)
    if text:
        dark = colour in (BLUE, GREEN, RED, GREY, INK)
        axes.text((begin + end) / 2, row, text, ha="center", va="center", fontsize=7.5, color="white" if dark else INK)
