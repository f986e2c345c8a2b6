"""The GPU check runs every strategy on one GPU: alone with NCCL, and as two ranks over gloo where gloo can.

    PYTHONPATH=bench:strategies python tests/gpu_check.py -o results/gpu     (make gpu-check)
    ... --device cpu                                                          its twin for machines without a GPU

One script for a borrowed machine: no network, no scikit-learn, nothing installed but what `pip install .` needs. Every
case leaves a record; the table comes last. It ends with 1 if a case failed, disagreed or hung.
"""

import argparse
import sys
import time
from pathlib import Path

from parbench import RunSpec, run
from parbench.registry import Registry

WORKLOADS = ("text", "gpt")


def specs(device, strategies, size, steps):
    """Return the cells: one rank on the best backend, and two that share the GPU over gloo."""
    alone = {"world_size": 1, "backend": "nccl" if device == "cuda" else "gloo"}
    shared = {"world_size": 2, "backend": "gloo"}
    return [
        RunSpec(workload=workload, strategy=strategy, size=size, device=device, steps=steps, timeout_s=60.0, **where)
        for where in (alone, shared)
        for workload in WORKLOADS
        for strategy in strategies
    ]


def say(event):
    """Print a line per case, so that a stuck machine shows where."""
    if event.kind == "phase" and event.phase in ("start-up", "measuring"):
        print(f"  {event.case}: {event.phase}", file=sys.stderr, flush=True)


def line(record):
    """Return the row of one case."""
    step = record.metrics.get("step_time_s")
    time_ms = f"{step.value * 1e3:9.2f} ms" if step is not None and step.value is not None else " " * 12
    agreement = record.agreement
    passed = "" if agreement is None else {True: "agrees", False: "DISAGREES", None: "unchecked"}[agreement.passed]
    where = f"{record.spec.world_size} x {record.spec.device} {record.spec.backend}"
    reason = (record.reason or (agreement.reason if agreement else "") or "")[:90]
    text = f"{record.spec.strategy:14.14} {record.spec.workload:5} {where:13} {record.status:11} {time_ms} {passed:10}"
    return f"{text} {reason}".rstrip()


def bad(record):
    """Whether a case is not what it should be; what is unsupported says why and is fine."""
    disagrees = record.agreement is not None and record.agreement.passed is False
    return record.status not in ("complete", "unsupported") or disagrees


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("-o", "--out", default="results/gpu", help="folder of the records")
    parser.add_argument("--size", default="smoke")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("-s", "--strategy", action="append", help="only these; every one unless given")
    asked = parser.parse_args()
    started_s = time.monotonic()
    names = asked.strategy or Registry().names("strategy")
    records = run(specs(asked.device, names, asked.size, asked.steps), out=Path(asked.out), fresh=True, listener=say)
    for record in sorted(records, key=lambda one: (one.spec.world_size, one.spec.workload, one.spec.strategy)):
        print(line(record))
    wrong = [record for record in records if bad(record)]
    print(f"{len(records)} cases, {len(wrong)} bad, {time.monotonic() - started_s:.0f} s; records in {asked.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
