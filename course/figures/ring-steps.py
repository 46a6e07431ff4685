"""Ring all-reduce on four ranks: how many ranks' numbers each part holds after each step."""

from style import BLUE, GREEN, INK, bare, plt, save

P = 4


def states():
    """held[rank][part]: how many summands are in it; before the first step, and after each."""
    held = [[1] * P for _ in range(P)]
    yield [row[:] for row in held], []
    for s in range(P - 1):  # reduce-scatter
        moves = [(r, (r + 1) % P, (r - s) % P) for r in range(P)]
        new = [row[:] for row in held]
        for source, target, part in moves:
            new[target][part] = held[target][part] + held[source][part]
        held = new
        yield [row[:] for row in held], [(target, part) for _, target, part in moves]
    for s in range(P - 1):  # all-gather
        moves = [(r, (r + 1) % P, (r + 1 - s) % P) for r in range(P)]
        for source, target, part in moves:
            held[target][part] = held[source][part]
        yield [row[:] for row in held], [(target, part) for _, target, part in moves]


figure, panels = plt.subplots(2, 4, figsize=(7.4, 4.1))
all_panels = list(panels.flat)
order = [all_panels[i] for i in (0, 1, 2, 3, 5, 6, 7)]
for number, (axes, (held, changed)) in enumerate(zip(order, states())):
    bare(axes)
    for rank in range(P):
        for part in range(P):
            full = held[rank][part] == P
            axes.add_patch(plt.Rectangle((rank + 0.06, P - 1 - part + 0.06), 0.88, 0.88, facecolor=GREEN if full else BLUE,
                                         alpha=1 if full else 0.12 + 0.22 * (held[rank][part] - 1),
                                         edgecolor=INK if (rank, part) in changed else "none", linewidth=1.6))
            axes.text(rank + 0.5, P - 1 - part + 0.5, str(held[rank][part]), ha="center", va="center", color="white" if full else INK)
        axes.text(rank + 0.5, -0.28, f"rank {rank}", ha="center", va="center", fontsize=7)
    for part in range(P):
        axes.text(-0.12, P - 1 - part + 0.5, f"part {part}", ha="right", va="center", fontsize=7)
    axes.set_xlim(-0.9, P + 0.05)
    axes.set_ylim(-0.6, P + 0.05)
    axes.set_aspect("equal")
    axes.set_title("before" if number == 0 else f"reduce-scatter, s = {number - 1}" if number < P else f"all-gather, s = {number - P}")
notes = bare(all_panels[4])
notes.text(0, 0.62, "A number says how many ranks'\nvalues the part holds.\nFramed: received in this step.\nGreen: complete.", va="center", fontsize=7.5,
           in_layout=False)
save(figure)
