#!/usr/bin/env python3
"""Checks the predictions of benchmarks/links/compare_meshes against messages that are counted one by one."""

import importlib.machinery
import importlib.util
import math
import pathlib
import sys

sys.dont_write_bytecode = True
links = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "links"
sys.path.insert(0, str(links))
loader = importlib.machinery.SourceFileLoader("compare_meshes", str(links / "compare_meshes"))
meshes = importlib.util.module_from_spec(importlib.util.spec_from_loader("compare_meshes", loader))
loader.exec_module(meshes)

ALPHA, BETA, FREE = 1e-4, 8e-9, 0.5
MODEL = {"batch": 8, "length": 16, "width": 32, "blocks": 4, "vocabulary": 256, "micro_batches": 4}
# Embedding, positions, four blocks of norm, Q K V, output, norm and two maps, head; without the last norm.
PARAMETERS = [256 * 32, 16 * 32] + 4 * [64 + 3 * 32 * 32 + 96 + 32 * 32 + 32 + 64 + 32 * 128 + 128 + 128 * 32 + 32] + [32 * 256]


def ring(n, ranks):
    """Seconds and bytes of one rank: parts go round twice, once to be added and once to be known."""
    messages = 2 * (ranks - 1) * [n / ranks]
    return sum(ALPHA + BETA * bytes for bytes in messages), sum(messages)


def makespan(_, ranks, micro_batches, costs, hop):
    """In place of the simulator, which has tests of its own: to the last stage and back, each hop once."""
    return (micro_batches + ranks - 1) * sum(costs) + 2 * (ranks - 1) * hop


def main():
    meshes.makespan = makespan
    failures = []

    def check(mesh, seconds, sent):
        found, added, bytes_sent = meshes.predict({"data": 1, "pipeline": 1, "tensor": 1} | mesh, MODEL, ALPHA, BETA, FREE, None)
        if not math.isclose(found, FREE + seconds, rel_tol=1e-12) or not math.isclose(found, FREE + sum(added.values()), rel_tol=1e-12):
            failures.append(f"{mesh}: {found} s, expected {FREE + seconds}")
        if not math.isclose(bytes_sent, sent, rel_tol=1e-12):
            failures.append(f"{mesh}: {bytes_sent} bytes, expected {sent}")

    check({}, 0, 0)
    check({"data": 4}, *ring(4 * sum(PARAMETERS), 4))
    # Of an activation: 8 forward and 1 of the embedding, 8 backward and 1 of the head.
    seconds, sent = ring(4 * 8 * 16 * 32, 4)
    check({"tensor": 4}, 18 * seconds, 18 * sent)
    message = 4 * 2 * 16 * 32  # two samples; six hops, of four micro-batches forward host 1 sends
    check({"pipeline": 4}, 6 * (ALPHA + BETA * message), 4 * message)
    first_stage = 4 * sum(PARAMETERS[:4])
    gradients, sent = ring(first_stage, 2)
    check({"data": 2, "pipeline": 2}, gradients + 2 * (ALPHA + BETA * message / 2), sent + 4 * message / 2)
    # In F and in I four and one, the head's on the other host; two stages, four micro-batches: five one after another.
    seconds, sent = ring(message, 2)
    check({"pipeline": 2, "tensor": 2}, 5 * 10 * seconds + 2 * (ALPHA + BETA * message), 4 * (9 * sent + message))
    print("predictions of meshes: " + ("all right" if not failures else "\n".join(["FAILED", *failures])))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
