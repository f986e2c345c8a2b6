"""Prints docs/compression.md's second table: what training with every compressor loses, seed by seed, at two ranks.

The loss is the mean of a run's last tenth of steps; beside it the same run without a compressor, from the same seed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import scipy.stats

from parbench import RunSpec, Session
from parbench.registry import Registry

STEPS = 100
WORKLOADS = (("digits", "small"),)
LEFT_OUT = ("none",)


def final_loss(session: Session, strategy: str, workload: str, size: str, seed: int, steps: int) -> float:
    """Return the mean loss of the last tenth of so many steps."""
    spec = RunSpec(workload=workload, strategy=strategy, size=size, seed=seed, world_size=2)
    variant = session.add(spec)
    try:
        losses = [loss for loss in variant.round(steps).losses if loss is not None]
    finally:
        variant.close()
    return statistics.fmean(losses[-max(1, steps // 10) :]) if len(losses) == steps else float("nan")


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of paired differences and Student's 95 % interval of it."""
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    half = float(scipy.stats.t.ppf(0.975, len(differences) - 1)) * error
    return mean, mean - half, mean + half


def differences(
    session: Session, strategy: str, workload: str, size: str, seeds: int, steps: int, bare: dict[int, float]
) -> list[float]:
    """Return by how much the loss is higher than without a compressor, seed by seed; `bare` keeps the latter."""
    found = []
    for seed in range(seeds):
        if seed not in bare:
            bare[seed] = final_loss(session, "replicated", workload, size, seed, steps)
        found.append(final_loss(session, strategy, workload, size, seed, steps) - bare[seed])
    return found


def main() -> None:
    """Train and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--steps", type=int, default=STEPS)
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_args()
    names = given.names or [name for name in Registry().names("compressor") if name not in LEFT_OUT]
    kept: dict[str, dict[int, float]] = {workload: {} for workload, _ in WORKLOADS}
    print("| compressor | " + " | ".join(f"{workload}, {size}" for workload, size in WORKLOADS) + " |")
    print("|---|" + "--:|" * len(WORKLOADS))
    with Session(world_size=2) as session:
        for name in names:
            cells = []
            for workload, size in WORKLOADS:
                found = differences(session, name, workload, size, given.seeds, given.steps, kept[workload])
                mean, low, high = interval(found)
                cells.append(f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]")
            print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
        ends = (f"{w} {statistics.fmean(kept[w].values()):.3f}" for w, _ in WORKLOADS)
        print(f"\nWithout a compressor the losses are, on average, {', '.join(ends)} nats.")


if __name__ == "__main__":
    main()
