#!/usr/bin/env python3
"""Runs a program slower from outside, without its knowing: stops it by signals for a share of the time.

    benchmarks/regression/slowed.py SHARE PERIOD PROGRAM [ARGUMENT...]

SHARE 0.1, PERIOD 0.02: stopped for 2 ms of each 20 ms, so that what took 0.9 s takes 1 s. Late wake-ups are made up for in later periods. Ends as the program
ends; SIGTERM and SIGINT are handed on."""

import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import measured_runs  # noqa: E402


def run(share, period, words):
    """Exit status of the program; of one that a signal killed 128 + its number, as a shell has it."""
    # SIGKILL, for this process could not wake it any more, and a stopped program takes no other.
    process = subprocess.Popen(words, preexec_fn=lambda: measured_runs.dies_with_parent(signal.SIGKILL))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: process.send_signal(number))
    began, stopped = time.monotonic(), 0.0
    while process.poll() is None:
        time.sleep(period * (1 - share))
        behind = share * (time.monotonic() - began + period) - stopped
        if process.poll() is None and behind > 0:
            at = time.monotonic()
            process.send_signal(signal.SIGSTOP)
            time.sleep(min(behind, period))
            process.send_signal(signal.SIGCONT)
            stopped += time.monotonic() - at
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    if len(sys.argv) < 4 or not 0 <= float(sys.argv[1]) < 1 or not float(sys.argv[2]) > 0:
        sys.exit(__doc__)
    sys.exit(run(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
