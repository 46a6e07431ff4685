#!/usr/bin/env python3
"""C++ on the pages of the course comes from files that are compiled: a block of C++ holds lines `--8<-- "FILE:SECTION"` and nothing else, and
FILE, a source or header that the build compiles, has that section.

    tests/checks/course_code.py
"""

import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "course" / "tools"))
import snippets  # noqa: E402

COMPILED = re.compile(r"(course/code/[^/]+\.cpp|(include|tests|benchmarks)/.+\.[hc]pp|labs/[^/]+/(starter|tests)/[^/]+\.[hc]pp)$")
BLOCK = re.compile(r"^[ \t]*(?:```+|~~~+)[ \t]*\{?\.?(?:c|cc|cpp|c\+\+|cxx|hpp|h|cuda?)\b[^\n]*\n(.*?)^[ \t]*(?:```|~~~)", re.MULTILINE | re.DOTALL | re.IGNORECASE)


def faults_of(page):
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start()) + 1
        if rest := snippets.INCLUDE.sub("", block[1]).strip():
            yield f"{line}: a block of C++ that no compiler sees: {rest.splitlines()[0]}"
        for found in snippets.INCLUDE.finditer(block[1]):
            try:
                snippets.section(root, found[2], found[3])
            except snippets.SnippetError as error:
                yield f"{line}: {error}"
            if not COMPILED.match(found[2]):
                yield f"{line}: {found[2]} is no file that the build compiles"


def main():
    pages = sorted((root / "course").rglob("*.md"))
    faults = [f"{page.relative_to(root)}:{fault}" for page in pages for fault in faults_of(page)]
    blocks = sum(len(BLOCK.findall(page.read_text(encoding="utf-8"))) for page in pages)
    print("\n".join([*faults, f"{blocks} blocks of C++ on {len(pages)} pages, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
