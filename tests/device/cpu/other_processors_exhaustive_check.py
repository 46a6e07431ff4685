#!/usr/bin/env python3
"""The tests of bfloat16 kernels as processors without its instructions run them.

Ours are compiled for plain x86-64, as -DCAIRN_NATIVE=OFF does, and for AVX2; of oneDNN's ONEDNN_MAX_CPU_ISA hides AVX512-BF16 and AVX-512. Results are
the same bits but for oneDNN's own kernels, so the tests are the same."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = [ROOT / "tests" / "device" / "cpu" / "bfloat16_test.cpp", ROOT / "tests" / "main.cpp"]


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    return done.returncode, done.stdout


class OtherProcessors(unittest.TestCase):
    def test_bfloat16_kernels(self):
        if platform.machine() != "x86_64":
            return print("skipped: not an x86-64 processor")
        compiler = shutil.which("clang++") or shutil.which("g++")
        with tempfile.TemporaryDirectory() as folder:
            for target in ("x86-64", "haswell"):
                program = pathlib.Path(folder) / target
                status, text = run(compiler, f"-march={target}", "-std=c++20", "-O0", "-w", "-fopenmp", "-fno-math-errno", f"-I{ROOT}/include", f"-I{ROOT}/tests",
                                   *SOURCES, "-ldnnl", "-lopenblas", "-o", program)
                self.assertEqual(status, 0, text[-3000:])
                for hidden in ("", "AVX512_CORE", "AVX2"):
                    with self.subTest(target=target, hidden=hidden):
                        status, text = run(program, env=os.environ | ({"ONEDNN_MAX_CPU_ISA": hidden} if hidden else {}))
                        self.assertEqual(status, 0, text[-3000:])


if __name__ == "__main__":
    sys.exit(unittest.main())
