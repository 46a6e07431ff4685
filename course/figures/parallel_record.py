"""What the figures of model parallelism share: the record that benchmarks/trace_parallel made, and how a schedule is drawn."""

import json
import pathlib
import re

from style import BLUE, GREEN, INK, ORANGE, PALE, SKY

RECORD = json.loads((pathlib.Path(__file__).resolve().parents[2] / "reference" / "model-parallelism-2core.json").read_text())

FORWARD = {0: BLUE, 1: SKY}  # by the chunk of the rank
LEGEND = "blue: forward F, orange: gradient of the input I, green: of the weights W, grey: wait"


def timeline(axes, lists, end, label):
    """A schedule's lists of [action, begin, end], a row for each rank; B is I and W at once, drawn half and half."""
    for rank, actions in enumerate(lists):
        axes.barh(rank, end, color=PALE, height=0.86)
        first = re.match("[0-9]+", actions[0][0])[0]
        for action, begin, stop in actions:
            stage, kind, micro_batch = re.fullmatch("([0-9]+)([FIWB])([0-9]+)", action).groups()
            parts = {"F": [FORWARD[stage != first]], "I": [ORANGE], "W": [GREEN], "B": [ORANGE, GREEN]}[kind]
            for i, colour in enumerate(parts):
                width = (stop - begin) / len(parts)
                axes.barh(rank, width, left=begin + i * width, height=0.86, color=colour)
            axes.barh(rank, stop - begin, left=begin, height=0.86, color="none", edgecolor="white", linewidth=0.8)
            axes.text((begin + stop) / 2, rank, micro_batch, ha="center", va="center", fontsize=6.5, color="white" if parts[0] in (BLUE, GREEN) else INK)
    axes.set_yticks(range(len(lists)), [f"{label} {rank}" for rank in range(len(lists))])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)


def median_step(steps):
    """Of steps of events [rank, thread, kind, name, begin, end], one of median length."""
    return sorted(steps, key=lambda step: max(end for *_, end in step))[len(steps) // 2]
