"""Results in the formats of course systems, whatever stands in messages."""

import csv
import io
import json
import os
import pathlib
import posixpath
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as xml
import zipfile

import labs
from cairn_grader import grading, lab, package, writers

try:
    import jsonschema
except ImportError:
    jsonschema = None
NASTY = "=1+1\n<&>\"'\x00\x1b[31m\ufffe\u2028 ü"


def result():
    tests = [grading.TestResult("a", "t", 60, 60, True, "passed, 3 checks", 2**64 - 1), grading.TestResult("b", "t", 40, 0, False, NASTY, 7, 1.5, hidden=True)]
    return grading.Result("lab", "ann@example.org", tests, output=NASTY, seconds=2.4, missing_protection=["none"])


class Writers(unittest.TestCase):
    def test_gradescope(self):
        for hidden in ("visible", "after_due_date", "after_published", "hidden"):
            got = json.loads(writers.gradescope(result(), hidden))
            self.assertEqual((got["score"], got["tests"][0]["visibility"], got["tests"][1]["visibility"]), (60, "visible", hidden))
            self.assertEqual(got["tests"][1]["output"], "=1+1\nreplay: --seed 7")  # of a hidden test the first line
            if jsonschema:
                jsonschema.validate(got, json.loads((grading.ROOT / "labs" / "grader" / "gradescope.schema.json").read_text()))

    def test_junit(self):
        got = xml.fromstring(writers.junit(result()))
        self.assertEqual((got.get("tests"), got.get("failures"), got.find("testcase[2]/failure").get("message")), ("2", "1", "=1+1"))

    def test_csv(self):
        rows = list(csv.DictReader(io.StringIO(writers.table(result()))))
        self.assertEqual((rows[0]["score"], rows[1]["message"][:5]), ("60", "'=1+1"))

    def test_classroom50(self):
        got = json.loads(writers.classroom50(result()))
        self.assertEqual(set(got), {"schema", "classroom", "assignment", "assignment_type", "owner", "submission", "commit", "release", "review", "datetime",
                                    "score", "max-score", "tests"})
        self.assertEqual((got["schema"], got["score"], got["max-score"]), ("classroom50/result/v1", 60, 100))
        self.assertEqual(got["tests"][1], {"test-name": "b", "passed": False, "score": 0, "max-score": 40})

    def test_files_are_there_after_each_test(self):
        seen = []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "results.json")

            def save(now):
                writers.write(path, writers.gradescope(now))
                seen.append(len(json.loads(path.read_text())["tests"]))

            grading.grade(labs.example, labs.solution, on_test=save)
        self.assertEqual(seen, [1, 2, 3, 4])

    def test_packages(self):
        names = zipfile.ZipFile(io.BytesIO(package.for_gradescope(labs.example, "secret"))).namelist()
        self.assertTrue({"setup.sh", "run_autograder", "secret", "cairn/labs/99-example/grading/hidden.cpp"} <= set(names))
        self.assertFalse([name for name in names if "solution" in name or "mutants" in name or "INSTRUCTOR" in name])
        names = zipfile.ZipFile(io.BytesIO(package.to_hand_out(labs.example))).namelist()
        self.assertFalse([name for name in names if {*lab.PRIVATE, "secret"} & set(name.split("/"))])

    def test_a_hand_out_has_what_its_pages_link_to_and_run(self):
        made = ("my-lab", "build/", "data/")  # by earlier commands of the page
        for one in lab.every():
            with self.subTest(one.name):
                names = [name.removeprefix(f"{one.name}/") for name in zipfile.ZipFile(io.BytesIO(package.to_hand_out(one))).namelist()]
                there = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, 9)}
                for page in (f"labs/{one.name}/README.md", "labs/README.md"):
                    text = (grading.ROOT / page).read_text(encoding="utf-8")
                    links = {link for link in re.findall(r"\]\(([^)#\s]+)", text) if not re.match("[a-z]+:", link)}
                    wanted = {posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) for link in links}
                    self.assertEqual(wanted - there, set(), page)
                commands = "\n".join(re.findall(r"^ *```sh\n(.*?)^ *```", (one.folder / "README.md").read_text(encoding="utf-8"), re.M | re.S))
                words = [re.sub(r"^[\w.-]+=", "", word) for word in commands.replace('"', "").split()]
                paths = {word for word in words if re.fullmatch(r"\.?[\w-]+(/[\w.-]+)+", word) and not word.startswith(made)}
                programs = {f"benchmarks/{name}.cpp" for name in re.findall(r"\bbuild/release/benchmarks/(\w+)", commands)}
                self.assertEqual((paths | programs | {"CMakeLists.txt", "CMakePresets.json"}) - there, set())

    def test_the_programs_of_a_hand_out_can_be_configured(self):
        with tempfile.TemporaryDirectory() as folder:
            zipfile.ZipFile(io.BytesIO(package.to_hand_out(labs.example))).extractall(folder)
            root = pathlib.Path(folder, "99-example")
            done = subprocess.run(["cmake", "--preset", "release", "-DCAIRN_PEERS=OFF"], cwd=root, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = subprocess.run(["cmake", "--build", "--preset", "release", "--target", "help"], cwd=root, capture_output=True, text=True)
            self.assertRegex(done.stdout, r"\btrain\b")

    def test_what_is_handed_out_works_by_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            archive = zipfile.ZipFile(io.BytesIO(package.to_hand_out(labs.example)))
            for info in archive.infolist():
                os.chmod(archive.extract(info, folder), info.external_attr >> 16 & 0o777)
            root = pathlib.Path(folder, "99-example")
            subprocess.run(["labs/start", "99-example", "mine"], cwd=root, check=True, capture_output=True)
            for more, says in ((["--public"], "0 of 50 points"), ([], "--public")):
                done = subprocess.run(["labs/grader/grade", "99-example", "mine", *more], cwd=root, capture_output=True, text=True)
                self.assertIn(says, done.stdout + done.stderr)
                self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
