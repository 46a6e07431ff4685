"""Error of one-sided and of central differences over the step h, for exp at 1, in double."""

import math
import sys

from style import BLUE, GREY, ORANGE, plt, save

EPSILON = sys.float_info.epsilon
steps = [10 ** (-14 + 13 * i / 260) for i in range(261)]
figure, axes = plt.subplots(figsize=(7, 3.4))
for name, colour, difference, bound in (
        ("one-sided", ORANGE, lambda h: (math.exp(1 + h) - math.e) / h, lambda h: math.e * (h / 2 + EPSILON / h)),
        ("central", BLUE, lambda h: (math.exp(1 + h) - math.exp(1 - h)) / (2 * h), lambda h: math.e * (h * h / 6 + EPSILON / h))):
    errors = [max(abs(difference(h) - math.e) / math.e, 1e-13) for h in steps]
    axes.loglog(steps, errors, ".", markersize=3, color=colour, label=name)
    axes.loglog(steps, [bound(h) / math.e for h in steps], color=colour, linewidth=1)
for h, text, height in ((EPSILON ** (1 / 3), "∛ε", 3e-13), (math.sqrt(EPSILON), "√ε", 3e-13)):
    axes.axvline(h, color=GREY, linewidth=0.9, linestyle=":")
    axes.text(h * 1.15, height, text, fontsize=9, color=GREY)
axes.set_ylim(1e-13, 1)
axes.set_xlabel("step h")
axes.set_ylabel("relative error of the derivative")
axes.legend(loc="upper center", title="points: measured\nlines: truncation + ε/h", title_fontsize=8, fontsize=8.5)
save(figure)
