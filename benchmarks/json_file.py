"""Writing a JSON file so that whoever stops the program leaves the old one or the new one, for the scripts beside it."""

import json


def write(path, contents, indent=1):
    """OSError where it cannot be written; what was there stays."""
    new = path.with_name(path.name + ".new")
    try:
        new.write_text(json.dumps(contents, indent=indent) + "\n")
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
