"""Laws about draws: what a compressor's contributions are on average, which one draw cannot show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from parbench.api import Compressor
from parbench.conformance.compressed import SHAPES, Ranks, drawn, steps_of

_DRAWS: Final = 200
# Of a normal variable: beyond this once in two million draws. A compressor that is unbiased fails one of the 15 tests
# (five directions of three tensors) about once in 100,000.
_UNLIKELY: Final = 5.0


def contraction(compressor: Compressor, world_size: int) -> str | None:
    """On average over draws; of each tensor by itself."""
    errors: dict[str, list[float]] = {name: [] for name, shape in SHAPES.items() if math.prod(shape)}
    for step in steps_of(compressor, world_size, 15):
        for name, of_name in errors.items():
            grad = step.given[0][name]
            of_name.append(float((grad - step.contributions[0][name]).norm() ** 2 / grad.norm() ** 2))
    wrong = {name: sum(e) / len(e) for name, e in errors.items() if not sum(e) / len(e) < 1}
    return next((f"what is left of {SHAPES[name]} is {e:.3g} of its square" for name, e in wrong.items()), None)


def unbiased(compressor: Compressor, world_size: int) -> str | None:
    """Of the error along five directions, the mean over draws is zero but for chance."""
    ranks = Ranks(compressor, 1)
    # Smaller tensors stay as they are, or are no harder to get right.
    given = {name: grad for name, grad in drawn(0, 1)[0].items() if name in ("a", "vector")} | {
        "skewed": torch.randn(1200, generator=torch.Generator().manual_seed(7)) ** 3
    }
    numbers = torch.Generator().manual_seed(5)
    directions: dict[str, list[Tensor]] = {
        name: [
            grad,
            grad.sign(),
            torch.ones_like(grad),
            *(torch.randn(grad.shape, generator=numbers) for _ in range(2)),
        ]
        for name, grad in given.items()
    }
    seen: dict[str, list[list[float]]] = {name: [[] for _ in range(5)] for name in given}
    for _ in range(_DRAWS):
        found = ranks.step([given]).contributions[0]
        for name, grad in given.items():
            error = (found[name] - grad).double()
            for values, direction in zip(seen[name], directions[name], strict=True):
                values.append(float((error * direction).sum()))
    for name, columns in seen.items():
        for values in columns:
            mean, spread = _mean_and_error(values)
            if abs(mean) > _UNLIKELY * spread + 1e-4 * float(given[name].double().square().sum() + 1):
                return (
                    f"the mean of {_DRAWS} contributions is {abs(mean) / max(spread, 1e-300):.1f} standard errors off"
                )
    return None


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    variance = math.fsum((x - mean) ** 2 for x in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))
