"""What the runs of a suite say: verdicts, beside a build or beside stored references, as records and as a table."""

import json
import math
import shutil
import statistics

import host
import intervals
import json_file
import record
from measured_runs import Failure

from . import programs, references, run as runs, verdict

KINDS = {"1/s": "rate", "s": "time"}


def evaluate(run, stored=()):
    """The result of each metric: {"name", "verdict" (None: oversubscribed, never judged), "why", figures…}. `stored`: records of references."""
    return [_beside_stored(run, metric, stored) if run.kind == "alone" else _beside_build(run, metric) for metric in run.metrics]


def _settled(run, metric):
    """What is known without figures: a metric that does not run, or is not judged; None otherwise."""
    known = run.known[metric.name]
    if known["given_up"]:
        return {"verdict": "not-run", "why": known["given_up"]}
    if not known["series"] or not known["series"][0]:
        return {"verdict": "not-run", "why": known["dropped"][-1]["why"] if known["dropped"] else "the budget ended before the first block"}
    if host.is_oversubscribed(metric.ranks, metric.threads):
        return {"verdict": None, "why": f"oversubscribed: {metric.ranks} ranks of {metric.threads} threads are more than the cores; not judged"}
    return None


def _interval(found):
    return None if found is None else dict(zip(("mean", "low", "high"), found.ratios()))


def beside(metric, known, arm):
    """What an arm's launches told that no verdict rests on, as fields, medians: the share of the matrix peak, and the cost as a multiple of the peer's in the same
    launch. None where none told it."""
    launches = [block[arm] for series in known["series"] for block in series if arm in block]
    shares = [launch["share_of_matrix_peak"] for launch in launches if "share_of_matrix_peak" in launch]
    peers = [launch["value"] / launch["peer"] for launch in launches if "peer" in launch]
    higher = programs.figure_of(metric)[1] == "higher"
    return ({"share_of_matrix_peak": statistics.median(shares)} if shares else {}) | (
        {"peer": metric.peer, "of_peer": statistics.median(1 / ratio if higher else ratio for ratio in peers)} if peers else {})


def _beside_build(run, metric):
    known = run.known[metric.name]
    result = {"name": metric.name, "delta": math.expm1(run.delta(metric)), "dropped": len(known["dropped"])}
    settled = _settled(run, metric)
    judged = run.judged(metric)
    found = judged.series[-1]
    result |= beside(metric, known, "B") | {"ratio": _interval(found.candidate), "control": _interval(found.control), "pairs": [len(series) for series in known["series"]]}
    if known["series"] and known["series"][0]:
        pairs = [difference for series in run.blocks(metric) for difference in verdict.differences(series, 2)]
        result["hodges_lehmann"] = [None if math.isnan(v) else math.exp(v) for v in intervals.hodges_lehmann(pairs)]
        if metric.threads * metric.ranks == 1:
            result["processor_time"] = math.exp(statistics.fmean(math.log(b["B"]["processor_s"] / b["A"]["processor_s"]) for series in known["series"] for b in series))
    if settled:
        return result | settled
    if judged.verdict is None:
        looked = judged.series[0].candidate is not None
        short = "the budget" if run.wanted(metric) else "--quick"
        return result | {"verdict": "inconclusive" if looked else "not-run", "why": f"{short} ended before {'it was decided' if looked else 'the first look'}"}
    if judged.verdict == "disturbed":
        return result | {"verdict": "disturbed", "why": f"A2 beside A, the same program, is {found.control.ratios()[0]:.3f}"}
    return result | {"verdict": judged.verdict, "why": judged.why}


def _beside_stored(run, metric, stored):
    known = run.known[metric.name]
    if settled := _settled(run, metric):
        return {"name": metric.name} | settled
    values = [runs.costs(metric, block, ("B",))[0] for block in known["series"][0]]
    result = {"name": metric.name, "delta": math.expm1(run.delta(metric)), "pairs": [len(values)], "dropped": len(known["dropped"])} | beside(metric, known, "B")
    if len(values) < runs.ALONE_LAUNCHES:
        return result | {"verdict": "not-run", "why": "the budget ended before all launches"}
    earlier, why = references.values_for(stored, metric, host.machine()["fingerprint"])
    said, found = verdict.judge_stored(statistics.median(values), earlier, run.delta(metric))
    return result | {"verdict": said, "ratio": _interval(found), "why": why if said == "no-reference" else f"beside {len(earlier)} earlier runs"}


def records(run, results, watch, command):
    """A record of each metric that was measured."""
    for metric, result in zip(run.metrics, results):
        known, arm = run.known[metric.name], run.arms[-1]
        if not known["series"] or not known["series"][0]:
            continue
        figure, better, unit = programs.figure_of(metric)
        values = [block[arm]["value"] for series in known["series"] for block in series]
        yield metric.name, record.make(
            metric.name,
            metric.described(),
            [record.metric(figure, statistics.median(values), unit or "1", better, KINDS.get(unit, "count"), values)],
            watch,
            metric.threads,
            metric.ranks,
            command=command,
            when=run.state["begun"],
            revision=run.state["revisions"][arm],
            settings_hash=metric.hash(),
            kernels=known["prepared"]["kernels"].get(arm),
            suite=run.suite.name,
            verdict=result,
            reference={"revision": run.state["revisions"].get("A"), "programs": run.state["arms"].get("A")} if run.kind == "compare" else None,
            programs=run.state["arms"][arm],
            series=known["series"],
            dropped=known["dropped"],
        )


def write(place, results, made):
    """All records, pairs of name and record, into PLACE/records; the folder is there whole, or not at all."""
    new, folder = place / "records.new", place / "records"
    for old in (new, folder):
        shutil.rmtree(old, ignore_errors=True)
    new.mkdir()
    for name, entry in made:
        record.write(new / f"{name}.json", entry)
    json_file.write(place / "results.json", results)
    new.rename(folder)


def worst_first(results):
    """Those that are not judged come last; of one verdict the slowest first."""
    order = list(verdict.EXIT_STATUS)
    ratio = lambda result: result["ratio"]["mean"] if result.get("ratio") else 0
    return sorted(results, key=lambda result: (-order.index(result["verdict"]) if result["verdict"] else 1, -ratio(result)))


def table(results):
    """Lines for people: the worst first."""
    yield f"{'metric':28} {'verdict':14} {'B / A in cost':24} {'Hodges-Lehmann':24} {'pairs':9} {'differs from':12} {'A2 / A':8} {'cpu':6} {'of peak':7} {'of peer':7}"
    for result in worst_first(results):
        ratio, control = result.get("ratio"), result.get("control")
        middle, *ends = result.get("hodges_lehmann") or (None,)
        yield " ".join((
            f"{result['name']:28} {result['verdict'] or '(not judged)':14}",
            f"{'%.3f (%.3f to %.3f)' % tuple(ratio.values()) if ratio else '':24}",
            f"{'' if middle is None else '%.3f' % middle + (' (%.3f to %.3f)' % tuple(ends) if None not in ends else ''):24}",
            f"{'+'.join(map(str, result.get('pairs', []))):9}",
            f"{'%.1f %%' % (100 * result['delta']) if 'delta' in result else '':12}",
            f"{'%.3f' % control['mean'] if control else '':8}",
            f"{'%.3f' % result['processor_time'] if 'processor_time' in result else '':6}",
            f"{'%.0f %%' % (100 * result['share_of_matrix_peak']) if 'share_of_matrix_peak' in result else '':7}",
            f"{'%.3f' % result['of_peer'] if 'of_peer' in result else '':7}",
        )).rstrip()
        if result.get("why"):
            yield "    " + result["why"].replace("\n", "\n    ")


def suite_verdict(results):
    """The worst of those that are judged. "not-run" where none was."""
    return verdict.worst([result["verdict"] for result in results if result["verdict"]])


def read(folder):
    """The results of a finished run. Failure of one without verdicts."""
    try:
        return json.loads((folder / "results.json").read_text())
    except FileNotFoundError:
        raise Failure(f"{folder} has no results: it is a calibration, or was not measured by this program") from None
    except ValueError as problem:
        raise Failure(f"{folder}/results.json: not JSON (truncated?): {problem}; restore it, or measure again") from None


def earlier(folder, suite, but):
    """Records of the other finished runs of a suite in a folder, and lines about those that cannot be read."""
    found, unread = [], []
    for path in sorted(folder.glob(f"{suite}-[0-9][0-9][0-9][0-9]/records/*.json")):
        try:
            if path.parents[1].resolve() != but.resolve():
                found.append(record.read(path))
        except (OSError, ValueError) as problem:
            unread.append(f"not in the history: {problem}")
    return found, unread


def floors(run):
    """Of a calibration: by how much a program and its copy differ, for each metric whose blocks are there."""
    for metric in run.metrics:
        series = run.blocks(metric)
        if run.wanted(metric) or not series:
            continue
        pairs = verdict.differences(series[0], 1)
        mean, deviation = statistics.fmean(pairs), statistics.stdev(pairs)
        least = (intervals.t_quantile((1 + verdict.CONFIDENCE) / 2, 23) + intervals.t_quantile(0.9, 23)) * deviation / math.sqrt(24)
        yield {"name": metric.name, "hash": metric.hash(), "mean": mean, "floor": abs(mean), "deviation": deviation, "finds": math.expm1(least), "blocks": len(pairs), "when": run.state["begun"]}
