"""What the checks beside it share. Imported, it lets them import what is in benchmarks/; what does not hold is told when they end."""

import pathlib
import sys

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
failures = []


def check(condition, what, context=""):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n{str(context)[-3000:]}".rstrip())


def end(name):
    """Ends the script, with an error where something did not hold."""
    print("\n".join(f"FAILED: {failure}" for failure in failures) or f"{name}: all right")
    sys.exit(bool(failures))
