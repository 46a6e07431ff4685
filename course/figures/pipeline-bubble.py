"""Two schedules of four stages and eight micro-batches, as benchmarks/schedule prints them. Backward takes twice as long as forward."""

from parallel_record import RECORD, timeline
from style import GREY, plt, save

P, M, F, B = 4, 8, 1, 2
figure, panels = plt.subplots(2, 1, figsize=(7.4, 3.8), sharex=True)
for axes, (name, title) in zip(panels, {"gpipe": "GPipe", "1f1b": "1F1B"}.items()):
    schedule = RECORD["schedules"][name]
    total = schedule["makespan"]
    assert total == (M + P - 1) * (F + B), (name, total)  # the closed form
    timeline(axes, schedule["actions"], total, "stage")
    for stage, saved in enumerate(schedule["peak_saved_micro_batches"]):
        axes.text(total + 0.4, stage, f"holds {saved:g}", va="center", fontsize=8, color=GREY)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_title(f"{title}: bubble {P - 1} of {M + P - 1} slots")
    axes.set_xlim(0, total + 4)
panels[1].set_xlabel("time →   blue: forward, orange and green: backward, grey: bubble\n"
                     "at the right: of how many micro-batches a stage holds activations, at most")
save(figure)
