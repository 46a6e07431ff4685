"""What a course gets: its texts of the labs, a public and a private tree, statistics of a class."""

import contextlib
import csv
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import labs
from cairn_grader import export, gate, grading, lab, starter, variants

GRADER = grading.ROOT / "labs" / "grader"


@contextlib.contextmanager
def private(folder):
    os.environ["CAIRN_LAB_PRIVATE"] = str(folder)
    try:
        yield
    finally:
        del os.environ["CAIRN_LAB_PRIVATE"]


def changed(name, old, new):
    """The example with another variants.toml."""
    folder = pathlib.Path(shutil.copytree(labs.folder / "99-example", labs.folder / name))
    path = folder / "variants.toml"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    return lab.load(folder)


class Variants(unittest.TestCase):
    def test_each_text_is_fit_and_refuses_the_solution_of_another(self):
        self.assertEqual(list(variants.numbers(labs.example)), [0, 1])
        self.assertEqual(gate.check_numbers(labs.example, [1], say=lambda *_: None, quick=True), [])

    def test_a_variant_that_makes_no_difference_is_found(self):
        folder = changed("idle", "/ (n - 1);", "/ n;").folder
        kept = [line for line in (folder / "variants.toml").read_text().splitlines() if 'file = ' not in line or "README" in line]
        (folder / "variants.toml").write_text("\n".join(kept))
        self.assertIn("makes no difference", "".join(gate.check_numbers(lab.load(folder), [1], say=lambda *_: None, quick=True)))

    def test_texts_that_are_not_there_are_found(self):
        for name, old, new in (("elsewhere", "(v - mean) / n;", "(v - mean) / m;"), ("no-file", "tests/definition.hpp", "tests/nothing.hpp")):
            faults = gate.check_numbers(changed(name, old, new), [0], say=lambda *_: None)
            self.assertEqual([fault[:7] for fault in faults], ["text 1:"])

    def test_a_course_keeps_its_texts(self):
        four = {name: variants.drawn(lab.find("03-compression"), name) for name in "abcdefghijklmnop"}
        self.assertEqual(four, {name: variants.drawn(lab.find("03-compression"), name) for name in four})
        self.assertGreater(len(set(four.values())), 4)


class Export(unittest.TestCase):
    def test_what_is_private_is_apart_and_comes_together_again(self):
        with tempfile.TemporaryDirectory() as folder:
            public, own = pathlib.Path(folder, "public"), pathlib.Path(folder, "private")
            self.assertEqual(len(list(export.write("s3cr3t of a course", "02-ring-allreduce", public, own))), len(list(lab.LABS.glob("*/lab.toml"))))
            found = {path.relative_to(public / "labs").parts[:2] for path in (public / "labs").glob("[0-9]*/*") if path.name in lab.PRIVATE}
            self.assertEqual({name for name, _ in found}, {"02-ring-allreduce"})
            self.assertEqual(own.stat().st_mode & 0o077, 0)
            self.assertFalse([path for path in public.rglob("*") if path.is_file() and b"s3cr3t of a" in path.read_bytes() and "course_test" not in path.name])
            self.assertTrue((public / "README.md").exists() and (public / "labs" / "grader" / "template" / "solution").exists())
            with private(own):
                for path in sorted((public / "labs").glob("*/lab.toml")):
                    one = lab.load(path.parent)
                    self.assertEqual(starter.stale(one), [])
                    self.assertTrue(one.sources("hidden") and gate.mutants(one))
                    self.assertEqual(list(variants.numbers(one)), [0])

    def test_a_lab_is_graded_with_its_private_parts_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = pathlib.Path(shutil.copytree(labs.folder / "99-example", pathlib.Path(folder, "public", "99-example")))
            own = pathlib.Path(folder, "private", "99-example")
            own.mkdir(parents=True)
            for name in lab.PRIVATE:
                (whole / name).rename(own / name)
            with self.assertRaisesRegex(lab.LabError, "no hidden tests"):
                grading.grade(lab.load(whole), labs.solution)
            with private(own.parent):
                self.assertEqual(grading.grade(lab.load(whole), labs.solution).score, 100)
            with private("/nowhere"), self.assertRaisesRegex(lab.LabError, "/nowhere"):
                lab.load(whole)

    def test_folders_that_are_there_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            there, new = pathlib.Path(folder, "there"), pathlib.Path(folder, "new")
            there.mkdir()
            for public, own in ((there, new), (new, there), (new, new / "inside"), (new, new)):
                with self.assertRaises(lab.LabError):
                    list(export.write("s", "", public, own))
            self.assertEqual([path.name for path in pathlib.Path(folder).iterdir()], ["there"])


class Stats(unittest.TestCase):
    def run_on(self, files, *more):
        with tempfile.TemporaryDirectory() as folder:
            for name, rows in files.items():
                path = pathlib.Path(folder, name)
                with open(path, "w", newline="") as file:
                    out = csv.writer(file, lineterminator="\n")
                    out.writerow("lab student test task score points passed seed message".split())
                    out.writerows(rows)
            done = subprocess.run([sys.executable, GRADER / "stats", *files, *more], cwd=folder, capture_output=True, text=True)
            return done, pathlib.Path(folder, "out.csv").read_text() if "out.csv" in more else ""

    ada = [["l", "ada", "ring: sums", "ring", 60, 60, True, 1, ""], ["l", "ada", "cost: α", "cost", 0, 40, False, 2, "3 ranks: 4.5 s, expected 1e-3\nmore"]]
    bob = [["l", "bob", "ring: sums", "ring", 0, 60, False, 3, "not written"], ["l", "bob", "cost: α", "cost", 0, 40, False, 4, "7 ranks: -1 s, expected 2e+4"]]

    def test_of_a_class(self):
        done, _ = self.run_on({"a.csv": self.ada, "b.csv": self.bob})
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("2 students, median 30, mean 30.0", "50 %  ring: sums", "1 of 1: not written", "0 %  cost: α", "2 of 2: # ranks: # s, expected #", " 60 to  69  #"):
            self.assertIn(words, done.stdout)

    def test_of_points_the_last_file_counts(self):
        again = [["l", "bob", "ring: sums", "ring", 60, 60, True, 3, ""]]
        done, table = self.run_on({"a.csv": self.ada, "b.csv": self.bob, "c.csv": again}, "--points", "out.csv")
        self.assertEqual(table, "student,ring,cost,points\nada,60,0,60\nbob,60,0,60\n", done.stderr)

    def test_what_is_missing_is_said(self):
        done, table = self.run_on({"a.csv": self.ada, "b.csv": self.bob[:1]}, "--points", "out.csv")
        self.assertIn("bob has no result of 1 of 2 tests", done.stderr)
        for files in ({"a.csv": []}, {"a.csv": [["x"] * 3]}, {"a.csv": self.ada, "b.csv": [["other", *self.bob[0][1:]]]}):
            self.assertEqual(self.run_on(files)[0].returncode, 2)


if __name__ == "__main__":
    unittest.main()
