"""What benchmarks/suite saw at each look, of all first series of its trials (reference/suite-trials-2core.json): a build beside itself, and slowed from outside."""

import json
import math
import pathlib
import sys

from style import BLUE, GREY, GREEN, INK, ORANGE, PALE, PURPLE, plt, save

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from regression import verdict  # noqa: E402

COLOURS = {"lenet": BLUE, "resnet18": GREEN, "transformer": ORANGE, "all-reduce-link": PURPLE}
SECONDS = ("all-reduce-link",)  # the figures of the others are rates


def looks(name, series, delta):
    """(blocks, Series) of each look at a series of the record, as verdict.py judges it."""
    costs = [tuple(block[arm] ** (1 if name in SECONDS else -1) for arm in ("A", "A2", "B")) for block in series]
    return [(count, verdict.judge_series(costs[:count], delta)) for count in verdict.LOOKS if count <= len(costs)]


record = json.loads((ROOT / "reference" / "suite-trials-2core.json").read_text())
found = {}  # share -> [(metric, whether something ran beside, δ, looks)]
for run in record["runs"]:
    for name, result in run["metrics"].items():
        if run["series"][name]:
            delta = math.log1p(result["delta"])
            seen = looks(name, run["series"][name][0], delta)
            if len(result["pairs"]) == 1 and seen and abs(math.log(result["ratio"]["mean"]) - seen[-1][1].candidate.mean) > 1e-9:
                sys.exit(f"{name} at {run['share']}: these looks are not those of the record")
            found.setdefault(run["share"], []).append((name, bool(run["beside"]), delta, seen))

figure, panels = plt.subplots(len(found), 1, figsize=(7.4, 1.75 * len(found) + 0.5), sharex=True, sharey=True, squeeze=False)
ends = []
for axes, share in zip(panels[:, 0], sorted(found)):
    runs = sorted(found[share], key=lambda entry: (list(COLOURS).index(entry[0]), entry[1]))
    band = max(delta for _, _, delta, _ in runs)
    axes.axhspan(math.exp(-band), math.exp(band), color=PALE, zorder=0)
    axes.axhline(1 / (1 - share), color=INK, linewidth=0.8, linestyle=":")
    for place, (name, busy, _, seen) in enumerate(runs):
        for at, (_, judged) in enumerate(seen):
            decided = judged.said not in (None, "inconclusive")
            mean, low, high = judged.candidate.ratios()
            ends += [low, high]
            x = at + 0.76 * ((place + 0.5) / len(runs) - 0.5)
            axes.vlines(x, low, high, color=COLOURS[name], linewidth=2 if decided else 1, alpha=1 if decided else 0.55)
            axes.plot(x, mean, "s" if busy else "o", color=COLOURS[name], markersize=4, markerfacecolor=COLOURS[name] if decided else "white")
    axes.set_ylabel("B / A in cost")
    axes.set_title("B is A" if share == 0 else f"B loses {100 * share:g} % of its time, or of its link: {1 / (1 - share):.2f} times the cost")
    axes.tick_params(axis="x", length=0)
panels[0, 0].set_ylim(max(0.75, min(ends) - 0.02), min(1.6, max(ends) + 0.02))
panels[-1, 0].set_xticks(range(len(verdict.LOOKS)), [f"{count} pairs" for count in verdict.LOOKS])
panels[-1, 0].set_xlim(-0.5, len(verdict.LOOKS) - 0.5)
present = [name for name in COLOURS if any(entry[0] == name for entries in found.values() for entry in entries)]
handles = [plt.Line2D([], [], color=COLOURS[name], marker="o", markersize=4, label=name) for name in present]
if any(busy for entries in found.values() for _, busy, _, _ in entries):
    handles.append(plt.Line2D([], [], color=GREY, marker="s", markersize=4, label="another program beside"))
panels[0, 0].legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.18), ncol=len(handles), fontsize=8)
save(figure)
