"""One HTML page of a suite's run, without network or script: verdicts with intervals around 1, the slowest metric and whether to believe it, history by
machine, raw pairs, conditions, how to repeat it. The look is that of train's report.html."""

import html
import json
import math
import pathlib
import re

import measured_runs
import record

from . import programs, results as judged, suite_file

COLOURS = {"ok": "c", "faster": "a", "slower": "b", "disturbed": "d"}  # of verdicts, by the style's names
STYLE = """
.slower{color:color-mix(in srgb,var(--b) 80%,var(--ink))}.faster{color:color-mix(in srgb,var(--a) 80%,var(--ink))}.ok{color:color-mix(in srgb,var(--c) 80%,var(--ink))}.disturbed{color:var(--d)}
a{color:inherit}a:focus-visible,summary:focus-visible{outline:3px solid var(--a);outline-offset:2px}
section{margin-bottom:16px}.first{border-width:2px}.first b{font-size:20px}.first p{margin:4px 0}summary{cursor:pointer;padding:6px 0}h3{font-size:14px;margin:14px 0 4px}
.verdicts td,.verdicts th{text-align:left}caption{text-align:left}.verdicts td:nth-child(3){width:240px}.verdicts td:nth-child(4){white-space:nowrap}.note{color:var(--soft);font-size:13px;margin:2px 0}p.note{overflow-wrap:anywhere}.scroll{overflow:auto}
dl{margin:0;font-size:13px;overflow-wrap:anywhere}dt{color:var(--soft);margin-top:6px}dd{margin:0}pre{white-space:pre-wrap;overflow-wrap:anywhere}.plot{max-width:620px}
@media(max-width:640px){main{padding:16px 10px 40px}table:not(.verdicts) td{white-space:nowrap}.verdicts thead{position:absolute;left:-9999px}.verdicts tr{display:block;padding:8px 0;border-bottom:1px solid var(--line)}
.verdicts,.verdicts tbody,.verdicts caption{display:block}.verdicts td{display:block;border:0;padding:1px 0;overflow-wrap:anywhere}.verdicts td:nth-child(3){width:auto}}
"""


def escaped(value):
    return html.escape(str(value), quote=True)


def style():
    """That of train's report, and what is this page's own."""
    header = (measured_runs.ROOT / "include/cairn/train/report_page.hpp").read_text()
    return re.search(r'R"css\((.*?)\)css"', header, re.S)[1] + STYLE


def percent(ratio):
    """1.2 → 20.0 % slower: of costs, such as seconds."""
    if abs(ratio - 1) < 0.0005:
        return "equal"
    return f"{100 * abs(ratio - 1):.1f} % {'slower' if ratio > 1 else 'faster'}"


# ---- what to believe


def belief(result):
    """Whether to believe a verdict, and why, in a sentence."""
    if "arrived" in result:
        return f"{'Yes' if result['verdict'] in ('ok', 'slower', 'too-fast') else 'Nothing to judge'}, by a one-sided t test at 1 %: {result['why']}."
    said, delta = result["verdict"], f"{100 * result['delta']:.1f} %" if "delta" in result else ""
    control = f"; a copy of the reference came out {percent(result['control']['mean'])}" if result.get("control") else ""
    pairs = " and ".join(map(str, result.get("pairs", [])))
    if said in ("slower", "faster"):
        if len(result.get("pairs", [])) > 1:
            return f"Yes: a series of pairs found it, and a fresh one said the same ({pairs} pairs){control}."
        return f"With care: {result.get('why', '')}, whose build was not measured beside. benchmarks/suite compare says it for certain."
    if said == "ok":
        return f"Yes: the whole interval lies within the {delta} that matter ({pairs} {'pairs' if result.get('control') else 'launches'}){control}."
    if said == "inconclusive":
        return f"Not yet: what was measured can tell neither a difference nor that there is none of {delta}{'; ' + result['why'] if result.get('why') else ''}{control}."
    if said == "disturbed":
        return f"No: two copies of one program differ here, so that this machine was disturbed, or its floor is higher (benchmarks/suite calibrate){control}."
    return {"no-reference": "Nothing to judge: no reference of this machine: ", "not-run": "Nothing to judge: it was not measured: ", None: "No: "}[said] + result.get("why", "")


def slowest(results):
    """Of the results that say `slower`, else of all, that with the largest ratio of costs; None where nothing was compared."""
    return max((result for result in results if result.get("ratio") and result["verdict"]), key=lambda result: (result["verdict"] == "slower", result["ratio"]["mean"]), default=None)


# ---- plots


def bar(result, span):
    """A metric's interval on a logarithmic axis from 1/span to span, 1 in the middle; the band is the difference that does not matter."""
    ratio = result.get("ratio")
    if not ratio:
        return "–"
    at = lambda value: 110 + 100 * max(-1.0, min(1.0, math.log(value) / math.log(span)))
    low, high, mean = (at(ratio[key]) for key in ("low", "high", "mean"))
    band = at(1 + result["delta"]) - 110
    text = f"{ratio['mean']:.3f} times the reference's cost, interval {ratio['low']:.3f} to {ratio['high']:.3f}"
    colour = f"var(--{COLOURS[result['verdict']]})" if result["verdict"] in COLOURS else "var(--soft)"
    return (
        f'<svg viewBox="0 0 220 26" role="img" aria-label="{text}"><title>{text}</title>'
        f'<rect x="{110 - band:.1f}" y="3" width="{2 * band:.1f}" height="20" fill="var(--line)"/><line x1="110" x2="110" y1="1" y2="25" stroke="var(--soft)"/>'
        f'<line x1="{low:.1f}" x2="{max(high, low + 1):.1f}" y1="13" y2="13" stroke="{colour}" stroke-width="4"/><circle cx="{mean:.1f}" cy="13" r="5" fill="{colour}"/></svg>'
    )


def dots(values, label, names, reference=None):
    """Values by their place, from left to right, as dots with the names as titles. `reference`: value of a horizontal line."""
    everything = values + ([reference] if reference is not None else [])
    low, high = min(everything), max(everything)
    pad = (high - low) * 0.1 or abs(high) * 0.05 or 1
    x = lambda place: 70 + (place + 0.5) * 530 / len(values)
    y = lambda value: 110 - 100 * (value - low + pad) / (high - low + 2 * pad)
    parts = [f'<text x="64" y="{y(value) + 4:.1f}" text-anchor="end">{value:.4g}</text><line class="axis" x1="70" x2="600" y1="{y(value):.1f}" y2="{y(value):.1f}"/>' for value in dict.fromkeys((low, high))]
    if reference is not None:
        parts.append(f'<line x1="70" x2="600" y1="{y(reference):.1f}" y2="{y(reference):.1f}" stroke="var(--soft)" stroke-dasharray="5 4"/>')
    parts += [f'<circle cx="{x(place):.1f}" cy="{y(value):.1f}" r="4" fill="var(--a)"><title>{escaped(name)}: {value:.4g}</title></circle>' for place, (value, name) in enumerate(zip(values, names))]
    return f'<svg class="plot" viewBox="0 0 610 120" role="img" aria-label="{escaped(label)}">{"".join(parts)}</svg>'


# ---- parts of the page


def table(caption, columns, rows, kind=""):
    """rows: of cells that are HTML."""
    head = "".join(f'<th scope="col">{escaped(column)}</th>' for column in columns)
    cells = ("".join(f'<td role="cell">{cell}</td>' for cell in row) for row in rows)
    body = "".join(f'<tr role="row">{row}</tr>' for row in cells)
    return f'<div class="scroll"><table class="{kind}" role="table"><caption class="note">{escaped(caption)}</caption><thead><tr role="row">{head}</tr></thead><tbody>{body}</tbody></table></div>'


def described(entries):
    return f'<dl>{"".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in entries)}</dl>'


def _machine(entry):
    machine = entry["machine"]
    return f"{machine.get('cpu', 'unknown processor')}, {machine.get('processors', '?')} processors, {machine.get('memory_gib', '?')} GiB ({machine['fingerprint']})"


def busy(conditions):
    """Conditions in a sentence."""
    share = lambda key: f"{100 * conditions[key]:.0f} %" if isinstance(conditions.get(key), (int, float)) else "unknown"
    return f"other programs took {share('others')} of the processors, the hypervisor {share('steal')}; load {conditions.get('load') or 0:.1f}"


def _first(results, records):
    """The slowest metric, its machine, and whether to believe it."""
    worst = slowest(results)
    measured = records.get(worst["name"]) if worst else next(iter(records.values()), None)
    machine, conditions = (_machine(measured), busy(measured["conditions"])) if measured else ("unknown: nothing was measured", "unknown")
    if not worst:
        return f'<section class="first"><h2>Slowest metric</h2><p><b>None was compared</b></p><p>Machine: {escaped(machine)}</p><p>While it ran: {escaped(conditions)}.</p></section>'
    ratio = worst["ratio"]
    return (
        f'<section class="first"><h2>Slowest metric</h2><p><b><a href="#{escaped(worst["name"])}">{escaped(worst["name"])}</a>: {percent(ratio["mean"])}</b> '
        f'({ratio["mean"]:.3f} times the cost, {ratio["low"]:.3f} to {ratio["high"]:.3f}), verdict <b class="{escaped(worst["verdict"])}">{escaped(worst["verdict"])}</b></p>'
        f'<p>Believe it? {escaped(belief(worst))}</p><p>Machine: {escaped(machine)}</p><p>While it ran: {escaped(conditions)}.</p></section>'
    )


def _verdicts(results):
    ends = [abs(math.log(value)) for result in results if result.get("ratio") for value in (*result["ratio"].values(), 1 + result["delta"])]
    span = math.exp(min(max(ends, default=0.1) * 1.1, math.log(4)))
    rows = []
    for result in results:
        said, ratio = result["verdict"] or "not judged", result.get("ratio")
        figures = f'{percent(ratio["mean"])}<br><span class="note">{ratio["low"]:.3f} to {ratio["high"]:.3f}</span>' if ratio else "–"
        rows.append((f'<a href="#{escaped(result["name"])}">{escaped(result["name"])}</a>', f'<b class="{escaped(said)}">{escaped(said)}</b>', bar(result, span), figures, escaped(belief(result))))
    caption = f"Worst first. Bars: interval of the ratio of costs (seconds, or 1 / rate) around 1, from {1 / span:.2f} to {span:.2f}; to the right is slower; the band is what does not matter."
    return f'<section><h2>Verdicts</h2>{table(caption, ("metric", "verdict", "beside the reference", "difference", "believe it?"), rows, "verdicts")}</section>'


def _pairs(entry):
    """Raw figures of each block, series by series."""
    figure = entry["metrics"][0]
    higher = figure["better"] == "higher"
    for number, series in enumerate(entry.get("series", []), 1):
        arms = [arm for arm in ("A", "A2", "B") if series and arm in series[0]]
        rows, ratios = [], []
        for place, block in enumerate(series, 1):
            cells = [str(place), escaped(" ".join(block["order"])), *(f"{block[arm]['value']:.5g}" for arm in arms)]
            if "A" in arms and "B" in arms:
                ratios.append(block["A"]["value"] / block["B"]["value"] if higher else block["B"]["value"] / block["A"]["value"])
                cells.append(f"{ratios[-1]:.3f}")
            rows.append((*cells, escaped(busy(block["conditions"])) if "conditions" in block else "–"))
        if ratios:
            yield dots(ratios, f"B / A in cost of {len(ratios)} pairs, from {min(ratios):.3f} to {max(ratios):.3f}", [f"pair {place}" for place in range(1, len(ratios) + 1)], 1.0)
        columns = ("pair", "order", *(f"{arm}, {figure['unit']}" for arm in arms), *(("B / A in cost",) if ratios else ()), "conditions")
        yield table(f"{'Series' if number == 1 else 'Confirming series'} {number}: {figure['name']}, {figure['better']} is better", columns, rows)


def _seeds(entry):
    """Of a convergence record."""
    shown = lambda value: "–" if value is None else f"{value:.5g}"
    rows = [(str(seed["seed"]), *(shown(seed[key]) for key in ("steps", "samples", "seconds")), shown(seed["curve"][-1][1] if seed["curve"] else None)) for seed in entry["convergence"]]
    return table("Steps, samples and seconds to the target; –: not reached", ("seed", "steps", "samples", "seconds", "figure at the end"), rows)


def _history(entry, earlier):
    """Earlier records of the same metric and settings, by machine."""
    same = [old for old in earlier if old["benchmark"] == entry["benchmark"] and old["settings_hash"] == entry["settings_hash"] and old["metrics"][0]["name"] == entry["metrics"][0]["name"]]
    machines = dict.fromkeys([entry["machine"]["fingerprint"], *(old["machine"]["fingerprint"] for old in same)])
    for machine in machines:
        mine = sorted((old for old in same if old["machine"]["fingerprint"] == machine), key=lambda old: old["when"])
        title = f"{'This machine' if machine == entry['machine']['fingerprint'] else 'Machine'} {machine}"
        if not mine:
            yield f'<p class="note">{escaped(title)}: no earlier runs.</p>'
            continue
        if machine == entry["machine"]["fingerprint"]:
            mine.append(entry)
        figure = entry["metrics"][0]
        values = [old["metrics"][0]["value"] for old in mine]
        yield dots(values, f"{title}: {figure['name']} of {len(mine)} runs, oldest first", [old["when"] for old in mine])
        what = lambda old: "this run" if old is entry else "reference: " + old["accepted"]["reason"] if "accepted" in old else old.get("verdict", {}).get("verdict") or "not judged"
        rows = [(escaped(old["when"]), f"{old['metrics'][0]['value']:.5g}", escaped(old["revision"] or "unknown"), escaped(what(old))) for old in mine]
        yield table(f"{title}: {figure['name']}, {figure['unit']}, {figure['better']} is better", ("when", "median", "revision", "what"), rows)


def _repeat(entry):
    reference = (entry.get("reference") or {}).get("revision")
    dirty = record.is_dirty(entry) and entry["revision"]
    yield from (("command", entry["command"]), ("revision", (entry["revision"] or "unknown") + (": with changes that no commit has" if dirty else "")), ("revision of the reference", reference or "none, or unknown"))
    if "convergence" in entry:
        yield "settings", json.dumps(entry["settings"])
        return
    known = {key: value for key, value in entry["settings"].items() if key in suite_file.Metric.__dataclass_fields__}
    try:
        metric = suite_file.Metric(**{"name": entry["benchmark"], **{key: tuple(value) if isinstance(value, list) else value for key, value in known.items()}})
        yield "one launch", " ".join(programs.command(metric, pathlib.Path("build/release"), "STEPS", pathlib.Path("FOLDER")))
    except (TypeError, measured_runs.Failure):
        pass  # of a suite that this revision does not have
    yield from (("settings", json.dumps(entry["settings"])), ("kernel choices", entry["kernels"] or "none, or unknown"))


def _beside(result):
    """What else the run says of a metric, which no verdict rests on."""
    middle, *ends = result.get("hodges_lehmann") or (None,)
    if middle is not None:
        yield "median of pairs (Hodges–Lehmann)", f"{percent(middle)}: {middle:.3f} times the cost, " + ("too few pairs for an interval" if None in ends else f"95 % interval {ends[0]:.3f} to {ends[1]:.3f} by signed ranks")
    if "processor_time" in result:
        yield "processor time", f"{percent(result['processor_time'])}: {result['processor_time']:.3f} times the reference's; what other programs take is not in it"
    if "share_of_matrix_peak" in result:
        yield "share of the matrix peak", f"{100 * result['share_of_matrix_peak']:.0f} % of the products that this machine was measured to compute in the time"
    if "of_peer" in result:
        yield f"beside the peer of the same launches ({result['peer']})", f"{percent(result['of_peer'])}: {result['of_peer']:.3f} times its cost"


def _metric(result, entry, earlier):
    head = f'<section id="{escaped(result["name"])}"><h2>{escaped(result["name"])}: <span class="{escaped(result["verdict"])}">{escaped(result["verdict"] or "not judged")}</span></h2><p class="note">{escaped(belief(result))}</p>'
    if entry is None:
        return head + "</section>"
    details = lambda title, inside: f"<details><summary>{title}</summary>{inside}</details>"
    dropped = "".join(f'<p class="note">Dropped, block {escaped(drop["block"])}: {escaped(drop["why"])}</p>' for drop in entry.get("dropped", []))
    conditions = [(key, "none" if value is None else value) for key, value in entry["conditions"].items()] + [("threads, ranks", f"{entry['threads']}, {entry['ranks']}"), ("binding", ", ".join(map(str, entry["binding"])))]
    beside = list(_beside(result))
    return head + "".join((
        described(beside) if beside else "",
        details("History by machine", "".join(_history(entry, earlier))),
        details("Seeds", _seeds(entry)) if "convergence" in entry else details("Raw pairs", "".join(_pairs(entry)) + dropped),
        details("Conditions", described([("in short", busy(entry["conditions"])), *conditions, *((f"machine: {key}", value) for key, value in entry["machine"].items())])),
        details("How to repeat it", described(_repeat(entry))),
    )) + "</section>"


def in_words(results, records):
    """When, how many metrics of each verdict, and what was compared with what."""
    said = [result["verdict"] or "not judged" for result in results]
    counts = ", ".join(f"{said.count(kind)} {kind}" for kind in dict.fromkeys(said))
    if not records:
        return f"{len(results)} metrics: {counts or 'none'}"
    first = min(records, key=lambda entry: entry["when"])
    beside = f" beside {first['reference']['revision'] or 'an unknown one'}" if first.get("reference") else ""
    return f"{len(results)} metrics: {counts}. Revision {first['revision'] or 'unknown'}{beside}, {first['when']}"


def make(suite, results, records, earlier=(), notes=()):
    """The page. `results`: of results.evaluate; `records`: of this run; `earlier`: records of other runs and references; `notes`: lines for the reader."""
    found = {entry["benchmark"]: entry for entry in records}
    results = judged.worst_first(results)
    worst = judged.suite_verdict(results)
    title = f"Suite {escaped(suite)}: {escaped(worst)}"
    parts = [_first(results, found), _verdicts(results), *(_metric(result, found.get(result["name"]), earlier) for result in results)]
    told = "".join(f'<p class="note">{escaped(note)}</p>' for note in notes)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title><style>{style()}</style></head>'
        f'<body><main><h1>Suite {escaped(suite)}: <span class="{escaped(worst)}">{escaped(worst)}</span></h1><p class="sub">{escaped(in_words(results, records))}</p>{"".join(parts)}{told}</main></body></html>\n'
    )
