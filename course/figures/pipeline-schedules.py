"""Three schedules of four ranks and eight micro-batches, as benchmarks/schedule prints them: F, I and W take a unit each."""

from parallel_record import LEGEND, RECORD, timeline
from style import GREY, plt, save

NAMES = {"1f1b": "1F1B", "zb_h1": "ZB-H1", "zb_v": "ZB-V, two stages a rank (light blue: forward of the second)"}
end = max(RECORD["schedules"][name]["makespan"] for name in NAMES)
figure, panels = plt.subplots(3, 1, figsize=(7.4, 5.4), sharex=True)
for axes, (name, title) in zip(panels, NAMES.items()):
    schedule = RECORD["schedules"][name]
    timeline(axes, schedule["actions"], schedule["makespan"], "rank")
    for rank, saved in enumerate(schedule["peak_saved_micro_batches"]):
        axes.text(schedule["makespan"] + 0.3, rank, f"saves {saved:g}", va="center", fontsize=8, color=GREY)
    axes.set_title(f"{title}: bubble {schedule['makespan_bubble']:g} of {schedule['makespan']:g}")
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, end + 3)
panels[-1].set_xlabel(f"time →   {LEGEND}\nat the right: of how many micro-batches a rank saves activations, at most")
save(figure)
