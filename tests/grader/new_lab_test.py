"""A new lab is fit at once, and what is unfit is found."""

import shutil
import subprocess
import sys
import unittest

import labs
from cairn_grader import gate, grading, lab, starter


class NewLab(unittest.TestCase):
    def test_its_gate_passes(self):
        for quick in (False, True):
            self.assertEqual(gate.check(labs.example, say=lambda *_: None, quick=quick), [])
        self.assertGreaterEqual(len(gate.mutants(labs.example)), 6)
        self.assertFalse(any("@" in path.read_text() for path in (labs.folder / "99-example").rglob("*.*")))

    def test_names_that_are_no_names(self):
        for name in ("example", "99", "99-Example", "../99-x", "99-example"):
            done = subprocess.run([sys.executable, grading.ROOT / "labs" / "grader" / "new-lab", name, "--in", labs.folder], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, name)

    def test_faults_of_a_lab_are_found(self):
        folder = labs.folder / "unfit"
        shutil.copytree(labs.folder / "99-example", folder)
        changed = folder / "starter" / "statistics.hpp"
        changed.write_text(changed.read_text() + "// changed\n")
        self.assertEqual(starter.stale(lab.load(folder)), [changed])
        mutants = folder / "mutants.toml"
        mutants.write_text("[[mutant]]" + mutants.read_text().split("[[mutant]]")[-1].replace('"variance: far from zero"', '"mean: of a few numbers"'))
        faults = gate.check_mutants(lab.load(folder), labs.solution, labs.folder / "mutant", lambda where, *_: grading.grade(labs.example, where), quick=False)
        for says in ("there are 1 mutants", "difference-of-squares should fail", "difference-of-squares also fails"):
            self.assertTrue(any(says in fault for fault in faults), faults)

    def test_descriptions_that_do_not_fit(self):
        text = (labs.folder / "99-example" / "lab.toml").read_text()
        folder = labs.folder / "wrong"
        folder.mkdir()
        for old, new, says in (("points = 25", "points = 24", "add up to"), ('program = "public"', 'program = "other"', "public or hidden"), ('files = ["', 'files = ["../', "folders"),
                               ('name = "mean: of a few', 'name = "*', "a name has"), ("[[task]]", "[[tusk]]", "missing")):
            (folder / "lab.toml").write_text(text.replace(old, new))
            with self.assertRaisesRegex(lab.LabError, says):
                lab.load(folder)


if __name__ == "__main__":
    unittest.main()
