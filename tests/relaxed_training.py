"""Prints what relaxing synchrony costs in held-out accuracy: differences to synchronous training, seed by seed.

Every run is of `digits`, size small, with its own batch size and optimizer; ten seeds, eight epochs and a half.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from compressor_training import interval
from parbench import RunSpec, Session

SEEDS, STEPS, RANKS = 10, 200, 2
SYNCHRONOUS = "no_overlap"
# SelSync as its authors run it (delta 0.3, window 25, weights averaged); local SGD with periods of its paper's range.
SYSTEMS = ("selsync", "selsync(aggregate=grads)", "local_sgd(period=4)", "local_sgd(period=8)")


def trained(session: Session, strategy: str, seed: int, steps: int) -> tuple[float, float]:
    """Return the held-out accuracy after so many steps, and the part of the steps that were local."""
    spec = RunSpec(workload="digits", strategy=strategy, size="small", seed=seed, world_size=RANKS)
    variant = session.add(spec)
    try:
        variant.round(steps)
        accuracy = variant.held_out().values["accuracy"]
        # The inspection takes a few steps more, which changes the ratio little.
        notes = variant.inspect()[0].notes
    finally:
        variant.close()
    return accuracy, float(notes.get("lssr", 0.0))


def paired(
    session: Session, strategy: str, seeds: int, steps: int, bare: dict[int, float]
) -> tuple[Sequence[float], float]:
    """Return by how much accuracy is higher than with synchronous training, seed by seed, and the mean LSSR."""
    found, local = [], []
    for seed in range(seeds):
        if seed not in bare:
            bare[seed] = trained(session, SYNCHRONOUS, seed, steps)[0]
        accuracy, lssr = trained(session, strategy, seed, steps)
        found.append(accuracy - bare[seed])
        local.append(lssr)
    return found, sum(local) / len(local)


def main() -> None:
    """Train and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=SEEDS)
    arguments.add_argument("--steps", type=int, default=STEPS)
    arguments.add_argument("systems", nargs="*", default=SYSTEMS)
    given = arguments.parse_args()
    bare: dict[int, float] = {}
    print("| system | accuracy, percentage points more than synchronous | local steps per step (LSSR) |")
    print("|---|--:|--:|")
    with Session(world_size=RANKS) as session:
        for system in given.systems:
            found, lssr = paired(session, system, given.seeds, given.steps, bare)
            mean, low, high = (100 * value for value in interval(found))
            print(f"| `{system}` | {mean:+.2f} [{low:+.2f}, {high:+.2f}] | {lssr:.2f} |", flush=True)
    print(f"\nSynchronous training reaches {100 * sum(bare.values()) / len(bare):.2f} % on average.")


if __name__ == "__main__":
    main()
