"""Steps and examples until the loss is small, over the batch size, on a quadratic with noisy gradients; the best of several learning rates each."""

import math

from style import BLUE, GREY, ORANGE, plt, save

CURVATURE = [1 / (1 + k) for k in range(50)]  # of 50 directions
NOISE, START, TARGET = 8.0, 1.0, 0.05         # variance of one example's gradient, in units of the curvature; losses are relative to the start


def steps_to_target(batch, lr, most):
    """math.inf where it takes more than `most`. The expected loss follows from the variance of each direction alone: m ← (1 − η c)² m + η² c NOISE / batch."""
    squares = [START] * len(CURVATURE)
    goal = TARGET * sum(c * START for c in CURVATURE)
    for step in range(1, most + 1):
        squares = [(1 - lr * c) ** 2 * m + lr * lr * c * NOISE / batch for c, m in zip(CURVATURE, squares)]
        if sum(c * m for c, m in zip(CURVATURE, squares)) <= goal:
            return step
    return math.inf


batches, steps = [2 ** k for k in range(13)], []
for size in batches:
    best = 5000
    for i in range(30):
        best = min(best, steps_to_target(size, 1.9 * 0.8 ** i, best))
    steps.append(best)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.8))
left.loglog(batches, steps, "o-", markersize=3, color=BLUE)
left.loglog(batches[:8], [steps[0] / b for b in batches[:8]], ":", color=GREY, linewidth=1)
left.text(batches[3], steps[0] / batches[3] / 2.2, "twice the batch,\nhalf the steps", fontsize=8, color=GREY, ha="right")
left.set_xlabel("batch")
left.set_ylabel("steps")
right.loglog(batches, [b * s for b, s in zip(batches, steps)], "o-", markersize=3, color=ORANGE)
right.set_xlabel("batch")
right.set_ylabel("examples = batch · steps")
save(figure)
