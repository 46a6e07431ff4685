"""Code on pages comes from files that are compiled. A page has, inside of a block of code, the line

    --8<-- "course/code/collectives.cpp:naive"

and the file, named from the root of the repository, has what is shown between `// --8<-- [start:naive]` and `// --8<-- [end:naive]`. That is
the notation of pymdownx.snippets, whose version in Debian 12 knows no sections yet.
"""

import pathlib
import re
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "labs" / "grader"))
from cairn_grader.lab import PRIVATE  # noqa: E402

INCLUDE = re.compile(r'^([ \t]*)-{2,}8<-{2,}[ \t]+"([^":\n]+)(?::([\w-]+))?"[ \t]*$', re.MULTILINE)
MARK = re.compile(r"^[ \t]*(?://|#)[ \t]*-{2,}8<-{2,}[ \t]*\[(start|end):([\w-]+)\][ \t]*\n", re.MULTILINE)
WITHHELD = re.compile(f"labs/[^/]+/({'|'.join(map(re.escape, PRIVATE))})(/|$)")  # what students do not get


class SnippetError(Exception):
    pass


def section(root, path, name):
    """The text of a section, or of the whole file, less its indentation. SnippetError says what is wrong."""
    if WITHHELD.match(path):
        raise SnippetError(f"{path} is not for students")
    if not (root / path).is_file():
        raise SnippetError(f"there is no file {path}")
    text = (root / path).read_text(encoding="utf-8")
    if name:
        marks = [m for m in MARK.finditer(text) if m[2] == name]
        if [m[1] for m in marks] != ["start", "end"]:
            raise SnippetError(f"{path}: section {name} needs one line [start:{name}] and then one line [end:{name}]")
        text = text[marks[0].end():marks[1].start()]
    return textwrap.dedent(MARK.sub("", text)).strip("\n")


def expand(root, page):
    """A page's text with the code that it names."""
    return INCLUDE.sub(lambda m: textwrap.indent(section(root, m[2], m[3]), m[1]), page)
