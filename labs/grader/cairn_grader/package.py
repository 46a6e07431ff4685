"""A lab as one zip file: for Gradescope's autograder, or to hand out."""

import io
import stat
import zipfile

from .build import ROOT
from .lab import PRIVATE

WITHIN = 480  # seconds for all tests, of the 600 that Gradescope gives

SETUP = """#!/usr/bin/env bash
# Gradescope runs this once, when the autograder's image is built. What does not depend on a submission is compiled
# here.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
apt-get update
apt-get install -y --no-install-recommends @packages@
python3 -c 'import tomllib' 2>/dev/null || apt-get install -y --no-install-recommends python3-tomli
umask 022
cd "$here/cairn"
PYTHONPATH=labs/grader python3 -m cairn_grader.prepare @lab@
# Compilers and submissions run as a user without rights: they read headers, but neither the secret nor hidden tests.
chmod -R go=rX "$here"
chmod -R go= "$here/secret" "$here/cairn/labs/@lab@" "$here"/cairn/build/labs/{public,hidden}-*
"""

RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission, in /autograder; elsewhere AUTOGRADER names that folder.
set -uo pipefail
here=${AUTOGRADER:-/autograder}
source=$here/source
[[ -d $source/cairn ]] || source=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$here/results"
student=$(python3 -c 'import json, sys
try:
    users = json.load(open(sys.argv[1], encoding="utf-8"))["users"]
    print(",".join(sorted(str(user["email"]) for user in users)) or "student")
except (OSError, ValueError, KeyError, TypeError):
    print("student")' "$here/submission_metadata.json")
CAIRN_LAB_SECRET=$(cat "$source/secret")
export CAIRN_LAB_SECRET
python3 "$source/cairn/labs/grader/grade" @lab@ "$here/submission" --student "$student" --within @within@ --hidden @hidden@ \\
    --gradescope "$here/results/results.json"
status=$?
if [[ ! -s $here/results/results.json ]]; then  # nothing could be graded: say so instead of leaving nothing
    echo '{"score": 0, "output": "The autograder could not start (status '$status'). Tell your instructor.", "tests": []}' >"$here/results/results.json"
fi
exit 0
"""


def packages():
    """What a lab needs of Debian: group lab of .ci/packages."""
    lines = (line.split() for line in (ROOT / ".ci" / "packages").read_text(encoding="utf-8").splitlines())
    return [words[0] for words in lines if words[1:2] == ["lab"]]


def add(archive, name, data, executable=False):
    info = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))  # the same bytes from the same files
    info.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, data)


def add_tree(archive, folder, prefix, skip=()):
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not {"__pycache__", *skip} & set(parts):
            add(archive, "/".join((prefix, *parts)), path.read_bytes(), path.stat().st_mode & 0o100)


def for_gradescope(lab, secret, hidden="visible"):
    """setup.sh and run_autograder at the root, as Gradescope wants them, the library's headers, the grader and this lab without its solution."""
    words = {"@lab@": lab.name, "@packages@": " ".join(packages()), "@within@": str(WITHIN), "@hidden@": hidden}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in (("setup.sh", SETUP), ("run_autograder", RUN)):
            for word, meaning in words.items():
                text = text.replace(word, meaning)
            add(archive, name, text, True)
        add(archive, "secret", secret)
        add_tree(archive, ROOT / "include", "cairn/include")
        add_tree(archive, ROOT / "labs" / "grader", "cairn/labs/grader", skip=("template",))
        add_tree(archive, lab.folder, f"cairn/labs/{lab.name}", skip=PRIVATE)
        add_tree(archive, lab.part("grading"), f"cairn/labs/{lab.name}/grading")
    return out.getvalue()


HANDED_OUT = (".ci", ".cmake", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "benchmarks", "course", "include", "reference",
              "labs/README.md", "labs/mnist.hpp", "labs/mnist.toml", "labs/start")


def to_hand_out(lab):
    """What a student needs and may see: hand-out, starter and public tests; the library, its programs and pages, which the hand-out refers to; what
    compiles and runs all of it; of the other labs the hand-outs, which pages link to."""
    out, top = io.BytesIO(), lab.name
    with zipfile.ZipFile(out, "w") as archive:
        for path in (ROOT / name for name in HANDED_OUT):
            name = f"{top}/{path.relative_to(ROOT)}"
            if path.is_dir():
                add_tree(archive, path, name)
            else:
                add(archive, name, path.read_bytes(), path.stat().st_mode & 0o100)
        add_tree(archive, ROOT / "labs" / "grader", f"{top}/labs/grader", skip=("template", "new-lab", "package", "gradescope.schema.json"))
        add_tree(archive, lab.folder, f"{top}/labs/{lab.name}", skip=PRIVATE)
        for path in sorted((ROOT / "labs").glob("*/README.md")):
            if path.parent.name not in (lab.name, "grader"):
                add(archive, f"{top}/{path.relative_to(ROOT)}", path.read_bytes())
    return out.getvalue()
