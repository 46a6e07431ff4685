"""Records of a suite's run as the JSON of Google Benchmark (docs/user_guide.md, "Output Formats"), which its tools/compare.py reads:

    compare.py benchmarks RUN1.json RUN2.json              B of two runs, beside each other
    compare.py filters RUN.json '^A/' '^B/'                 A and B of one run

Each launch is a repetition of ARM/METRIC. real_time: nanoseconds of one operation, or sample, 1 / rate; of a figure without a unit of time, its cost as if it
were seconds. cpu_time: real_time times the processors that the launch kept busy, over its whole time.
"""

import statistics

KEYS = {"A": 0, "A2": 1, "B": 2}


def _rows(place, record):
    figure, blocks = record["metrics"][0], [block for series in record.get("series", []) for block in series]
    for arm, number in KEYS.items():
        launches = [block[arm] for block in blocks if arm in block]
        for repetition, launch in enumerate(launches):
            name, value = f"{arm}/{record['benchmark']}", launch["value"]
            real = 1e9 / value if figure["better"] == "higher" else 1e9 * value
            row = {
                "name": name, "family_index": 3 * place + number, "per_family_instance_index": 0, "run_name": name, "run_type": "iteration",
                "repetitions": len(launches), "repetition_index": repetition, "threads": record["threads"] or 1, "iterations": 1,
                "real_time": real, "cpu_time": real * launch["processor_s"] / launch["seconds"], "time_unit": "ns",
            }
            yield row | ({"items_per_second": value} if figure["kind"] == "rate" else {})


def of(records):
    """The object. `records`: of one run, on one machine."""
    machine = records[0]["machine"] if records else {}
    loads = [entry["conditions"]["load"] for entry in records if isinstance(entry["conditions"].get("load"), (int, float))]
    context = {
        "date": min((entry["when"] for entry in records), default=""),
        "host_name": next((entry["conditions"]["node"] for entry in records if entry["conditions"].get("node")), ""),
        "executable": records[0]["command"] if records else "",
        "num_cpus": machine.get("processors", 0),
        "mhz_per_cpu": 0,  # not known: what a reboot changes is in no record
        "cpu_scaling_enabled": False,
        "caches": [],
        "load_avg": [statistics.fmean(loads)] if loads else [],
        "library_build_type": "release",
        "fingerprint": machine.get("fingerprint", ""),
        "revision": next((entry["revision"] for entry in records if entry["revision"]), ""),
    }
    return {"context": context, "benchmarks": [row for place, entry in enumerate(records) for row in _rows(place, entry)]}
