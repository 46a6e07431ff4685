"""The internal result in the formats that course systems read. A file is replaced whole after each test: a time-out loses nothing."""

import csv
import datetime
import io
import json
import os
import re
import xml.etree.ElementTree as xml

NOT_IN_XML = re.compile("[^\t\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def first_line(text):
    return text.splitlines()[0] if text else ""


def for_students(test):
    """Of a hidden test only what went wrong, and how an instructor repeats it."""
    return f"{first_line(test.message)}\nreplay: --seed {test.seed}" if test.hidden and not test.passed else test.message


def gradescope(result, hidden="visible"):
    """results.json of a Gradescope autograder. hidden: when students see the hidden tests; unless "visible", they see no total before."""
    tests = [{"score": t.score, "max_score": t.points, "status": "passed" if t.passed else "failed", "name": t.name, "number": str(i),
              "output": for_students(t), "output_format": "text", "tags": [t.task], "visibility": hidden if t.hidden else "visible",
              "extra_data": {"seed": str(t.seed), "seconds": round(t.seconds, 2)}} for i, t in enumerate(result.tests, 1)]
    return json.dumps({"score": result.score, "execution_time": round(result.seconds), "output": result.output[-20000:], "output_format": "text",
                       "visibility": "visible", "stdout_visibility": "hidden",
                       "extra_data": {"lab": result.lab, "student": result.student, "missing_protection": result.missing_protection},
                       "tests": tests}, indent=1)


def junit(result):
    suite = xml.Element("testsuite", name=result.lab, tests=str(len(result.tests)), failures=str(sum(not t.passed for t in result.tests)),
                        errors="0", skipped="0", time=f"{result.seconds:.2f}")
    properties = xml.SubElement(suite, "properties")
    for name, value in [("student", result.student), *(("missing protection", text) for text in result.missing_protection)]:
        xml.SubElement(properties, "property", name=name, value=printable(value))
    for t in result.tests:
        case = xml.SubElement(suite, "testcase", classname=f"{result.lab}.{t.task}", name=t.name, time=f"{t.seconds:.2f}")
        if not t.passed:
            xml.SubElement(case, "failure", message=printable(first_line(t.message))).text = printable(t.message)
    if result.output:
        xml.SubElement(suite, "system-out").text = printable(result.output)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True)


def printable(text):
    """Without the characters that XML has no way to write."""
    return NOT_IN_XML.sub("?", text)


def cell(value):
    """For CSV: text that a spreadsheet would take for a formula gets an apostrophe."""
    return "'" + value if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def table(result):
    """CSV, one line a test."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["lab", "student", "test", "task", "score", "points", "passed", "seed", "message"])
    for t in result.tests:
        rows.writerow(map(cell, [result.lab, result.student, t.name, t.task, t.score, t.points, t.passed, t.seed, t.message]))
    return out.getvalue()


def classroom50(result):
    """classroom50/result/v1, result.json: whole numbers; what its runner knows comes from the environment that it sets."""
    known = os.environ.get
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"schema": "classroom50/result/v1", "classroom": known("CLASSROOM", ""), "assignment": known("ASSIGNMENT", result.lab),
                       "assignment_type": "individual", "owner": known("USERNAME", result.student), "submission": known("SUBMISSION_TAG", ""),
                       "commit": known("COMMIT_URL", ""), "release": known("RELEASE_URL", ""), "review": known("REVIEW_URL") or known("COMMIT_URL", ""),
                       "datetime": now, "score": round(result.score), "max-score": result.points,
                       "tests": [{"test-name": t.name, "passed": t.passed, "score": round(t.score), "max-score": t.points} for t in result.tests]},
                      indent=1)


def of_test(t):
    """For a terminal."""
    lines = [f"{'ok  ' if t.passed else 'FAIL'} {t.score:5.1f} / {t.points:<3} {t.name}"]
    if not t.passed:
        lines += [f"       {line}" for line in t.message.splitlines()[:12]]
        if t.seed:
            lines.append(f"       again with the same inputs: --seed {t.seed}")
    return "\n".join(lines)


FORMATS = {"gradescope": gradescope, "junit": junit, "csv": table, "classroom50": classroom50}


def write(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(text.rstrip("\n") + "\n", encoding="utf-8", errors="replace")
    new.replace(path)
