"""Prints how long a step takes with parbench's fp16 and PowerSGD beside torch's hooks, interleaved round by round."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from parbench import RunSpec, Session

PAIRS = {
    "fp16": ("replicated(fusion=merged, compressor=fp16)", "hooked(hook=fp16)"),
    "powersgd": ("replicated(fusion=merged, compressor=powersgd)", "hooked(hook=powersgd)"),
}


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--workload", default="text")
    arguments.add_argument("--size", default="small")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--steps", type=int, default=5)
    given = arguments.parse_args()
    with Session(world_size=2, plugins=[Path(__file__).parent / "hooked.py"]) as session:
        for name, pair in PAIRS.items():
            specs = [RunSpec(workload=given.workload, size=given.size, strategy=text, world_size=2) for text in pair]
            variants = [session.add(spec) for spec in specs]
            for variant in variants:
                variant.round(given.steps)
            walls = [
                [variant.round(given.steps).wall_s / given.steps for variant in variants] for _ in range(given.rounds)
            ]
            for variant in variants:
                variant.close()
            ours, torchs = (1e3 * statistics.median(column) for column in zip(*walls, strict=True))
            ratio = statistics.median(a / b for a, b in walls)
            print(f"{name}: parbench {ours:.2f} ms, torch's hook {torchs:.2f} ms a step, median ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
