#!/usr/bin/env python3
"""The Fisher block of one small layer, K-FAC's approximation of it, and the difference.   kronecker-block.py OUT.svg"""

import numpy as np
from style import GREY, plt, save

# A layer 4 -> 3 inside a network: inputs are outputs of a tanh layer, gradients those of softmax and cross-entropy
# behind another layer, with labels drawn from the prediction.
random = np.random.RandomState(4)
examples = 20000
inputs = np.tanh(random.randn(examples, 5) @ random.randn(5, 4))
rows = np.hstack([inputs, np.ones((examples, 1))])
weights, last = random.randn(5, 3) / 2, random.randn(3, 6)
hidden = np.tanh(rows @ weights)
scores = np.exp(hidden @ last)
chances = scores / scores.sum(axis=1, keepdims=True)
labels = (chances.cumsum(axis=1) < random.rand(examples, 1)).sum(axis=1)
error = chances.copy()
error[np.arange(examples), labels] -= 1
gradients = (error @ last.T) * (1 - hidden**2)

each = np.einsum("no,ni->noi", gradients, rows).reshape(examples, -1)
fisher = each.T @ each / examples
factored = np.kron(gradients.T @ gradients / examples, rows.T @ rows / examples)
off = np.linalg.norm(fisher - factored) / np.linalg.norm(fisher)
values = np.linalg.eigvals(np.linalg.solve(factored, fisher)).real
names = [f"F, condition number {np.linalg.cond(fisher):.0f}", f"G ⊗ A; condition number of (G ⊗ A)⁻¹F {values.max() / values.min():.0f}", f"difference, {100 * off:.0f} % in norm"]

most = np.abs(fisher).max()
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4))
for axis, (name, matrix) in zip(axes, zip(names, (fisher, factored, fisher - factored))):
    axis.imshow(matrix, cmap="RdBu", vmin=-most, vmax=most)
    for line in (4.5, 9.5):
        axis.axhline(line, color=GREY, linewidth=0.6)
        axis.axvline(line, color=GREY, linewidth=0.6)
    axis.set_title(name)
    axis.set_xticks([])
    axis.set_yticks([])
save(figure)
