#!/usr/bin/env python3
"""Each kernel that a program launches is in it as code for GPUs too.

    tests/checks/registered_kernels.py PROGRAM|OBJECT ...      not stripped

nvcc 13.0 compiles no kernel where a template that launches it is instantiated in some unevaluated places, such as a requires-expression that
initialises a constant of a class: it says nothing, and the launch ends with "invalid resource handle". The host's part of such a kernel is there all
the same: its symbol is compared with the names that the program registers with CUDA's runtime, which the program has as text.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

SYMBOL = re.compile(r" [tTwW] (_ZN5cairn6detail)L?(10run_kernelI\S*)$")
NAME = re.compile(rb"_ZN5cairn6detail10run_kernelI[\x21-\x7e]*")


def missing_of(program):
    """Mangled names of kernels whose code for GPUs is not there."""
    said = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    launched = {"".join(found.groups()) for line in said.splitlines() if (found := SYMBOL.search(line)) and not line.endswith(".cold")}
    if not launched:
        raise SystemExit(f"registered_kernels.py: {program} has no symbols of kernels: it launches none, or is stripped")
    with tempfile.TemporaryDirectory() as folder:
        bare = pathlib.Path(folder, "stripped")  # else the symbols' names would be found in place of the registered ones
        subprocess.run(["strip", "-o", bare, program], check=True)
        registered = {name.decode() for name in NAME.findall(bare.read_bytes())}
    return sorted(launched - registered), len(launched)


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    status = 0
    for program in sys.argv[1:]:
        missing, launched = missing_of(program)
        print(f"{program}: {launched} kernels, {len(missing)} of them without code for GPUs")
        for name in missing:
            print("  " + subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip()[:300])
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
