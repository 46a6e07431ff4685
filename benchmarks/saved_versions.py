"""Versions of a run's state, as scripts look at them without its programs: folders STEP-ATTEMPT, in RUN/states or in a host's own directory, and their
manifests (include/cairn/state/{version,manifest}.hpp)."""

import pathlib
import re

NAME = re.compile(r"(\d{8})-[0-9a-f]{12}")


def by_step(states):
    """step -> folder of the versions that are listed, in the order of their steps; a version in the making has another name."""
    states = pathlib.Path(states)
    try:
        return {int(folder.name[:8]): folder for folder in sorted(states.iterdir()) if NAME.fullmatch(folder.name)}
    except FileNotFoundError:
        return {}


def newest_step(states):
    """-1 without a version."""
    return max(by_step(states), default=-1)


def manifest(version):
    """(bytes of its packs, digest of the version, {tensor: digest})."""
    size, digest, tensors = 0, None, {}
    for line in (version / "manifest").read_text().splitlines():
        word, rest = line.split(" ", 1)
        if word == "pack":
            size += int(rest.split(" ")[0])
        elif word == "digest":
            digest = rest.split(" ")[0]
        elif word == "tensor":  # tensor TYPE SHAPE DIGEST NAME
            *_, tensor_digest, name = rest.split(" ", 3)
            tensors[name] = tensor_digest
    return size, digest, tensors
