"""A step of ZB-H1 on two ranks as it ran, below the plan at the run's mean times (benchmarks/schedule --trace)."""

from parallel_record import LEGEND, RECORD, timeline
from style import plt, save

record = RECORD["pipeline"]
end = max(record[name]["makespan"] for name in ("plan", "run"))
figure, panels = plt.subplots(2, 1, figsize=(7.4, 2.9), sharex=True)
for axes, (name, title) in zip(panels, {"plan": "plan, each action at its stage's mean time", "run": "run"}.items()):
    schedule = record[name]
    lists = [[[action, 1e3 * begin, 1e3 * stop] for action, begin, stop in actions] for actions in schedule["actions"]]
    timeline(axes, lists, 1e3 * schedule["makespan"], "rank")
    axes.set_title(f"{title}: {1e3 * schedule['makespan']:.0f} ms, bubble {100 * schedule['makespan_bubble'] / schedule['makespan']:.1f} %")
    axes.set_xlim(0, 1e3 * end)
panels[0].tick_params(axis="x", length=0)
panels[-1].set_xlabel(f"milliseconds   {LEGEND}")
save(figure)
