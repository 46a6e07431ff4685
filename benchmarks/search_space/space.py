"""A space of trials, read from SPACE.toml and checked:

    workload = "lenet-mnist.toml"               # beside SPACE.toml, or one of benchmarks/workloads
    strategy = "grid"                           # grid, halving, population (strategies.py); --strategy goes before
    figure = "test_accuracy"                    # of a run's record: what trials are compared by
    set = {"lr_schedule.kind" = "constant"}     # settings of all trials
    [[stage]]
    epochs = 2
    vary = {"optimizer.lr" = [0.05, 0.1]}       # one choice for each combination of values
    [[stage]]
    epochs = 1
    choices = [{"optimizer.lr" = 0.01}, {"optimizer.lr" = 0.005, "optimizer.weight_decay" = 0}]

A trial takes one choice in each stage; what it sets holds in later stages too, until they set it anew. In the first stage, "init" = "RUN" begins with
the parameters of a run that fit (train --init), "" with none.
"""

import dataclasses
import hashlib
import itertools
import json
import pathlib
import re
import tomllib

WORKLOADS = pathlib.Path(__file__).resolve().parents[1] / "workloads"
KEYS = {"workload": str, "strategy": str, "figure": str, "set": dict, "stage": list, "halving": dict, "population": dict}
STAGE_KEYS = {"epochs": int, "vary": dict, "choices": list}
STRATEGIES = ("grid", "halving", "population")


class Bad(Exception):
    """A message for the user."""


@dataclasses.dataclass(frozen=True)
class Node:
    """A prefix of trials, which is trained once: ((epochs, ((setting, value), …)), …), a pair for each stage. `alone`: the leaf for which it is trained without sharing."""

    path: tuple
    alone: object = None

    @property
    def parent(self):
        return Node(self.path[:-1], self.alone) if len(self.path) > 1 else None

    @property
    def epochs(self):
        return sum(epochs for epochs, _ in self.path)

    @property
    def settings(self):
        """Those of its stages, the later ones over the earlier."""
        return dict(pair for _, chosen in self.path for pair in chosen)

    def child(self, epochs, chosen):
        return Node((*self.path, (epochs, chosen)), self.alone)


@dataclasses.dataclass
class Space:
    file: pathlib.Path
    workload: pathlib.Path
    workload_text: str
    strategy: str
    figure: str
    common: dict
    stages: list  # [(epochs, [settings as sorted pairs, …]), …]
    vary: dict  # values of the first stage, of which population draws
    eta: int = 2
    members: int = 8
    rounds: int = 5
    seed: int = 1
    names: dict = dataclasses.field(default_factory=dict)

    @property
    def epochs(self):
        """Of a whole trial: schedules of the learning rate go by them."""
        return self.stages[0][0] * self.rounds if self.strategy == "population" else sum(epochs for epochs, _ in self.stages)

    def name(self, node):
        """Of a node's directory: what its training depends on, so that a space that was edited trains what is new alone."""
        if node.alone:
            return f"alone-{self.name(node.alone)}-{len(node.path)}"
        if node not in self.names:
            text = json.dumps([self.workload_text, self.common, self.epochs, node.path])
            self.names[node] = f"{len(node.path)}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        return self.names[node]

    def samples(self):
        """Nodes that have each choice of each stage once."""
        nodes, earlier = [], ()
        for epochs, choices in self.stages:
            nodes += [Node((*earlier, (epochs, chosen))) for chosen in choices]
            earlier = (*earlier, (epochs, choices[0]))
        return nodes


def read(file, strategy=None, settings=()):
    """The space in `file`; `settings`: KEY=VALUE over its `set`. Raises Bad naming file and key."""
    try:
        text = tomllib.loads(file.read_text())
    except (OSError, ValueError) as problem:
        raise Bad(f"{file}: {problem}") from None

    def take(table, keys, where):
        for key, value in table.items():
            if key not in keys:
                raise Bad(f"{file}: {where}{key} is not known; there are {', '.join(keys)}")
            if type(value) is not keys[key]:
                raise Bad(f"{file}: {where}{key} is no {keys[key].__name__}")
        return table

    take(text, KEYS, "")
    if "workload" not in text or not text.get("stage"):
        raise Bad(f"{file}: a space needs workload = \"FILE.toml\" and at least one [[stage]]")
    workload = next((path for path in (file.parent / text["workload"], WORKLOADS / text["workload"]) if path.is_file()), None)
    if not workload:
        raise Bad(f"{file}: workload {text['workload']} is neither in {file.parent} nor in {WORKLOADS}")
    strategy = strategy or text.get("strategy", "grid")
    if strategy not in STRATEGIES:
        raise Bad(f"{file}: strategy {strategy} is not known; there are {', '.join(STRATEGIES)}")
    common = dict(text.get("set", {}))
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise Bad(f"--set {setting}: KEY=VALUE is needed")
        common[key] = read_value(value)
    stages = []
    for number, stage in enumerate(text["stage"], 1):
        if not isinstance(stage, dict):
            raise Bad(f"{file}: stage {number} is no table")
        stages.append(read_stage(file, f"stage {number}: ", take(stage, STAGE_KEYS, f"stage {number}: "), number == 1))
    figure = text.get("figure", "test_loss")
    if not re.fullmatch("[A-Za-z0-9_]+", figure):
        raise Bad(f"{file}: figure is a name of a run's record, such as test_accuracy")
    if "train.epochs" in common or any("train.epochs" in dict(chosen) for _, choices in stages for chosen in choices):
        raise Bad(f"{file}: train.epochs are those of the stages together; leave it out")
    space = Space(file, workload, workload.read_text(), strategy, figure, common, stages, text["stage"][0].get("vary", {}))
    space.eta = take(text.get("halving", {}), {"eta": int}, "halving.").get("eta", 2)
    for key, value in take(text.get("population", {}), {"members": int, "rounds": int, "seed": int}, "population.").items():
        setattr(space, key, value)
    if space.eta < 2 or space.members < 2 or space.rounds < 1:
        raise Bad(f"{file}: halving.eta and population.members are at least 2, population.rounds at least 1")
    if strategy == "population" and (len(stages) != 1 or not space.vary):
        raise Bad(f"{file}: strategy population has one stage, a round of it, with vary")
    return space


def read_value(text):
    """A value on the command line: as TOML, else a text."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except ValueError:
        return text


def read_stage(file, where, stage, is_first):
    """(epochs, choices) of a stage."""
    epochs = stage.get("epochs", 0)
    if epochs < 1:
        raise Bad(f"{file}: {where}epochs is a whole number from 1 on")
    for key, values in stage.get("vary", {}).items():
        if not isinstance(values, list) or not values:
            raise Bad(f"{file}: {where}vary.\"{key}\" is a list of at least one value")
    choices = stage.get("choices", [{}])
    if not choices or not all(isinstance(choice, dict) for choice in choices):
        raise Bad(f"{file}: {where}choices is a list of tables, at least one: the space is empty without")
    varied = [[(key, value) for value in values] for key, values in stage.get("vary", {}).items()]
    all_choices = []
    for choice, values in itertools.product(choices, itertools.product(*varied)):
        twice = [key for key, _ in values if key in choice]
        if twice:
            raise Bad(f"{file}: {where}{twice[0]} is in vary and in choices")
        chosen = tuple(sorted({**choice, **dict(values)}.items()))
        if not is_first and "init" in dict(chosen):
            raise Bad(f"{file}: {where}init is for the first stage: later ones go on from the one before")
        if any(isinstance(value, (dict, list)) for _, value in chosen):
            raise Bad(f"{file}: {where}values are numbers, texts or booleans; a setting's path is quoted: \"optimizer.lr\" = 0.1")
        if chosen in all_choices:
            raise Bad(f"{file}: {where}two choices are the same, {dict(chosen)}, so that trials would be duplicates")
        all_choices.append(chosen)
    return epochs, all_choices
