#!/usr/bin/env python3
"""Code on the pages of the course comes from files that are compiled.

    tests/checks/course_code.py [--write]

A page has `<!-- code/FILE NAME -->` before a block of C++; the block must be what stands between two lines `// [NAME]` of
course/code/FILE, less the indentation. --write puts it there.
"""

import pathlib
import re
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parents[2] / "course"


def section(file, name):
    parts = re.split(rf"^\s*// \[{re.escape(name)}\]\n", (root / "code" / file).read_text(), flags=re.MULTILINE)
    if len(parts) != 3:
        sys.exit(f"course/code/{file}: section [{name}] needs one line before and one behind it")
    return textwrap.dedent(parts[1])


def main():
    write, stale, blocks = "--write" in sys.argv, [], 0
    for page in sorted(root.rglob("*.md")):
        text = page.read_text()

        def replace(match):
            nonlocal blocks
            blocks += 1
            return f"<!-- code/{match[1]} {match[2]} -->\n```cpp\n{section(match[1], match[2])}```\n"

        fresh = re.sub(r"<!-- code/(\S+) (\S+) -->\n```cpp\n(?:.*?\n)??```\n", replace, text, flags=re.DOTALL)
        if fresh != text and write:
            page.write_text(fresh)
        elif fresh != text:
            stale.append(page.relative_to(root.parent).as_posix())
    print(f"{blocks} blocks of code" + (f"; not as in course/code: {', '.join(stale)} (course_code.py --write)" if stale else ", all as compiled"))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
