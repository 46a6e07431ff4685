"""The internal result in the formats that course systems read. A file is replaced whole after each test: a time-out loses nothing."""

import csv
import datetime
import io
import json
import xml.etree.ElementTree as xml


def gradescope(result):
    """results.json of a Gradescope autograder."""
    tests = [{"score": t.score, "max_score": t.points, "status": "passed" if t.passed else "failed", "name": t.name, "number": str(i),
              "output": t.message if not t.hidden or t.passed else f"{t.message.splitlines()[0] if t.message else ''}\nreplay: --seed {t.seed}",
              "output_format": "text", "tags": [t.task], "visibility": "visible", "extra_data": {"seed": str(t.seed), "seconds": round(t.seconds, 2)}}
             for i, t in enumerate(result.tests, 1)]
    return json.dumps({"score": result.score, "execution_time": round(result.seconds), "output": result.output[-20000:], "output_format": "text",
                       "visibility": "visible", "stdout_visibility": "hidden", "extra_data": {"lab": result.lab}, "tests": tests}, indent=1)


def junit(result):
    suite = xml.Element("testsuite", name=result.lab, tests=str(len(result.tests)), failures=str(sum(not t.passed for t in result.tests)),
                        time=f"{result.seconds:.2f}")
    for t in result.tests:
        case = xml.SubElement(suite, "testcase", classname=f"{result.lab}.{t.task}", name=t.name, time=f"{t.seconds:.2f}")
        if not t.passed:
            xml.SubElement(case, "failure", message=printable(t.message.splitlines()[0] if t.message else "failed")).text = printable(t.message)
    if result.output:
        xml.SubElement(suite, "system-out").text = printable(result.output)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True)


def printable(text):
    """Without the characters that XML has no way to write."""
    return "".join(c if c >= " " or c in "\n\t" else "?" for c in text)


def table(result):
    """CSV, one line a test."""
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["lab", "student", "test", "task", "score", "points", "passed", "seed", "message"])
    for t in result.tests:
        rows.writerow([result.lab, result.student, t.name, t.task, t.score, t.points, t.passed, t.seed, t.message])
    return out.getvalue()


def classroom50(result):
    """classroom50/result/v1: whole numbers."""
    return json.dumps({"schema": "classroom50/result/v1", "classroom": "", "assignment": result.lab, "assignment_type": "individual",
                       "owner": result.student, "submission": "", "commit": "", "release": "", "review": "",
                       "datetime": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "score": round(result.score),
                       "max-score": result.points,
                       "tests": [{"test-name": t.name, "passed": t.passed, "score": round(t.score), "max-score": t.points} for t in result.tests]},
                      indent=1)


def text(result):
    """For a terminal."""
    lines = []
    for t in result.tests:
        lines.append(f"{'ok  ' if t.passed else 'FAIL'} {t.score:5.1f} / {t.points:<3} {t.name}")
        if not t.passed:
            lines += [f"       {line}" for line in t.message.splitlines()[:12]]
            if t.seed:
                lines.append(f"       again with the same inputs: --seed {t.seed}")
    if result.output:
        lines += ["", result.output.strip()]
    return "\n".join([*lines, "", f"{result.lab}: {result.score:g} of {result.points} points"])


FORMATS = {"gradescope": gradescope, "junit": junit, "csv": table, "classroom50": classroom50, "text": text}


def write(path, result, form):
    new = path.with_name(path.name + ".new")
    new.write_text(FORMATS[form](result) + "\n")
    new.replace(path)
