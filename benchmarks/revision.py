"""Which state of this repository programs and scripts are of.

    python3 benchmarks/revision.py PROGRAM    leaves that in PROGRAM.revision, where the program looks for it: the build's last step"""

import hashlib
import pathlib
import subprocess
import sys


def of(root):
    """The commit, with a hash of what was changed since, if anything was: a1b2c3d4e5f6+1a2b3c4d. None where there is no git or no history."""

    def git(*arguments):
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True, timeout=60).stdout

    try:
        commit = git("rev-parse", "--short=12", "HEAD").decode().strip()
        changes = git("diff", "HEAD")
        for name in sorted(git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")):
            if name:
                changes += name + b"\0" + (root / name.decode(errors="surrogateescape")).read_bytes()
    except (OSError, subprocess.SubprocessError):
        return None
    return commit + (f"+{hashlib.sha256(changes).hexdigest()[:8]}" if changes else "")


if __name__ == "__main__":
    pathlib.Path(sys.argv[1] + ".revision").write_text((of(pathlib.Path(__file__).resolve().parent.parent) or "") + "\n")
