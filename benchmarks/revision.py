"""Which state of this repository programs and scripts are of."""

import hashlib
import subprocess


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
