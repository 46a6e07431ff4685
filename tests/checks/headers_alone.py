#!/usr/bin/env python3
"""Compiles each header of include/ as a translation unit of its own, warnings being errors.

    tests/checks/headers_alone.py build/dev [--jobs N] [HEADER...]

Headers that need CUDA are left out: tests/run's step cuda compiles them. Compiler and flags are those that the build folder's compile_commands.json gives tests/main.cpp. Syntax only, no code is
made; all headers together are compiled by tests/package/two_units.
With clang, what many headers include is precompiled (precompiled_includes.py says why that hides no missing include); what fails
with it is compiled once more without, and that decides.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import precompiled_includes  # noqa: E402


def flags_of(build, root):
    """Compiler and flags (definitions, include folders, language, warnings) that our own programs are compiled with."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if entry["file"] == str(root / "tests" / "main.cpp"):
            words = shlex.split(entry["command"])
            first = next(i for i, word in enumerate(words) if os.path.basename(word).startswith(("c++", "g++", "clang++")))
            take, keep = iter(words[first + 1:]), []
            for word in take:
                if word in ("-o", "-c", "-MF", "-MT", "-MQ"):
                    next(take)
                elif word == "-isystem":
                    keep += [word, next(take)]
                elif word.startswith(("-D", "-I", "-std", "-W", "-m", "-f")) and word not in ("-fpch-preprocess", "-mllvm"):
                    keep.append(word)
            return words[first], keep
    sys.exit(f"{build}/compile_commands.json does not name tests/main.cpp: configure with -DCAIRN_TESTS=ON")


def needs_cuda(header, include):
    """Whether it includes the CUDA Toolkit, itself or through a header of device/cuda."""
    found = re.findall(r"#include <([^>]+)>", (include / header).read_text())
    return any(re.match(r"cu(da|blas|dnn|solver)|nccl", name) for name in found) or any(
        needs_cuda(name, include) for name in found if name.startswith("cairn/device/cuda/"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("headers", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()

    root = pathlib.Path(__file__).resolve().parents[2]
    compiler, flags = flags_of(options.build, root)
    headers = options.headers or sorted(p.relative_to(root / "include").as_posix() for p in (root / "include").rglob("*.hpp"))
    headers = [name for name in headers if not needs_cuda(name, root / "include")]
    if not headers:
        sys.exit("no headers")

    def compile_unit(name, *precompiled):
        command = [compiler, *flags, "-Werror", *precompiled, "-fsyntax-only", "-x", "c++", "-"]
        return name, subprocess.run(command, input=f"#include <{name}>\n", capture_output=True, text=True)

    def compile_header(name):
        if base := bases.get(name):
            name, result = compile_unit(name, "-include-pch", base)
            if result.returncode == 0:
                return name, result
        return compile_unit(name)

    failures, seen, bases = 0, set(), {}
    with tempfile.TemporaryDirectory(prefix="cairn-headers-") as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        if "clang" in os.path.basename(compiler):
            precompile = [compiler, *flags, "-Werror", "-fpch-instantiate-templates", "-x", "c++-header", "-"]
            bases = precompiled_includes.make(root / "include", headers, precompile, pathlib.Path(folder), pool)
            print(f"{len(bases)} headers begin with one of {len(set(bases.values()))} precompiled sets of what they include")
        for name, result in pool.map(compile_header, headers):
            if result.returncode:
                failures += 1
                # The same fault of a shared header is shown once.
                errors = "\n".join(line for line in result.stderr.splitlines() if ": error:" in line or ": fatal" in line)
                known = errors in seen
                seen.add(errors)
                print(f"{name} does not compile" + (", as above" if known else f":\n{result.stderr[-4000:]}"))
    print(f"{len(headers)} headers alone with {compiler}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
