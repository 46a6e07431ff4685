"""Which prefixes of trials to train. A strategy is a function of the space and of what is known so far, value(node): the figure of a prefix that is
trained, None of one that is not, -inf of one that diverged, and the larger the better. It returns all that it wants, earlier ones among them, so
that a search that was killed goes on as if nobody had."""

import math
import random

from search_space.space import Node


def grid(space, value):
    """Every choice of every stage."""
    return [node for family in families(space, value, lambda nodes: nodes) for node in family]


def halving(space, value):
    """After each stage the better 1/η of siblings go on (successive halving, Jamieson & Talwalkar 2016); versions of the others stay."""
    def better(siblings):
        if any(value(node) is None for node in siblings):
            return []
        return sorted(siblings, key=value, reverse=True)[:max(1, math.ceil(len(siblings) / space.eta))]

    return [node for family in families(space, value, better) for node in family]


def families(space, value, go_on):
    """Siblings, stage by stage, of those that go_on(siblings) lets go on."""
    epochs, choices = space.stages[0]
    found = family = [[Node(((epochs, chosen),)) for chosen in choices]]
    for epochs, choices in space.stages[1:]:
        family = [[node.child(epochs, chosen) for chosen in choices]
                  for siblings in family for node in go_on(siblings) if value(node) != -math.inf]
        found = found + family
    return found


def population(space, value):
    """Population-based training (Jaderberg et al. 2017): after each round the worst quarter go on from versions of the best, with settings that are changed."""
    epochs = space.stages[0][0]

    def chance(*what):  # its own numbers for each use, whatever order they are drawn in
        return random.Random("/".join(map(str, (space.seed, *what))))

    orders = {key: chance(key).sample(values, len(values)) for key, values in space.vary.items()}

    def drawn(member):  # each value of a setting equally often
        chosen = {key: values[member % len(values)] for key, values in orders.items()}
        return tuple(sorted({**dict(space.stages[0][1][0]), **chosen}.items()))

    def explored(settings, round_, member):
        """Numbers × 0.8 or × 1.25, within the range of the space; another value of the list of all others."""
        new = dict(settings)
        for key, values in space.vary.items():
            numbers = all(type(v) in (int, float) for v in values)
            change = chance(round_, member, key)
            new[key] = min(max(values), max(min(values), float(f"{new[key] * change.choice((0.8, 1.25)):.4g}"))) if numbers else change.choice(values)
        return tuple(sorted(new.items()))

    members = [Node(((epochs, drawn(member)),)) for member in range(space.members)]
    found = list(members)
    for round_ in range(1, space.rounds):
        if any(value(node) is None for node in members):
            break
        ranked = sorted(range(len(members)), key=lambda m: (value(members[m]), -m), reverse=True)
        quarter = max(1, len(members) // 4)
        source = {bad: good for bad, good in zip(ranked[-quarter:], ranked) if bad != good}
        if value(members[ranked[0]]) == -math.inf:
            break
        best = ranked[0]
        members = [members[source.get(m, m if value(members[m]) != -math.inf else best)] for m in range(len(members))]
        members = [node.child(epochs, explored(node.path[-1][1], round_, m) if m in source else node.path[-1][1]) for m, node in enumerate(members)]
        found += members
    return found


def wanted(space, value):
    """The nodes of the space's strategy, each once, parents before children."""
    strategy = {"grid": grid, "halving": halving, "population": population}[space.strategy]
    return list(dict.fromkeys(strategy(space, value)))


def leaves(nodes):
    """Those from which none of the others goes on: the trials."""
    parents = {node.parent for node in nodes}
    return [node for node in nodes if node not in parents]


def all_alone(trials):
    """The nodes of the same trials, where nothing is shared."""
    return [Node(trial.path[:stages], trial) for trial in trials for stages in range(1, len(trial.path) + 1)]
