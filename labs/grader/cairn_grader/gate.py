"""Is a lab fit to be handed out?  Starter 0 on every graded task, solution 100 %, each mutant fails the test that is named for it, and broken
submissions score 0 with a reason."""

import dataclasses
import json
import pathlib
import shutil
import tempfile
import xml.etree.ElementTree as xml

from . import grading, starter, variants, writers
from .lab import LabError, tomllib

# Behind a lab's first file: what it does, what that adds, and what must stand in the reason.
BROKEN = (
    ("does not compile", "\nthis is no C++\n", "does not compile"),
    ("loops for ever", "\nstatic const int breaks = [] { volatile int i = 0; for (;;) i = i + 1; return 0; }();\n", "an endless loop?"),
    ("calls exit(0)", "\n#include <cstdlib>\nstatic const int breaks = [] { std::exit(0); return 0; }();\n", "does something call exit?"),
    ("crashes", "\nstatic const int breaks = [] { volatile int* volatile p = nullptr; *p = 1; return 0; }();\n", "segmentation fault"),
)


def mutants(lab):
    """Of mutants.toml: file, the text to replace and what with, and the test that must fail."""
    path = lab.part("mutants.toml")
    try:
        all_mutants = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise LabError(f"{path}: {error!r}") from error
    known = {test.name for test in lab.tests}
    for mutant in all_mutants:
        if unknown := {mutant["fails"], *mutant.get("and", [])} - known:
            raise LabError(f"{path}: mutant {mutant['name']}: there is no test \"{unknown.pop()}\"")
    return all_mutants


def copied(solution, folder):
    shutil.rmtree(folder, ignore_errors=True)
    return pathlib.Path(shutil.copytree(solution, folder))


def check_solution(lab, solution, graded):
    result = graded(solution, "solution")
    faults = [f"the solution fails \"{t.name}\":\n{t.message}" for t in result.tests if not t.passed]
    faults += [f"\"{t.name}\" takes the solution {t.seconds:.1f} s, more than a third of what is allowed" for t, limit in
               zip(result.tests, (test.seconds or lab.limits.test_seconds for test in lab.in_order())) if 3 * t.seconds > limit]
    return faults + ([f"the solution makes the compiler speak:\n{result.output}"] if result.output else [])


def together(lab, all_mutants):
    """Mutants that one submission can hold: what must fail because of one needs no file of another."""
    task = {test.name: test.task for test in lab.tests}

    def spoils(one, other):
        return one["file"] in lab.task_files.get(task[other["fails"]], lab.files)

    groups = []
    for mutant in all_mutants:
        fits = next((group for group in groups if not any(spoils(mutant, other) or spoils(other, mutant) for other in group)), None)
        if fits is None:
            groups.append(fits := [])
        fits.append(mutant)
    return groups


def check_mutants(lab, solution, folder, graded, quick):
    all_mutants, faults = mutants(lab), []
    if len(all_mutants) < 6:
        faults.append(f"there are {len(all_mutants)} mutants; a lab has at least 6")
    for group in together(lab, all_mutants) if quick else [[mutant] for mutant in all_mutants]:
        copied(solution, folder)
        for mutant in group:
            variants.apply(f"mutant {mutant['name']}", mutant, folder)
        only = {mutant["fails"] for mutant in group} if quick else None
        failed = [t.name for t in graded(folder, "mutant " + ", ".join(mutant["name"] for mutant in group), only).tests if not t.passed]
        faults += [f"mutant {mutant['name']} should fail \"{mutant['fails']}\", but fails {failed or 'nothing'}" for mutant in group
                   if mutant["fails"] not in failed]
        if others := set(failed).difference(*([mutant["fails"], *mutant.get("and", [])] for mutant in group)):
            faults.append(f"mutant {group[0]['name']} also fails {sorted(others)}")
    return faults


def file_to_break(lab):
    """The first one in which there is something to write."""
    return next(name for name in lab.files if starter.MARK.search("\n" + (lab.part("solution") / name).read_text(encoding="utf-8")))


def of_one_test(lab):
    """The lab with one public test and short limits, of a task that needs file_to_break: enough to see what becomes of a broken submission."""
    limits = dataclasses.replace(lab.limits, test_seconds=1)
    first = next(test for test in lab.tests if test.program == "public" and file_to_break(lab) in lab.task_files.get(test.task, lab.files))
    return dataclasses.replace(lab, limits=limits, tests=(dataclasses.replace(first, seconds=None),))


def valid(result):
    """Raises where a result cannot be written in a format."""
    json.loads(writers.gradescope(result)), json.loads(writers.classroom50(result)), xml.fromstring(writers.junit(result)), writers.table(result)


def check_broken(lab, solution, folder, say):
    """Faults of how submissions are graded that are broken in their first file, which is one of several."""
    cases = [(what, lambda path, text=text: path.write_bytes(path.read_bytes() + text.encode()), says) for what, text, says in BROKEN]
    cases += [("is empty", lambda path: path.write_bytes(b""), "is empty"), ("lacks a file", lambda path: path.unlink(), "is missing")]
    for what, spoil, says in cases:
        path = copied(solution, folder) / file_to_break(lab)
        spoil(path)
        result = grading.grade(of_one_test(lab), folder, secret="gate", programs=("public",))
        valid(result)
        why = result.tests[0].message
        say(f"broken: {what}: {result.score:g}; {why.splitlines()[0] if why else ''}")
        if result.score or says not in why:
            yield f"a submission that {what} scores {result.score:g} and is told: {why}"


def check_texts(lab):
    """Faults of texts that cannot be written."""
    for number in variants.numbers(lab):
        with tempfile.TemporaryDirectory(prefix="cairn-gate-") as folder:
            try:
                variants.write(lab, number, pathlib.Path(folder, lab.name))
            except LabError as error:
                yield f"text {number}: {error}"


def check(lab, say=print, quick=False):
    """The list of faults; empty if the lab is fit. `quick`: of a mutant, only the test that must fail is run, so that what else it fails goes
    unseen, and mutants of tasks that share no file are in one submission."""
    faults = [f"{path} is not what the annotated solution makes of it: labs/grader/grade --starter {lab.name}" for path in starter.stale(lab)]
    with tempfile.TemporaryDirectory(prefix="cairn-gate-") as name:
        solution, blank, other = (pathlib.Path(name, part) for part in ("solution", "starter", "other"))
        solution.mkdir()
        blank.mkdir()
        starter.write(lab, blank, solution)

        def graded(where, what, only=None):
            tests = tuple(test for test in lab.tests if only is None or test.name in only)
            result = grading.grade(dataclasses.replace(lab, tests=tests), where, secret="gate")
            say(f"{what}: {result.score:g} of {result.points}; {result.seconds:.1f} s")
            return result

        faults += check_solution(lab, solution, graded)
        faults += [f"the starter passes \"{t.name}\"" for t in graded(blank, "starter").tests if t.passed]
        faults += check_mutants(lab, solution, other, graded, quick)
        faults += check_broken(lab, solution, other, say)
    return faults


def check_numbers(lab, numbers, say=print, quick=False):
    """Faults of these texts of a lab, and of texts that cannot be written."""
    faults = list(check_texts(lab))
    for number in () if faults else numbers:
        say(f"text {number} of {len(variants.numbers(lab))}: {variants.describe(lab, number)}")
        text = variants.of_number(lab, number)
        faults += [f"text {number}: {fault}" for fault in check(text, say, quick)]
        if number and passes(lab, text):
            faults.append(f"text {number}: the solution of text 0 has all points: the variant makes no difference")
    return faults


def passes(lab, text):
    """Has the lab's solution all points of another text?"""
    with tempfile.TemporaryDirectory(prefix="cairn-gate-") as folder:
        starter.write(lab, to_solution=pathlib.Path(folder))
        return all(test.passed for test in grading.grade(text, folder, secret="gate").tests)
