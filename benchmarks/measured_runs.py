"""What the scripts that compare Cairn with peers on several ranks share: programs that print a result, and how results are summed up."""

import argparse
import ctypes
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Failure(Exception):
    """A message for the user; no traceback."""


class Late(Failure):
    """A program did not end in time."""


def end(process, grace=10):
    """Ends a program and what it started in its group: first asks, so that mpirun ends its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=grace)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def cache():
    """The folder of what is measured once a machine: that of the programs' kernel choices (CAIRN_CACHE)."""
    return pathlib.Path(os.environ.get("CAIRN_CACHE") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "cairn")


def dies_with_parent(number=signal.SIGTERM):
    """Of a program that is started: it gets this signal when this one is killed, so that it does not disturb what is measured later."""
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def last_lines(output, count=12):
    return "\n".join("    " + line for line in output.splitlines()[-count:]) or "    (no output)"


def output_of(command, timeout, **environment):
    """Runs a program and returns all that it printed. `environment`: variables over those of this program. Failure where it cannot be started, or fails."""
    command = [str(word) for word in command]
    shown = shlex.join(command)
    # Both sides choose their own kernels: inherited choices may name an older core.
    inherited = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=inherited | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=dies_with_parent,
        )
    except OSError as error:
        raise Failure(f"cannot be started: {shown}: {error}") from error
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as late:
        raise Late(f"no end after {timeout:.0f} s (see --timeout): {shown}") from late
    finally:
        if process.returncode is None:
            end(process)
    if process.returncode != 0:
        raise Failure(f"{shown}\nfailed (exit status {process.returncode}); its last lines:\n{last_lines(output)}")
    return output


def last_object(output, figures=()):
    """The last line that is a JSON object in which these figures are positive; None without one."""
    for line in reversed(output.splitlines()):
        try:
            result = json.loads(line)
            if isinstance(result, dict) and all(result[figure] > 0 for figure in figures):
                return result
        except (KeyError, TypeError, ValueError):
            continue
    return None


def run_child(command, timeout, figures=("samples_per_s",)):
    """Runs a program and returns the last_object() that it printed."""
    output = output_of(command, timeout)
    if (result := last_object(output, figures)) is not None:
        return result
    shown = shlex.join(map(str, command))
    raise Failure(f"{shown}\nended well, but printed no JSON object with positive {' and '.join(figures)}:\n{last_lines(output)}")


def run_peer(command, timeout):
    """The same of a program whose memory counts too."""
    return run_child(command, timeout, ("samples_per_s", "peak_bytes"))


def require_same(result, key, expected, program):
    if result.get(key, expected) != expected:
        raise Failure(f"{program} ran with {key} = {result[key]}, not {expected}: the comparison would not be fair")


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def print_spread(name, values, note=""):
    print(f"{name:36s} {values['median']:9.4g}   ({values['min']:.4g} - {values['max']:.4g}){note}")


def find_program(given, build, *candidates, needs):
    """The file `given`, or the first candidate in the build folder; `needs`: targets, and what these take."""
    for path in [given] if given else [build / candidate for candidate in candidates]:
        if path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
    raise Failure(
        f"there is no {given or build / candidates[0]}. Build it:  cmake --preset release && "
        f"cmake --build --preset release --target {needs}"
    )


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return value


def absolute(text):
    """Of a path that is given: run_child() starts programs in the repository's root."""
    return pathlib.Path(text).resolve()


def default_mpirun():
    # Without binding: libtorch's communication threads would share the one core of their rank.
    command = "mpirun --oversubscribe --bind-to none"
    return command + " --allow-run-as-root" if os.geteuid() == 0 else command
