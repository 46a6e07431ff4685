#!/usr/bin/env python3
"""How much of the error along an eigenvector one step takes away, by damping and by gradient descent.   damping.py OUT.svg"""

import numpy as np
from style import BLUE, GREEN, ORANGE, RED, INK, plt, save

curvature = np.logspace(-4, 1, 300)
figure, axis = plt.subplots(figsize=(8.4, 3.2))
for damping, colour in [(1e-3, BLUE), (1e-2, GREEN), (1e-1, ORANGE), (1.0, RED)]:
    axis.semilogx(curvature, curvature / (curvature + damping), color=colour, label=f"damped, γ = {damping:g}")
axis.semilogx(curvature, curvature / curvature[-1], "--", color=INK, linewidth=1, label="gradient descent, lr = 1 / λ max")
axis.set_xlabel("curvature λ of the direction")
axis.set_ylabel("part of the error removed")
axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
save(figure)
