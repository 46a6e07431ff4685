"""What may differ from one course to the next, so that a solution of another course fails: the order of bits, which of equals wins, the layout of a
message. variants.toml of a lab:

    [[variant]]
    name = "highest-bit-first"

    [[variant.change]]
    file = "solution/sign.hpp"      # a file of the lab; the starter follows from its solution
    find = "bit 0 being the lowest"  # stands once in the file as the variants before it left it, or `times`
    replace = "bit 0 being the highest"

The lab in the repository is text 0. A lab with k variants has 2^k texts: in number n, variant i is applied if bit i of n is 1.
"""

import pathlib
import shutil
import time

from . import build, starter
from .lab import PRIVATE, LabError, bytes_drawn, load, tomllib


def variants(lab):
    path = lab.part("variants.toml")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))["variant"] if path.exists() else []
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise LabError(f"{path}: {error!r}") from error


def numbers(lab):
    """Of all texts."""
    return range(1 << len(variants(lab)))


def drawn(lab, secret):
    """The number of the text that a course with this secret gets."""
    return sum((bytes_drawn(secret, "variant", lab.name, variant["name"])[0] & 1) << i for i, variant in enumerate(variants(lab)))


def today(lab):
    """A number that changes from day to day: whoever checks labs often checks all texts."""
    return int(time.time()) // 86400 % len(numbers(lab))


def three(lab):
    """The first text, the last, and one of those between that changes from day to day."""
    every = numbers(lab)
    between = every[1:-1]
    return sorted({every[0], every[-1]} | ({between[today(lab) % len(between)]} if between else set()))


def write(lab, number, folder):
    """The lab's text of this number in `folder`, which is made: a lab like any other, without variants."""
    shutil.copytree(lab.folder, folder, ignore=shutil.ignore_patterns("variants.toml", "__pycache__"))
    for name in PRIVATE:
        if name != "variants.toml" and lab.part(name).exists() and not (folder / name).exists():
            (shutil.copytree if lab.part(name).is_dir() else shutil.copyfile)(lab.part(name), folder / name)
    for i, variant in enumerate(variants(lab)):
        for change in variant["change"] if number >> i & 1 else ():
            apply(f"variant {variant['name']}", change, folder)
    changed = load(folder)
    starter.write(changed, to_starter=folder / "starter")
    return changed


def apply(what, change, folder):
    """Replaces one text in a file. LabError if it does not stand there as often as the change says."""
    path = folder / change["file"]
    if not path.is_file():
        raise LabError(f"{what}: there is no {change['file']}")
    text, times = path.read_text(encoding="utf-8"), change.get("times", 1)
    if text.count(change["find"]) != times:
        raise LabError(f"{what}: {change['find']!r} stands {text.count(change['find'])} times in {change['file']}, not {times}")
    path.write_text(text.replace(change["find"], change["replace"]), encoding="utf-8")


def of_number(lab, number):
    """The lab's text of this number, kept in build/labs."""
    if number not in numbers(lab):
        raise LabError(f"{lab.name} has the texts 0 to {numbers(lab)[-1]}, not {number}")
    if number == 0:
        return lab
    parts = [lab.folder, *(lab.part(name) for name in PRIVATE)]
    files = sorted({path for part in parts for path in (part.rglob("*") if part.is_dir() else [part]) if path.is_file()})
    return load(build.kept(f"text-{number}-" + build.digest(lab.name, *files), lambda folder: write(lab, number, folder / lab.name), mode=0o700) / lab.name)


def describe(lab, number):
    return ", ".join(variant["name"] for i, variant in enumerate(variants(lab)) if number >> i & 1) or "the repository's text"
