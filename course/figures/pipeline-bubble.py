"""Schedules of a pipeline of four stages and eight micro-batches: GPipe and 1F1B. Backward takes twice as long as forward."""

from style import BLUE, GREY, INK, ORANGE, PALE, plt, save

P, M, F, B = 4, 8, 1, 2


def programs(kind):
    """For each stage, the order of its work: ("F" or "B", micro-batch)."""
    for s in range(P):
        if kind == "GPipe":
            yield [("F", i) for i in range(M)] + [("B", i) for i in range(M)]
        else:
            warm = min(P - 1 - s, M)
            order = [("F", i) for i in range(warm)]
            for i in range(M - warm):
                order += [("F", warm + i), ("B", i)]
            yield order + [("B", i) for i in range(M - warm, M)]


def timeline(kind):
    """(stage, what, micro-batch, begin, end): each begins when its stage is free and what it needs is there."""
    work, done, free, at = list(programs(kind)), {}, [0] * P, [0] * P
    while any(at[s] < len(work[s]) for s in range(P)):
        for s in range(P):
            while at[s] < len(work[s]):
                what, i = work[s][at[s]]
                needs = ("F", i, s - 1) if what == "F" and s else ("B", i, s + 1) if what == "B" and s < P - 1 else ("F", i, s) if what == "B" else None
                if needs and needs not in done:
                    break
                begin = max(free[s], done.get(needs, 0))
                free[s] = done[what, i, s] = begin + (F if what == "F" else B)
                at[s] += 1
                yield s, what, i, begin, free[s]


figure, panels = plt.subplots(2, 1, figsize=(7.4, 3.8), sharex=True)
for axes, kind in zip(panels, ("GPipe", "1F1B")):
    events = list(timeline(kind))
    total = max(end for *_, end in events)
    assert total == (M + P - 1) * (F + B), (kind, total)  # the closed form
    held = [0] * P
    peak = [0] * P
    for s, what, *_ in sorted(events, key=lambda e: e[3]):
        held[s] += 1 if what == "F" else -1
        peak[s] = max(peak[s], held[s])
    axes.barh(range(P), [total] * P, color=PALE, height=0.86)
    for s, what, i, begin, end in events:
        axes.barh(s, end - begin, left=begin, height=0.86, color=BLUE if what == "F" else ORANGE, edgecolor="white", linewidth=1)
        axes.text((begin + end) / 2, s, str(i), ha="center", va="center", fontsize=7, color="white" if what == "F" else INK)
    axes.set_yticks(range(P), [f"stage {s}" for s in range(P)])
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_visible(False)
    for s in range(P):
        axes.text(total + 0.4, s, f"holds {peak[s]}", va="center", fontsize=8, color=GREY)
    axes.set_title(f"{kind}: bubble {P - 1} of {M + P - 1} slots")
    axes.set_xlim(0, total + 4)
panels[1].set_xlabel("time →   blue: forward, orange: backward, grey: bubble\nat the right: of how many micro-batches a stage holds activations, at most")
save(figure)
