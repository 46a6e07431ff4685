"""Broken and hostile submissions score 0 where they are, with valid results and a reason that can be read."""

import dataclasses
import os
import pathlib
import shutil
import tempfile
import time
import unittest

import labs
from cairn_grader import broken, gate, grading, landlock, sandbox, submission


class Broken(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-broken-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def graded(self, folder, **more):
        return grading.grade(gate.of_one_test(labs.example), folder, programs=("public",), **more)

    def test_every_hostile_case(self):
        needs_landlock = {"writes outside its folder": 1, "reads the token from /proc": 1}  # its version
        if os.geteuid():
            needs_landlock |= {"kills the grader": 6, "reads the hidden tests": 1}
        for case in broken.HOSTILE:  # COMMON is part of a gate, see new_lab_test.py
            if landlock.version() < needs_landlock.get(case.what, 0):
                continue  # the result says that this protection is missing
            with self.subTest(case.what):
                self.assertIsNone(gate.fault_of_broken(labs.example, case, labs.solution, self.folder / "other", say=lambda *_: None))
                self.assertEqual(sandbox.descendants(), {})

    def test_without_landlock_strays_are_found_and_removed(self):
        if os.geteuid():
            self.skipTest("only root can give submissions a user of their own")
        version, landlock.version = landlock.version, lambda: 0
        self.addCleanup(setattr, landlock, "version", version)
        case = broken.before_main("", 'std::ofstream("/tmp/cairn-stray") << 1;', "", ["fstream"])
        path = gate.copied(labs.solution, self.folder / "other") / labs.example.files[0]
        path.write_text(path.read_text() + case.text)
        result = self.graded(path.parent)
        self.assertEqual(result.score, 0)
        self.assertIn("outside its folder: /tmp/cairn-stray", result.tests[0].message)
        self.assertFalse(pathlib.Path("/tmp/cairn-stray").exists())
        self.assertTrue(any("landlock" in text for text in result.missing_protection))

    def test_files_of_the_wrong_kind(self):
        name = labs.example.files[0]
        for what, make, says in (("nothing", lambda p: None, "missing"), ("a folder", lambda p: p.mkdir(), "is a folder"),
                                 ("a link", lambda p: p.symlink_to("/etc/passwd"), "is a link"), ("a dangling link", lambda p: p.symlink_to("nowhere"), "is a link"),
                                 ("a pipe", os.mkfifo, "no ordinary file")):
            with self.subTest(what):
                folder = self.folder / what.replace(" ", "-")
                folder.mkdir()
                make(folder / name)
                result = self.graded(folder)
                self.assertEqual((result.score, len(result.tests)), (0, 1))
                self.assertIn(says, result.tests[0].message)

    def test_a_folder_around_the_files_is_no_error(self):
        shutil.copytree(labs.solution, self.folder / "my-lab")
        self.assertEqual(self.graded(self.folder).score, 25)

    def test_hidden_tests_do_not_leak_through_the_compiler(self):
        path = gate.copied(labs.solution, self.folder / "other") / labs.example.files[0]
        path.write_text(path.read_text().replace("inline double variance(std::span<const float> x)", "inline double variance(int x, std::span<const float>)"))
        output = grading.grade(labs.example, path.parent, programs=("hidden",)).output
        self.assertIn("error", output)
        for line in (labs.example.folder / "grading" / "hidden.cpp").read_text().splitlines():
            self.assertFalse(len(line) > 20 and line.strip() in output, line)

    def test_what_takes_too_long_is_not_run(self):
        result = grading.grade(labs.example, labs.solution, within=1e-6)
        self.assertEqual((result.score, len(result.tests)), (0, 4))
        self.assertIn("Not run", result.tests[3].message)

    def test_the_same_seed_gives_the_same_result(self):
        seeds = [[t.seed for t in grading.grade(labs.example, labs.solution, student, "s").tests] for student in ("a", "a", "b")]
        self.assertEqual(seeds[0], seeds[1])
        self.assertNotEqual(seeds[0], seeds[2])
        self.assertEqual(len(set(seeds[0])), 4)

    def test_the_clock_alone_ends_no_test_that_computes(self):
        limits = sandbox.Limits(cpu_seconds=1, seconds=60, megabytes=100)
        started = time.monotonic()
        self.assertEqual(sandbox.run(["sh", "-c", "while :; do :; done"], limits).reason.split()[-1], "loop?")
        self.assertLess(time.monotonic() - started, 60)
        done = sandbox.run(["sleep", "5"], dataclasses.replace(limits, seconds=0.5))
        self.assertEqual(done.ended_by, "time")


class Inspection(unittest.TestCase):
    def test_what_is_allowed(self):
        for text in ("using namespace std;", "namespace fs = std::filesystem;", "#ifndef A_HPP\n#define A_HPP\n#endif", "#pragma once", "// don't \" asm\n/* ' */",
                     'auto s = "asm __attribute__ #define \\" lab::";', "int x = 1'000'000; char c = '\\''; auto y = u8\"x\";", "#error don't", "#include <cmath>\r\nint x;\r\n",
                     "template <> int f<int>(int x) { return std::abs(x); }", 'auto r = R"x( asm " )x";', "namespace student::detail {}", "__m256 v; __builtin_popcount(3);"):
            self.assertIsNone(submission.fault(text), text)

    def test_what_hides(self):
        for text in ("as\\\nm", "#incl\\\nude \"/etc/passwd\"", "%:define CHECK", "/**/ # /**/ define CHECK", "#include <vector> /*\n\" */ asm(\"\") \"", "// x\r asm",
                     "int a = 1'0; asm; int b = 1'0;", "char c = '\"'; asm; char d = '\"';", "R\"x(a)x\" asm", "\\u0061sm", "namespace l = lab;", "lab\n::seed()",
                     "namespace s = std; template <\n> bool s::f() {}", "[[using gnu: constructor]] void f();", "# 33 \"x.hpp\" 1", "int x = 'a;", "#import <x>", "#include_next <x>"):
            self.assertIsNotNone(submission.fault(text), text)

    def test_the_line_is_named(self):
        self.assertTrue(submission.fault("int x;\\\n\n/* \n */ int y;\nasm").startswith("5:"), submission.fault("int x;\\\n\n/* \n */ int y;\nasm"))

    def test_includes_are_normalised(self):
        for path in ("cairn/comm/collectives/ring.hpp", "cairn/./comm//collectives/ring.hpp"):
            self.assertIn("own solution", submission.fault(f"#include <{path}>", ("cairn/comm/collectives",)))


if __name__ == "__main__":
    unittest.main()
