"""Commands and links of pages, for scripts.py. A program that a page runs was built by a command above it, or by a page that the text above it
links to. Files of the repository that a command names exist. A link to a part of a page leads to a heading."""

import json
import os
import re

BLOCK = re.compile(r"^[ \t]*```sh\n(.*?)^[ \t]*```", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def built(text, root):
    """Paths of the programs that commands in this text build."""
    everything = [path.stem for path in (root / "benchmarks").iterdir()]
    for preset, options in re.findall(r"cmake --build --preset (\w+)([^&\n`]*)", text):
        targets = re.search(r"--target ((?:\w+ ?)+)", options)
        yield from (f"build/{preset}/benchmarks/{name}" for name in (targets[1].split() if targets else everything))
    yield from re.findall(r" -o (\S+)", text)


def command_faults(path, root):
    text = path.read_text(encoding="utf-8")
    presets = {preset["name"] for preset in json.loads((root / "CMakePresets.json").read_text(encoding="utf-8"))["configurePresets"]}
    for block in BLOCK.finditer(text):
        for line in block[1].replace("\\\n", " ").splitlines():
            above = text[:block.end()]  # with the block: its first lines build what later ones run
            pages = [path.parent / page for page, _ in LINK.findall(above) if page.endswith(".md")]
            known = {*built(above, root), *built("\n".join(page.read_text(encoding="utf-8") for page in pages if page.exists()), root)}
            for part in re.split(r"&&|;|\||>", re.sub(r"(^|\s)#.*", "", line)):
                words = [word.removeprefix("./") for word in part.split()]
                yield from (f"uses the preset {name}, which does not exist" for name in re.findall(r"--preset (\w+)", part) if name not in presets)
                for word in words:
                    if re.fullmatch(r"build/\w+/benchmarks/\w+", word) and word not in known:
                        yield f"runs {word}, which no command above it builds, nor a page that the text above links to"
                    elif re.match(r"(benchmarks|labs|tests|course|\.ci)/[\w/.-]+$", word) and not (root / word).exists():
                        yield f"names {word}, which does not exist"
                if words and (root / words[0]).is_file() and not os.access(root / words[0], os.X_OK):
                    yield f"runs {words[0]}, which is not executable"


def anchors(text):
    """Names of a page's headings, as GitHub and the course's site make them."""
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        yield re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
    yield from re.findall(r'<a (?:id|name)="([^"]*)"', text)


def anchor_faults(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, part in LINK.findall(text):
        page = path.parent / target if target else path
        if part and page.suffix == ".md" and not re.match("[a-z]+:", target) and page.exists() and part not in anchors(page.read_text(encoding="utf-8")):
            yield f"links to {target}#{part}; there is no such heading"
