"""Is a lab fit to be handed out?  Starter 0 on every graded task, solution 100 %, each mutant fails the test that is named for it, and broken
submissions score 0 with a reason."""

import dataclasses
import pathlib
import shutil
import tempfile
import tomllib

from . import grading, starter, writers
from .lab import LabError


def mutants(lab):
    """Of mutants.toml: file, the text to replace and what with, and the test that must fail."""
    path = lab.folder / "mutants.toml"
    try:
        all_mutants = tomllib.loads(path.read_text())["mutant"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise LabError(f"{path}: {error!r}") from error
    known = {test.name for test in lab.tests}
    for mutant in all_mutants:
        if mutant["fails"] not in known:
            raise LabError(f"{path}: mutant {mutant['name']}: there is no test \"{mutant['fails']}\"")
    return all_mutants


def apply(mutant, folder):
    path = folder / mutant["file"]
    text = path.read_text()
    if text.count(mutant["find"]) != 1:
        raise LabError(f"mutant {mutant['name']}: {mutant['find']!r} stands {text.count(mutant['find'])} times in {mutant['file']}, not once")
    path.write_text(text.replace(mutant["find"], mutant["replace"]))


BROKEN = {
    "does not compile": lambda text: text + "\nthis is no C++\n",
    "empty": lambda text: "",
    "loops for ever before main": lambda text: text + "\n#include <chrono>\nstatic const int loops_for_ever = [] { volatile int i = 0; for (;;) i = i + 1; return 0; }();\n",
    "calls exit(0)": lambda text: text + "\n#include <cstdlib>\nstatic const int leaves = (std::exit(0), 0);\n",
    "crashes": lambda text: text + "\nstatic const int crashes = [] { volatile int* volatile p = nullptr; *p = 1; return 0; }();\n",
    "eats memory": lambda text: text + "\n#include <cstring>\n#include <cstdlib>\nstatic const int eats = [] { for (;;) if (void* p = std::malloc(1 << 24)) std::memset(p, 1, 1 << 24); else return 0; }();\n",
    "forks": lambda text: text + "\n#include <unistd.h>\nstatic const int forks = [] { for (int i = 0; i < 20; ++i) if (fork() < 0) break; for (;;) sleep(1); return 0; }();\n",
    "prints a forged verdict": lambda text: text + '\n#include <cstdio>\n#include <cstdlib>\n#include <unistd.h>\nstatic const int forges = [] { const char v[] = "token {\\"passed\\": true, \\"checks\\": 9, \\"failures\\": 0, \\"message\\": \\"\\"}\\n"; std::printf("%sAll tests passed (9 assertions in 1 test case)\\n", v); std::fflush(stdout); (void)!write(4, v, sizeof v - 1); std::_Exit(0); return 0; }();\n',
    "writes outside its folder": lambda text: text + '\n#include <cstdio>\n#include <cstdlib>\nstatic const int writes = [] { const char* root = "/cairn-escape"; if (FILE* f = std::fopen(root, "w")) { std::fputs("x", f); std::fclose(f); } std::_Exit(3); return 0; }();\n',
}


def check(lab, say=print):
    """The list of faults; empty if the lab is fit."""
    faults = [f"{path} is not what the annotated solution makes of it: labs/grader/grade --starter {lab.name}" for path in starter.stale(lab)]
    with tempfile.TemporaryDirectory(prefix="cairn-gate-") as name:
        folder = pathlib.Path(name)
        solution, blank = folder / "solution", folder / "starter"
        solution.mkdir()
        blank.mkdir()
        starter.write(lab, blank, solution)

        def graded(where, what):
            result = grading.grade(lab, where, secret="gate")
            say(f"{what}: {result.score:g} of {result.points}")
            return result

        result = graded(solution, "solution")
        faults += [f"the solution fails \"{t.name}\":\n{t.message}" for t in result.tests if not t.passed]
        if result.output.strip():
            faults.append(f"the solution makes the compiler speak:\n{result.output}")
        result = graded(blank, "starter")
        faults += [f"the starter passes \"{t.name}\"" for t in result.tests if t.passed]
        all_mutants = mutants(lab)
        if len(all_mutants) < 6:
            faults.append(f"there are {len(all_mutants)} mutants; a lab has at least 6")
        for mutant in all_mutants:
            where = folder / "mutant"
            shutil.rmtree(where, ignore_errors=True)
            shutil.copytree(solution, where)
            apply(mutant, where)
            result = graded(where, f"mutant {mutant['name']}")
            failed = [t.name for t in result.tests if not t.passed]
            if mutant["fails"] not in failed:
                faults.append(f"mutant {mutant['name']} should fail \"{mutant['fails']}\", but fails {failed or 'nothing'}")
            if others := set(failed) - {mutant["fails"], *mutant.get("and", [])}:
                faults.append(f"mutant {mutant['name']} also fails {sorted(others)}")
        hasty = dataclasses.replace(lab, limits=dataclasses.replace(lab.limits, test_seconds=4), tests=tuple(dataclasses.replace(t, timed_seconds=None) for t in lab.tests))
        for what, breaks in BROKEN.items():
            where = folder / "broken"
            shutil.rmtree(where, ignore_errors=True)
            shutil.copytree(solution, where)
            path = where / lab.files[0]
            path.write_text(breaks(path.read_text()))
            result = grading.grade(hasty, where, secret="gate", programs=("public",))
            say(f"broken, {what}: {result.score:g}; {result.tests[0].message.splitlines()[0]}")
            if result.score or not all(t.message for t in result.tests):
                faults.append(f"a submission that {what} scores {result.score}")
            for form in writers.FORMATS.values():
                form(result)
        if pathlib.Path("/cairn-escape").exists():
            faults.append("a submission wrote outside its folder: /cairn-escape")
        (solution / lab.files[0]).unlink()
        result = grading.grade(lab, solution)
        say(f"a file is missing: {result.score:g}; {result.tests[0].message}")
        if result.score:
            faults.append("a submission without a file scores")
    return faults
