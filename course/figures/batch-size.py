"""Steps and examples until the loss is small, over the batch size, on a quadratic with noisy gradients; the best of several learning rates each."""

import math

from style import BLUE, GREY, ORANGE, plt, save

CURVATURE = [1 / (1 + k) for k in range(50)]  # of 50 directions
# Variance of one example's gradient, in units of the curvature; losses are relative to the start.
NOISE, START, TARGET = 8.0, 1.0, 0.05


def steps_to_target(batch, lr):
    """The mean square of direction c goes from START to its limit by a factor (1 − η c)² a step: m ← (1 − η c)² m + η² c NOISE / batch."""
    limits = [lr * NOISE / batch / (2 - lr * c) for c in CURVATURE]
    goal = TARGET * sum(c * START for c in CURVATURE)

    def reached(steps):
        return sum(c * (m + (START - m) * (1 - lr * c) ** (2 * steps)) for c, m in zip(CURVATURE, limits)) <= goal

    if sum(c * m for c, m in zip(CURVATURE, limits)) >= goal:
        return math.inf  # the noise alone is more
    low, high = 0, 1
    while not reached(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


batches = [2 ** k for k in range(13)]
steps = [min(steps_to_target(size, 1.9 * 0.9 ** i) for i in range(60)) for size in batches]
figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.8))
left.loglog(batches, steps, "o-", markersize=3, color=BLUE)
left.loglog(batches[:8], [steps[0] / b for b in batches[:8]], ":", color=GREY, linewidth=1)
left.text(2, 60, "dotted: twice the batch,\nhalf the steps", fontsize=8, color=GREY)
left.set_xlabel("batch")
left.set_ylabel("steps")
right.loglog(batches, [b * s for b, s in zip(batches, steps)], "o-", markersize=3, color=ORANGE)
right.set_xlabel("batch")
right.set_ylabel("examples = batch · steps")
save(figure)
