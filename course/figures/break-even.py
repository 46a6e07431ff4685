"""Seconds of a step over the bandwidth of the links: a model of ResNet-18 on four hosts, and the steps that were measured."""

import json
import pathlib

from style import BLUE, GREEN, INK, ORANGE, plt, save

COMPUTE = 0.5  # seconds of a step without communication (course/compression.md)
VALUES = 11.2e6
RATES = {"100mbit": 100e6, "1gbit": 1e9}
METHODS = [  # name in the measurements, bytes a rank sends, seconds of encoding and decoding (assumed), colour
    ("none", 1.5 * 4 * VALUES, 0.0, INK),
    ("bf16", 1.5 * 2 * VALUES, 0.02, ORANGE),
    ("topk", 1.75e6, 0.1, BLUE),
    ("powersgd", 0.51e6, 0.1, GREEN),
]
measured = json.loads((pathlib.Path(__file__).resolve().parents[2] / "reference" / "links-resnet18-2core.json").read_text())["records"]
bandwidths = [10 ** (7.3 + 3.7 * i / 200) for i in range(201)]  # bits a second
figure, axes = plt.subplots(figsize=(7, 3.8))
for name, sent, codec, colour in METHODS:
    axes.loglog([b / 1e9 for b in bandwidths], [COMPUTE + codec + 8 * sent / b for b in bandwidths], color=colour,
                label={"none": "dense"}.get(name, name))
    points = [(RATES[m["rate"]] / 1e9, m["step_s"]) for m in measured if m["kind"] == name and m["rate"] in RATES]
    axes.plot([x for x, _ in points], [y for _, y in points], "o", color=colour, markersize=5)
saved, codec = METHODS[0][1] - METHODS[3][1], METHODS[3][2]
even = 8 * saved / codec
axes.axvline(even / 1e9, color=GREEN, linewidth=0.8, linestyle=":")
axes.annotate(f"break-even of\npowersgd here:\n{even / 1e9:.1f} Gbit/s", (even / 1e9, 2), (even / 1e9 * 1.1, 2), fontsize=8)
axes.set_xlabel("bandwidth of each link, Gbit/s")
axes.set_ylabel("seconds a step")
axes.grid(True, which="both")
axes.legend(loc="upper right", fontsize=8)
axes.set_title("lines: 0.5 s of computing, 0.1 s (bf16: 0.02 s) of encoding and decoding,\nnothing hidden behind backward; points: measured")
save(figure)
