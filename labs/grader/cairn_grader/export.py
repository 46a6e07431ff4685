"""The repository in two trees: what a course publishes, and what it keeps (lab.PRIVATE)."""

import pathlib
import shutil
import subprocess
import tempfile

from . import variants
from .build import ROOT
from .lab import PRIVATE, LabError, every


def files():
    """What belongs to the repository, relative to its root."""
    said = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if said.returncode:
        raise LabError(f"{ROOT} is no git checkout, so nobody can say what belongs to it: {said.stderr.strip()}")
    return [name for name in said.stdout.split("\0") if name and (ROOT / name).is_file()]


def copy(name, source, target):
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source / name, target / name, follow_symlinks=False)


def write_lab(lab, number, public, private, whole):
    """A lab's text of this number, divided."""
    with tempfile.TemporaryDirectory(prefix="cairn-export-") as folder:
        text = pathlib.Path(folder, lab.name)
        variants.write(lab, number, text)
        for path in sorted(path for path in text.rglob("*") if path.is_file()):
            name = path.relative_to(text)
            if whole or name.parts[0] not in PRIVATE:
                copy(name, text, public / "labs" / lab.name)
            if private and name.parts[0] in PRIVATE:
                copy(name, text, private / lab.name)


def write(secret, worked, public, private=None):
    """Makes both folders, or neither; yields what was drawn. `worked`: the lab that stays whole."""
    labs = {lab.name: lab for lab in every()}
    targets = [path.resolve() for path in (public, private) if path]
    for path in targets:
        if path.exists():
            raise LabError(f"{path} is there already; remove it or name another folder")
    if private and (targets[1].is_relative_to(targets[0]) or targets[0].is_relative_to(targets[1])):
        raise LabError("one of the two folders would be inside the other")
    new = []
    try:
        for path in targets:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.append(pathlib.Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent)))
        for name in files():
            parts = pathlib.PurePath(name).parts
            if not (parts[0] == "labs" and parts[1] in labs):
                copy(name, ROOT, new[0])
        for lab in labs.values():
            number = variants.drawn(lab, secret) if secret else 0
            write_lab(lab, number, new[0], new[1] if private else None, lab.name == worked)
            yield f"{lab.name}: {variants.describe(lab, number)}{', whole' if lab.name == worked else ''}"
        for path, target, mode in zip(new, targets, (0o755, 0o700)):
            path.chmod(mode)
            path.rename(target)
    finally:
        for path in new:
            shutil.rmtree(path, ignore_errors=True)
