"""One annotated source is the solution and the starter. In it,

    //! solution
    ... lines that only the solution has ...
    //! starter
    // ... lines that only the starter has, commented out, so that the solution compiles as it stands ...
    //! end

and everything else is in both. The `//! starter` part may be left out.
"""

import re

MARK = re.compile(r"^\s*//! ?(solution|starter|end)\b\s*$", re.M)


def split(text, name):
    """(solution, starter). ValueError names file and line of a marker out of place."""
    solution, starter, where = [], [], "both"
    for number, line in enumerate(text.splitlines(), 1):
        mark = MARK.match(line)
        if mark:
            allowed = {"both": ("solution",), "solution": ("starter", "end"), "starter": ("end",)}[where]
            if mark[1] not in allowed:
                raise ValueError(f"{name}:{number}: //! {mark[1]} where {' or '.join(allowed)} may stand")
            where = "both" if mark[1] == "end" else mark[1]
        elif where == "both":
            solution.append(line)
            starter.append(line)
        elif where == "solution":
            solution.append(line)
        else:
            starter.append(re.sub(r"^(\s*)// ?", r"\1", line))
    if where != "both":
        raise ValueError(f"{name}: the file ends inside //! {where}")
    return "\n".join(solution) + "\n", "\n".join(starter) + "\n"


def write(lab, to_starter=None, to_solution=None):
    """Writes starter and solution of a lab into folders, which must exist."""
    for name in lab.files:
        source = lab.part("solution") / name
        solution, starter = split(source.read_text(encoding="utf-8"), source)
        if to_starter:
            (to_starter / name).write_text(starter, encoding="utf-8")
        if to_solution:
            (to_solution / name).write_text(solution, encoding="utf-8")


def stale(lab):
    """Files of starter/ that are not what the annotated solution makes of them."""
    wrong = []
    for name in lab.files:
        source, target = lab.part("solution") / name, lab.folder / "starter" / name
        if not target.exists() or target.read_text(encoding="utf-8") != split(source.read_text(encoding="utf-8"), source)[1]:
            wrong.append(target)
    return wrong
