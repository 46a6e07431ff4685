#!/usr/bin/env python3
"""tests/checks/precompiled_includes.py: what headers begin with is only what they include themselves, and a missing include is found."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import precompiled_includes  # noqa: E402


def write(include, name, includes, code="", first=""):
    path = include / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#pragma once\n" + first + "".join(f"#include <{other}>\n" for other in includes) + code + "\n")


class Sets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.include = self.root / "include"
        heavy = "// " + "x" * 1_000_000
        write(self.include, "cairn/base.hpp", ["vector"], heavy + "\nusing numbers = std::vector<int>;")
        write(self.include, "cairn/middle.hpp", ["cairn/base.hpp"], heavy + "\nusing more = numbers;")
        for i in range(8):
            write(self.include, f"cairn/user{i}.hpp", ["cairn/middle.hpp"], f"inline more f{i}() {{ return {{}}; }}")
        write(self.include, "cairn/apart.hpp", ["array"], "using few = std::array<int, 3>;")
        write(self.include, "cairn/conditional.hpp", [], "", "#if 0\n#include <cairn/middle.hpp>\n#endif\n")
        write(self.include, "cairn/late.hpp", ["cairn/middle.hpp"], "", "inline int early() { return 1; }\n")

    def headers(self):
        return sorted(path.relative_to(self.include).as_posix() for path in self.include.rglob("*.hpp"))

    def test_begin_with_what_they_include(self):
        chosen = precompiled_includes.choose(self.include, self.headers())
        for i in range(8):
            self.assertEqual(chosen[f"cairn/user{i}.hpp"], {"cairn/base.hpp", "cairn/middle.hpp"})
        self.assertLessEqual(chosen.get("cairn/middle.hpp", set()), {"cairn/base.hpp"})
        for name in ("base", "apart", "conditional", "late"):
            self.assertNotIn(f"cairn/{name}.hpp", chosen, "it includes nothing of ours, or not for certain, or too late")

    def alone(self):
        (self.root / "tests" / "checks").mkdir(parents=True, exist_ok=True)
        (self.root / "build").mkdir(exist_ok=True)
        for name in ("headers_alone.py", "precompiled_includes.py"):
            shutil.copy(HERE / name, self.root / "tests" / "checks")
        command = f"clang++ -std=c++20 -Wall -I{self.include} -o main.o -c main.cpp"
        (self.root / "build" / "compile_commands.json").write_text(
            json.dumps([{"file": str(self.root / "tests" / "main.cpp"), "command": command}]))
        return subprocess.run([sys.executable, self.root / "tests" / "checks" / "headers_alone.py", self.root / "build"],
                              capture_output=True, text=True)

    def test_missing_includes_are_found(self):
        if not shutil.which("clang++"):
            print("skipped: clang++ is not installed")
            return
        done = self.alone()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"[89] headers begin with one of \d")
        # <vector> comes by base alone, and middle.hpp by none but its includer.
        write(self.include, "cairn/user3.hpp", ["cairn/apart.hpp"], "inline more f3() { return {}; }")
        write(self.include, "cairn/user4.hpp", ["cairn/middle.hpp"], "inline few f4() { return {}; }")
        done = self.alone()
        self.assertEqual(done.returncode, 1)
        self.assertIn("cairn/user3.hpp does not compile", done.stdout)
        self.assertIn("cairn/user4.hpp does not compile", done.stdout)
        self.assertIn(", 2 failures", done.stdout)
        # One that leans on its includer's others: user5 compiles, for it includes base first.
        write(self.include, "cairn/leans.hpp", ["array"], "using leaning = numbers;")
        write(self.include, "cairn/user5.hpp", ["cairn/base.hpp", "cairn/leans.hpp"], "inline leaning f5() { return {}; }")
        done = self.alone()
        self.assertIn("cairn/leans.hpp does not compile", done.stdout)
        self.assertIn(", 3 failures", done.stdout)


if __name__ == "__main__":
    unittest.main()
