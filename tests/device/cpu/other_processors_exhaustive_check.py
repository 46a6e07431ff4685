#!/usr/bin/env python3
"""The tests of bfloat16 kernels as processors without its instructions run them.

Ours are compiled for plain x86-64, as -DCAIRN_NATIVE=OFF does, and for AVX2; of oneDNN's ONEDNN_MAX_CPU_ISA hides AVX512-BF16 and AVX-512. Results are
the same bits but for oneDNN's own kernels, so the tests are the same. Where the processor has AMX, 5,000 drawn convolutions run by it."""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
KERNELS, CONVOLUTIONS = (ROOT / "tests" / "device" / "cpu" / name for name in ("bfloat16_test.cpp", "conv_drawn_test.cpp"))


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    return done.returncode, done.stdout


def compiled(program, source, *flags):
    compiler = shutil.which("clang++") or shutil.which("g++")
    return run(compiler, *flags, "-std=c++20", "-w", "-fopenmp", "-fno-math-errno", f"-I{ROOT}/include", f"-I{ROOT}/tests",
               source, ROOT / "tests" / "main.cpp", "-ldnnl", "-lopenblas", "-o", program)


class OtherProcessors(unittest.TestCase):
    def test_bfloat16_kernels(self):
        if platform.machine() != "x86_64":
            return print("skipped: not an x86-64 processor")
        with tempfile.TemporaryDirectory() as folder:
            for target in ("x86-64", "haswell"):
                program = pathlib.Path(folder) / target
                status, text = compiled(program, KERNELS, f"-march={target}", "-O0")
                self.assertEqual(status, 0, text[-3000:])
                for hidden in ("", "AVX512_CORE", "AVX2"):
                    with self.subTest(target=target, hidden=hidden):
                        status, text = run(program, env=os.environ | ({"ONEDNN_MAX_CPU_ISA": hidden} if hidden else {}))
                        self.assertEqual(status, 0, text[-3000:])

    def test_convolutions_by_amx(self):
        processor = pathlib.Path("/proc/cpuinfo")
        if not processor.exists() or "amx_bf16" not in processor.read_text():
            return print("skipped: no AMX")
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "convolutions"
            status, text = compiled(program, CONVOLUTIONS, "-march=native", "-O2")
            self.assertEqual(status, 0, text[-3000:])
            status, text = run(program, "convolution: every algorithm on 300 drawn geometries",
                               env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_AMX", "CAIRN_GEOMETRIES": "5000"})
            self.assertEqual(status, 0, text[-3000:])


if __name__ == "__main__":
    sys.exit(unittest.main())
