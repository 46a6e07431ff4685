"""Size of the activations behind each of 30 layers of 64 ReLU units, for normal weights of three variances."""

import math
import random

from style import BLUE, GREEN, ORANGE, plt, save

WIDTH, LAYERS, EXAMPLES = 64, 30, 8


def sizes(gain):
    draw = random.Random(1)
    rows = [[draw.gauss(0, 1) for _ in range(WIDTH)] for _ in range(EXAMPLES)]
    out = [1.0]
    for _ in range(LAYERS):
        weights = [[draw.gauss(0, math.sqrt(gain / WIDTH)) for _ in range(WIDTH)] for _ in range(WIDTH)]
        rows = [[max(0.0, sum(w * a for w, a in zip(unit, row))) for unit in weights] for row in rows]
        out.append(math.sqrt(2 * sum(a * a for row in rows for a in row) / (EXAMPLES * WIDTH)))
    return out


figure, axes = plt.subplots(figsize=(7, 2.8))
for gain, colour in ((4, ORANGE), (2, BLUE), (1, GREEN)):
    axes.semilogy(range(LAYERS + 1), sizes(gain), "o-", markersize=3, color=colour, label=f"variance {gain} / fan in")
axes.set_xlabel("layer")
axes.set_ylabel("root mean square, times √2")
axes.legend(fontsize=8.5)
save(figure)
