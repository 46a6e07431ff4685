"""What optimizers are tuned over, and points of it, for tune_optimizers and batch_scaling."""

import random

# Log-uniform from low to high. "1 - SETTING": one minus the setting is drawn. Sources:
#   sgd, adamw, lamb: AlgoPerf (Dahl et al. 2023), github.com/mlcommons/algorithmic-efficiency,
#     reference_algorithms/paper_baselines/*/tuning_search_space.json; soap: its Shampoo, with steps as long as Adam's.
#   shampoo, kfac: directions as long as the gradient, in sgd's place: sgd's ranges. The damping has the four decades of
#     "KFAC vs Adam" in the documents of github.com/tensorflow/kfac, around the default of kfac-pytorch, 1e-3.
#   muon: the grids of Wen et al. 2025, optimizer_sweep of github.com/marin-community/marin; weight decay as for adamw.
SGD = {"optimizer.lr": (2e-2, 5), "1 - optimizer.momentum": (5e-3, 0.3), "optimizer.weight_decay": (1e-7, 5e-5)}
RANGES = {
    "sgd": SGD,
    "adamw": {"optimizer.lr": (1e-4, 1e-2), "1 - optimizer.beta1": (2e-2, 0.5), "optimizer.weight_decay": (5e-3, 1)},
    "lamb": {"optimizer.lr": (1e-4, 1e-2), "1 - optimizer.beta1": (5e-2, 0.3), "optimizer.weight_decay": (1e-3, 1)},
    "shampoo": SGD,
    "kfac": {**SGD, "kfac.damping": (1e-5, 1e-1)},
    "soap": {"optimizer.lr": (1e-4, 1e-2), "1 - soap.beta1": (1e-2, 0.15), "optimizer.weight_decay": (5e-3, 1)},
    "muon": {"optimizer.lr": (8e-3, 0.128), "1 - muon.momentum": (2e-2, 0.2), "optimizer.weight_decay": (5e-3, 1)},
}
# Of every trial: AlgoPerf has 0.02 to 0.1 of the steps as warm-up. A schedule takes part of the budget, or all of it: a
# fast optimizer has to end its schedule early to show it.
WARM_UP = (0.02, 0.1)
LENGTHS = (0.25, 0.5, 0.75, 1.0)


def fixed(kind):
    """Settings of all trials of a kind."""
    base = ["optimizer.base=sgd"] if kind in ("kfac", "shampoo") else []
    nesterov = ["optimizer.nesterov=true"] if kind in ("sgd", "kfac", "shampoo") else []
    return [f"optimizer.kind={kind}", *base, *nesterov]


def points(n, dimensions):
    """n points of the unit cube, of which each n-th of each axis has one (Latin hypercube, McKay et al. 1979; AlgoPerf shuffles the axes of Halton's
    points, to the same end). The same each time."""
    chance = random.Random(1)
    return list(zip(*([(k + 0.5) / n for k in chance.sample(range(n), n)] for _ in range(dimensions))))


def between(low, high, part):
    return low * (high / low) ** part


def setting(name, value):
    return f"{name.removeprefix('1 - ')}={1 - value if name.startswith('1 - ') else value:.4g}"


def trials(kind, n):
    """[(settings, part of the budget that the schedule takes)] of n trials."""
    ranges = RANGES[kind]
    found = []
    for *point, warm_up, length in points(n, len(ranges) + 2):
        drawn = [setting(name, between(low, high, part)) for (name, (low, high)), part in zip(ranges.items(), point)]
        found.append(([*fixed(kind), *drawn, "lr_schedule.kind=one_cycle", setting("lr_schedule.pct_start", between(*WARM_UP, warm_up))],
                      LENGTHS[int(length * len(LENGTHS))]))
    return found
