#!/usr/bin/env python3
"""Checks what `benchmarks/suite report` writes, by readers of their own: the page by HTML's parser, MLPerf's log
and Google Benchmark's JSON by what their documentation and readers ask for."""

import html.parser
import json
import math
import re
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True
from checks import check, end  # noqa: E402
from suite_check import Place  # noqa: E402, stand-in builds
import host  # noqa: E402
import record  # noqa: E402
from regression import google_benchmark, mllog, page, programs, results  # noqa: E402

NASTY = "<script>alert('x')</script>\" & <b>"
VOID = {"meta", "br"}  # what is closed by /> is told apart


class Page(html.parser.HTMLParser):
    """Tags, texts and tables of a page; `faults` of its structure."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.faults, self.tables, self.text = [], [], [], [], ""
        self.feed(text)
        if self.open:
            self.faults.append(f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if {"td", "th"} & set(self.open) and "svg" not in self.open:
            self.tables[-1][-1][-1] += data

    def attributes(self, tag, name):
        return [found[name] for kind, found in self.tags if kind == tag and name in found]


def made(name, value, said, ratio=None, machine=None, when="2026-11-29T01:00:00Z", pairs=6, higher=True, **more):
    """A record of a compared metric and its result; B costs `ratio` times A's."""
    blocks = [{"order": ["A", "A2", "B"], **{arm: {"value": value * (1 + place / 100) * factor, "seconds": 2.0, "processor_s": 1.5} for arm, factor in (("A", 1), ("A2", 1), ("B", 1 / ratio if higher else ratio))},
               "conditions": {"load": 1.0, "steal": 0.01, "others": 0.25}} for place in range(pairs)] if ratio else []
    result = {"name": name, "verdict": said, "why": NASTY if said == "not-run" else "", "delta": 0.03, "pairs": [pairs, pairs] if said in ("slower", "faster") else [pairs],
              "ratio": {"mean": ratio, "low": ratio * 0.98, "high": ratio * 1.02} if ratio else None, "control": {"mean": 1.001, "low": 0.99, "high": 1.01} if ratio else None, "dropped": 0}
    values = [block["B"]["value"] for block in blocks] or [value]
    entry = record.make(name, {"program": "train", "workload": NASTY, "ranks": 1}, [record.metric("samples_per_s" if higher else "seconds", sorted(values)[len(values) // 2], "1/s" if higher else "s", "higher" if higher else "lower", "rate" if higher else "time", values)],
                        threads=1, ranks=1, when=when, command=f"benchmarks/suite {NASTY}", revision="0123456789ab+dirty", verdict=result, series=[blocks], dropped=[{"block": 3, "arm": "B", "why": NASTY}], reference={"revision": "abc"}, suite="s", **more)
    if machine:
        entry["machine"] = {**entry["machine"], "fingerprint": machine}
    return entry, result


def check_page():
    cases = [made("fine", 100, "ok", 1.001), made("slow", 100, "slower", 1.2), made("disturbed", 0.5, "disturbed", 1.4, higher=False), made("quick", 100, "faster", 0.8), made("none", 1, "not-run"), made("many", 5, None, 1.01)]
    earlier = [made("slow", 110, "ok", 1.0, when=f"2026-11-2{day}T01:00:00Z")[0] for day in (3, 1)]
    earlier += [made("slow", 300, "ok", 1.0, machine="another")[0], {**made("slow", 120, "ok", 1.0, when="2026-10-01T00:00:00Z")[0], "accepted": {"reason": NASTY, "when": "2026-10-02"}}]
    other = made("slow", 7, "ok", 1.0)[0]
    other["settings_hash"] = "of other settings"
    text = page.make("<s>", [result for _, result in cases], [entry for entry, result in cases if result["name"] != "none"], earlier + [other], [NASTY])
    found = Page(text)
    check(not found.faults and found.tags[0] == ("html", {"lang": "en"}), "all that is opened is closed", found.faults)
    check(not [tag for tag, _ in found.tags if tag in ("script", "b") and NASTY in str(tag)] and "script" not in {tag for tag, _ in found.tags}, "texts are escaped; there is no script")
    check(found.text.count(NASTY) >= 8, "and said as they are", found.text.count(NASTY))
    check(not re.search(r"https?://|@import|url\(", text) and not [name for _, names in found.tags for name in names if name in ("src", "data", "onclick")], "nothing is fetched")
    ids = [names["id"] for _, names in found.tags if "id" in names]
    check(len(ids) == len(set(ids)) and {link[1:] for link in found.attributes("a", "href")} <= set(ids), "links lead to places of the page", ids)
    check(all(names.get("role") == "img" and names.get("aria-label") for tag, names in found.tags if tag == "svg"), "plots have a text")
    check("prefers-color-scheme:dark" in text and "width=device-width" in text, "dark pages, and small ones")
    rows = found.tables[0]
    check([row[1] for row in rows[1:]] == ["slower", "not-run", "disturbed", "faster", "ok", "not judged"], "the worst first", rows)
    begin = found.text[: found.text.index("Verdicts")]
    check("6 metrics: 1 slower, 1 not-run, 1 disturbed, 1 faster, 1 ok, 1 not judged. Revision 0123456789ab+dirty beside abc, 2026-11-29" in begin, "the first line counts verdicts and names what was compared", begin)
    check("slow: 20.0 % slower" in begin and "Yes: a series" in begin and host.machine()["fingerprint"] in begin and "other programs took" in begin, "slowest metric, its machine and whether to believe it come first", begin)
    check("No: two copies of one program differ" in rows[3][4] and "20.0 % faster" in rows[4][3], "disturbed is not believed", rows)
    check(NASTY in rows[2][4], "why nothing was measured", rows[2])
    for tag, names in found.tags:
        if interval := re.match(r"([\d.]+) times the reference's cost, interval ([\d.]+) to ([\d.]+)", names.get("aria-label", "")):
            check(float(interval[2]) <= float(interval[1]) <= float(interval[3]), "an interval has its mean inside", interval[0])
    means = [float(names["cx"]) for tag, names in found.tags if tag == "circle" and names["r"] == "5"]
    span = float(re.search(r"to (\d\.\d\d); to the right is slower", found.text)[1])
    for mean, ratio in zip(means, (1.2, 1.4, 0.8, 1.001, 1.01)):
        check(abs(mean - (110 + 100 * math.log(ratio) / math.log(span))) < 1, f"the bar of {ratio} is at its place on a logarithmic axis", (mean, span))
    pairs = [table for table in found.tables if table[0][0] == "pair"]
    check([row[-2] for row in pairs[0][1:]] == ["1.200"] * 6 and pairs[0][2][2:5] == ["101", "101", "84.167"] and "25 %" in pairs[0][1][-1], "raw pairs with ratio and conditions", pairs[0])
    check([row[-2] for row in pairs[1][1:]] == ["1.400"] * 6, "of times, too", pairs[1])
    history = [table for table in found.tables if table[0][0] == "when" and len(table) > 2]
    check([row[0][:10] for row in history[0][1:]] == ["2026-10-01", "2026-11-21", "2026-11-23", "2026-11-29"] and NASTY in history[0][1][3] and history[0][-1][3] == "this run", "history of this machine, oldest first", history)
    check(sum(table[0][0] == "when" for table in found.tables) == 2 and "Machine another" in found.text, "another machine apart")
    check("with changes that no commit has" in found.text and "abc" in found.text, "revisions")
    for result in (cases[0][1], cases[1][1]):
        result |= {"hodges_lehmann": [1.19, 1.17, None if result is cases[0][1] else 1.21], "processor_time": 1.18, "share_of_matrix_peak": 0.42, "peer": NASTY, "of_peer": 0.74}
    said = Page(page.make("s", [cases[0][1], cases[1][1]], [cases[0][0], cases[1][0]])).text
    check(said.count("19.0 % slower: 1.190 times the cost") == 2 and "too few pairs" in said and "interval 1.170 to 1.210" in said and "18.0 % slower: 1.180" in said and "42 % of the products" in said and said.count(f"({NASTY})26.0 % faster: 0.740 times") == 2,
          "the median of pairs, processor time, the share of the peak and the peer", said)
    lines = [line for line in results.table([cases[1][1]]) if line.startswith("slow")]
    check(re.search(r"1\.190 \(1\.170 to 1\.210\) .* 1\.180 +42 % +0\.740$", lines[0]), "and in the table", lines)
    order = results.worst_first([{"name": str(mean), "verdict": "ok", "ratio": {"mean": mean}} for mean in (0.9, 1.01, 1.0)] + [{"name": "x", "verdict": "slower", "ratio": None}])
    check([result["name"] for result in order] == ["x", "1.01", "1.0", "0.9"], "of one verdict the slowest first", order)
    busy = [made(name, 5, "ok", ratio, conditions={"load": 9.0, "others": others, "steal": 0.0}) for name, ratio, others in (("a", 1.0, 0.11), ("b", 1.02, 0.77))]
    begin = Page(page.make("s", [result for _, result in busy], [entry for entry, _ in busy])).text.partition("Verdicts")[0]
    check("other programs took 77 %" in begin and "11 %" not in begin, "conditions at the top are those of the slowest metric", begin)
    empty = Page(page.make("s", [], []))
    check(not empty.faults and "None was compared" in empty.text and "not-run" in empty.text, "a page of nothing")


def mllog_lines(path):
    """As mlperf_logging's parser does: Latin-1, lines that hold the token, the fields that it takes by name."""
    found = []
    for line in path.read_text(encoding="latin-1").splitlines():
        check(line.startswith(":::MLLOG "), "a line begins with the token", line)
        entry = json.loads(line[len(":::MLLOG "):])
        check(set(entry) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"} and float(entry["time_ms"]) > 1e12, "a line has its fields, and milliseconds", line)
        check(entry["event_type"] in ("INTERVAL_START", "INTERVAL_END", "POINT_IN_TIME") and {"file", "lineno"} <= set(entry["metadata"]), "kind and place", line)
        found.append(entry)
    return found


def compared(json1, json2, first="", second=""):
    """What compare.py says: names that both have, without a prefix, and the median of (new − old) / old of real_time and cpu_time by repetition."""
    found = {}
    for name in dict.fromkeys(row["name"] for row in json1["benchmarks"] if row["name"].startswith(first)):
        rest = second + name[len(first):]
        old, new = [row for row in json1["benchmarks"] if row["name"] == name], [row for row in json2["benchmarks"] if row["name"] == rest and row["time_unit"] == "ns"]
        for key in ("real_time", "cpu_time"):
            changes = [(b[key] - a[key]) / abs(a[key]) for a, b in zip(old, new)]
            found[name, key] = statistics.median(changes)
    return found


def check_formats(at):
    same, slow = at.build("same"), at.build("slow", 1.25)
    at.main("compare", same, slow, at.suite("formats", "lenet", "same"), status=15)
    at.main("report", "formats", "--mllog", at.folder / "log", "--google", at.folder / "google.json")
    entry = json.loads((at.folder / "runs" / "formats-0001" / "records" / "lenet.json").read_text())
    lines = mllog_lines(at.folder / "log")
    mine = [line for line in lines if line["metadata"]["file"] == "lenet.json"]
    check([line["value"]["samples_per_s_of_tenths"] for line in mine if line["key"] == "tracked_stats"] == entry["metrics"][0]["values"], "all launches are in the log", mine)
    check([line["metadata"]["step"] for line in mine if line["key"] == "tracked_stats"] == list(range(1, 13)), "their steps rise")
    check([line["value"] for line in lines if line["key"] == "submission_benchmark"] == ["lenet", "same"], "by benchmark", lines)
    check([line["value"] for line in lines if line["key"] == "verdict"] == ["slower", "ok"], "with verdicts", lines)
    found = json.loads((at.folder / "google.json").read_text())
    fields = {"name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "family_index", "per_family_instance_index"}
    check(all(fields <= set(row) for row in found["benchmarks"]) and {"date", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled", "library_build_type"} <= set(found["context"]), "rows and context have their fields", found)
    changes = compared(found, found, "A/", "B/")
    check(abs(changes["A/lenet", "real_time"] - 0.25) < 0.02 and abs(changes["A/same", "real_time"]) < 0.02, "B is 25 % slower than A, as compare.py sees it", changes)
    check(set(compared(found, found).values()) == {0.0}, "a file is equal to itself")
    rate = [row["items_per_second"] for row in found["benchmarks"] if row["name"] == "B/lenet"]
    check(rate == entry["metrics"][0]["values"], "rates are items a second", rate)
    (at.folder / "one.json").write_text(json.dumps({"benchmarks": [row for row in found["benchmarks"] if row["name"] == "B/lenet"]}))
    check(abs(programs.google_benchmark(at.folder / "one.json")["real_time"] * entry["metrics"][0]["value"] - 1) < 1e-9, "this repository's reader takes it")
    seeds = {**record.make("training", {"batch": 8}), "convergence": [{"seed": 3, "steps": 20, "curve": [[10, 0.5, 1.0], [20, 0.9, 2.5]]}, {"seed": 4, "steps": None, "curve": [[10, 0.1, 1.0]]}]}
    (at.folder / "log").write_text(mllog.text([seeds]))
    lines = [line for line in mllog_lines(at.folder / "log") if not line["key"].startswith("submission")]
    check([line["key"] for line in lines] == ["global_batch_size", "seed", "run_start", "eval_accuracy", "eval_accuracy", "run_stop", "global_batch_size", "seed", "run_start", "eval_accuracy", "run_stop"], "seeds are runs", lines)
    check(lines[4]["value"] == 0.9 and lines[4]["metadata"]["samples_count"] == 160 and lines[4]["time_ms"] - lines[2]["time_ms"] == 2500, "with evaluations by samples and time", lines[4])
    check([line["metadata"]["status"] for line in lines if line["key"] == "run_stop"] == ["success", "aborted"], "and what came of them", lines)
    check(google_benchmark.of([])["benchmarks"] == [] and mllog.text([]) == "", "nothing is nothing")


def check_suite(at):
    file = at.suite("page", "lenet")
    for number in (1, 2):
        at.main("run", file, "--build", at.build("a"), status=13)
    at.main("report", "page", status=2, says=("--html FILE",))
    at.main("report", "page", "--html", at.folder / "nowhere" / "page.html", status=1, says=("cannot be written",))
    broken = at.folder / "runs" / "page-0001" / "records" / "lenet.json"
    at.main("report", "page", "--html", at.folder / "page.html")
    found = Page((at.folder / "page.html").read_text())
    values = [f"{value:.5g}" for value in json.loads(broken.read_text())["metrics"][0]["values"]]
    check(not found.faults and "None was compared" in found.text and len(values) == 6, "the page of a run without references", found.text)
    check(any(table[0][0] == "when" and len(table) == 3 for table in found.tables), "it knows the earlier run", found.tables)
    broken.write_text("{")
    at.main("report", "page", "--html", at.folder / "page.html")
    check("not in the history" in Page((at.folder / "page.html").read_text()).text, "a record that cannot be read is told")
    at.main("calibrate", at.suite("floors", "lenet"), "--build", at.build("a"))
    at.main("report", "floors", "--html", at.folder / "page.html", status=1, says=("is a calibration",))


if __name__ == "__main__":
    check_page()
    for part in (check_formats, check_suite):
        with tempfile.TemporaryDirectory() as folder:
            part(Place(folder))
    end("suite report")
