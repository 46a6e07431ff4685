"""Least squares over four ranks whose data differ: gradient descent with exact means, one bit a value and an eighth of the values, with and
without error feedback. The problem of lab 3's tests, simulated here."""

import numpy
from style import BLUE, INK, ORANGE, plt, save

RANKS, UNKNOWNS, EXAMPLES, STEPS, RATE = 4, 32, 128, 300, 0.1
random = numpy.random.Generator(numpy.random.Philox(1))
a = random.uniform(-1, 1, (RANKS, EXAMPLES, UNKNOWNS))
centre = random.uniform(-2, 2, UNKNOWNS)
above = random.integers(0, RANKS, UNKNOWNS)  # the rank that wants 3 more in this coordinate; the others want 1 less
wanted = centre + numpy.where(above == numpy.arange(RANKS)[:, None], 3.0, -1.0)
b = numpy.einsum("rij,rj->ri", a, wanted)


def loss(x):
    return ((a @ x - b) ** 2).sum() / (2 * RANKS * EXAMPLES)


def sign(x):
    return numpy.where(x < 0, -1.0, 1.0) * numpy.abs(x).mean()


def top(x):
    kept = numpy.zeros_like(x)
    largest = numpy.argsort(-numpy.abs(x), kind="stable")[: UNKNOWNS // 8]
    kept[largest] = x[largest]
    return kept


def descend(compress, feedback):
    x, e, losses = numpy.zeros(UNKNOWNS), numpy.zeros((RANKS, UNKNOWNS)), []
    for _ in range(STEPS):
        losses.append(loss(x))
        corrected = numpy.einsum("rij,ri->rj", a, a @ x - b) / EXAMPLES + e
        sent = numpy.array([compress(row) for row in corrected])
        e = corrected - sent if feedback else e
        x = x - RATE * sent.mean(axis=0)
    return numpy.array(losses)


best = loss(numpy.linalg.lstsq(a.reshape(-1, UNKNOWNS), b.reshape(-1), rcond=None)[0])
figure, axes = plt.subplots(figsize=(7, 3.6))
for name, compress, colour in (("exact means", lambda x: x, INK), ("one bit a value", sign, ORANGE), ("an eighth of the values", top, BLUE)):
    for feedback in (True, False) if colour != INK else (True,):
        label = name if colour == INK else f"{name}, {'with' if feedback else 'without'} feedback"
        axes.semilogy(descend(compress, feedback) / best - 1, color=colour, linestyle="-" if feedback else ":", label=label)
axes.set_xlabel("step")
axes.set_ylabel("loss / least loss − 1")
axes.set_xlim(0, STEPS)
axes.grid(True)
axes.legend(fontsize=8)
save(figure)
