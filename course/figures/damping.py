#!/usr/bin/env python3
"""How much of the error along an eigenvector one step takes away, by damping and by gradient descent.   damping.py OUT.svg"""

import sys

import matplotlib
import numpy as np

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.hashsalt": "cairn", "font.size": 9})
import matplotlib.pyplot as plt  # noqa: E402

curvature = np.logspace(-4, 1, 300)
figure, axis = plt.subplots(figsize=(6.4, 3.2))
for damping, colour in [(1e-3, "#08306b"), (1e-2, "#2171b5"), (1e-1, "#6baed6"), (1.0, "#bdd7e7")]:
    axis.semilogx(curvature, curvature / (curvature + damping), color=colour, label=f"damped, γ = {damping:g}")
axis.semilogx(curvature, curvature / curvature[-1], "k--", linewidth=1, label="gradient descent, lr = 1 / λ max")
axis.set_xlabel("curvature λ of the direction")
axis.set_ylabel("part of the error removed")
axis.legend(fontsize=8, frameon=False)
figure.tight_layout()
figure.savefig(sys.argv[1], format="svg", metadata={"Date": None})
