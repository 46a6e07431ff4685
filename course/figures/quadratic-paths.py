#!/usr/bin/env python3
"""Paths of gradient descent, momentum and damped Newton steps on ½ (25 x² + y²).   quadratic-paths.py OUT.svg"""

import numpy as np
from style import BLUE, PALE, plt, save

CURVATURE = np.array([25.0, 1.0])
START = np.array([0.9, 4.0])


def path(step, count):
    points, memory = [START], np.zeros(2)
    for _ in range(count):
        move, memory = step(CURVATURE * points[-1], memory)
        points.append(points[-1] + move)
    return np.array(points)


def descent(lr, momentum=0.0):
    def step(gradient, memory):
        memory = momentum * memory + gradient
        return -lr * memory, memory
    return step


def newton(damping):
    return lambda gradient, memory: (-gradient / (CURVATURE + damping), memory)


PANELS = [
    ("gradient descent, lr 0.07", descent(0.07)),
    ("momentum 0.44, lr 0.11", descent(1 / 9, 4 / 9)),
    ("damped Newton, γ = 5", newton(5.0)),
    ("damped Newton, γ = 0.5", newton(0.5)),
]

x, y = np.meshgrid(np.linspace(-1.3, 1.3, 120), np.linspace(-1.5, 4.5, 120))
figure, axes = plt.subplots(1, 4, figsize=(9.6, 2.9), sharey=True)
for axis, (name, step) in zip(axes, PANELS):
    points = path(step, 20)
    axis.contour(x, y, (25 * x**2 + y**2) / 2, levels=[0.2, 1, 3, 7, 13, 20], colors=PALE, linewidths=0.8)
    axis.plot(points[:, 0], points[:, 1], "o-", color=BLUE, markersize=3, linewidth=1)
    loss = (CURVATURE * points[-1] ** 2).sum() / 2
    axis.set_title(f"{name}\nloss after 20 steps {loss:.1g}")
    axis.set_xlabel("x")
axes[0].set_ylabel("y")
save(figure)
