"""Train digit rows in every precision that runs here, with ten seeds each, and print how far accuracy is from fp32's.

The difference is paired: both trainings of a seed begin with the same weights and see the same batches.
"""

from __future__ import annotations

import argparse
import math

import torch
from scipy.stats import t as student

from contexts import context
from parbench.conformance.jobs import one_thread
from parbench.registry import Registry
from parbench.suitability import unsuitable

CPU = torch.device("cpu")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# (cell, strategy, --precision); the first of a cell is what the others are held against.
RECIPES = [
    ("lstm", "amp_rnn(single)", "fp32"),
    ("lstm", "amp_rnn(single)", "bf16"),
    ("lstm", "amp_rnn(single)", "fp16"),
    ("lstm", "amp_rnn(single, weights=fp16)", "fp32"),
    ("lstm", "amp_rnn(single, weights=bf16)", "fp32"),
    ("gru", "amp_rnn(single)", "fp32"),
    ("gru", "amp_rnn(single)", "bf16"),
    ("gru", "amp_rnn(single)", "fp16"),
    ("lstmcell", "amp_rnn(single)", "fp32"),
    ("lstmcell", "amp_rnn(single)", "fp16"),
]


def accuracy(cell: str, strategy: str, precision: str, seed: int, steps: int) -> float | None:
    """Return held-out accuracy after so many steps; None where the recipe cannot run here."""
    registry = Registry()
    job = registry.resolve("workload", f"digit-rows(cell={cell})").build("smoke", seed, CPU, 64)
    ctx = context(1, dtype=DTYPES[precision])
    chosen = registry.resolve("strategy", strategy)
    if unsuitable(chosen, job, ctx.dtype, CPU) or chosen.unsupported(job, ctx):
        return None
    judge = registry.resolve("workload", f"digit-rows(cell={cell})").build("smoke", seed, CPU, 64)
    trainer = chosen.wrap(job, ctx)
    for step in range(steps):
        trainer.step(job.batch(step))
    with torch.no_grad():
        for name, p in judge.model.named_parameters():
            p.copy_(trainer.full_parameters()[name])
    trainer.close()
    return judge.held_out(judge.model)["accuracy"]


def paired(differences: list[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval by Student's t."""
    n = len(differences)
    mean = sum(differences) / n
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1))
    half = float(student.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
    return mean, mean - half, mean + half


def measured(
    seeds: int, steps: int, cells: tuple[str, ...] = ("lstm", "gru", "lstmcell")
) -> dict[tuple[str, str, str], tuple[float, float, float] | None]:
    """Return recipe -> mean paired difference of accuracy from fp32 with its interval; None where it cannot run."""
    found: dict[tuple[str, str, str], tuple[float, float, float] | None] = {}
    reference: list[float | None] = []
    with one_thread():
        for cell, strategy, precision in (one for one in RECIPES if one[0] in cells):
            values = [accuracy(cell, strategy, precision, seed, steps) for seed in range(seeds)]
            if precision == "fp32" and strategy == "amp_rnn(single)":
                reference = values
                continue
            pairs = [a - b for a, b in zip(values, reference, strict=True) if a is not None and b is not None]
            found[cell, strategy, precision] = paired(pairs) if pairs else None
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=220)
    given = parser.parse_args()
    print("| cell | strategy | `--precision` | accuracy less fp32's, mean of paired differences [95 % interval] |")
    print("|---|---|---|---|")
    for (cell, strategy, precision), one in measured(given.seeds, given.steps).items():
        told = "cannot run here" if one is None else f"{one[0]:+.4f} [{one[1]:+.4f}, {one[2]:+.4f}]"
        print(f"| {cell} | `{strategy}` | {precision} | {told} |")
