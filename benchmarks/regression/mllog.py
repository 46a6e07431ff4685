"""Records as lines of MLPerf's log, `:::MLLOG {JSON object}`, which the package mlperf_logging reads (mlcommons/logging, mlperf_logging/mllog/README.md):

    {"namespace": "", "time_ms": whole milliseconds since 1970, "event_type": "INTERVAL_START", "INTERVAL_END" or "POINT_IN_TIME", "key": …, "value": …,
     "metadata": {"file": …, "lineno": …, …}}

A measured metric is its benchmark and platform, and `tracked_stats` of each launch; the seeds of a convergence record are runs, with evaluations as
`eval_accuracy` by samples, and `run_stop` with status success or aborted. Times within a record are its begin plus the seconds that the record knows.
"""

import datetime
import json

TOKEN = ":::MLLOG "


def _line(place, seconds, key, value, event="POINT_IN_TIME", **metadata):
    when, file = place
    entry = {"namespace": "", "time_ms": round(1000 * (when + seconds)), "event_type": event, "key": key, "value": value, "metadata": {"file": file, "lineno": 0, **metadata}}
    return TOKEN + json.dumps(entry)  # ASCII: readers take the file for Latin-1


def _of_launches(place, record):
    arm, begin = "B", 0.0
    blocks = [block for series in record.get("series", []) for block in series]
    for metric in record["metrics"]:
        for launch, value in enumerate(metric["values"]):
            yield _line(place, begin, "tracked_stats", {metric["name"]: value}, step=launch + 1, unit=metric["unit"], better=metric["better"])
            begin += blocks[launch][arm]["seconds"] if launch < len(blocks) and arm in blocks[launch] else 0.0


def _of_seeds(place, record):
    begin, batch = 0.0, record["settings"].get("batch")
    for run in record["convergence"]:
        yield _line(place, begin, "global_batch_size", batch)
        yield _line(place, begin, "seed", run["seed"])
        yield _line(place, begin, "run_start", None, "INTERVAL_START")
        for step, value, seconds in run["curve"]:
            yield _line(place, begin + seconds, "eval_accuracy", value, samples_count=step * batch)
        begin += run["curve"][-1][2] if run["curve"] else 0.0
        yield _line(place, begin, "run_stop", None, "INTERVAL_END", status="aborted" if run["steps"] is None else "success")


def lines(records):
    """The lines of records, one after the other."""
    for record in records:
        when = datetime.datetime.fromisoformat(record["when"].replace("Z", "+00:00")).timestamp()
        place = when, f"{record['benchmark']}.json"
        yield _line(place, 0, "submission_benchmark", record["benchmark"], settings_hash=record["settings_hash"], revision=record["revision"])
        yield _line(place, 0, "submission_platform", record["machine"].get("cpu", "unknown"), fingerprint=record["machine"]["fingerprint"], threads=record["threads"], ranks=record["ranks"])
        yield from _of_seeds(place, record) if "convergence" in record else _of_launches(place, record)
        if "verdict" in record:
            yield _line(place, 0, "verdict", record["verdict"]["verdict"], **{key: record["verdict"][key] for key in ("why", "ratio") if record["verdict"].get(key)})


def text(records):
    return "".join(line + "\n" for line in lines(records))
