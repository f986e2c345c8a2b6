"""A budget is what strategies are compared at if not at one global batch: memory of a rank, or tokens of a step."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from parbench.comparable import grouped
from parbench.errors import UsageError
from parbench.metrics import Cell

_UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What is fixed.

    Attributes:
        kind: "memory" (bytes of the rank that needs most) or "tokens" (of a step, over all ranks).
        amount: how much of it.
        text: as the user wrote it.
    """

    kind: Literal["memory", "tokens"]
    amount: float
    text: str

    @property
    def sentence(self) -> str:
        """Say what is fixed and what is compared."""
        if self.kind == "tokens":
            return f"fixed {self.amount:.0f} tokens per step, whatever the sequence length"
        return (
            f"fixed {self.text.partition('=')[2]} of memory per rank: each strategy at the global batch of its highest "
            "throughput within that, compared by rates"
        )

    def watches(self, metric: str) -> bool:
        """Whether a metric means the same at the batches that are compared."""
        return self.kind == "tokens" or "_per_s" in metric or metric == "peak_memory_bytes"


def parse_budget(text: str) -> Budget:
    """Read `memory=8GiB` or `tokens=4096`.

    Raises:
        UsageError: it is neither.
    """
    found = re.fullmatch(r"(memory|tokens)=(\d+(?:\.\d+)?) ?([A-Za-z]*)", text.strip())
    unit = None if found is None else _UNITS.get(found[3].lower())
    if found is None or unit is None or (found[1] == "tokens" and found[3]) or not float(found[2]):
        raise UsageError(f"--fixed {text[:40]!r} is no budget; give memory=8GiB (B, KiB, MiB, GiB) or tokens=4096")
    kind: Literal["memory", "tokens"] = "memory" if found[1] == "memory" else "tokens"
    return Budget(kind=kind, amount=float(found[2]) * unit, text=text.strip())


def at_budget(cells: Sequence[Cell], budget: Budget, tokens_of: Callable[[Cell], int]) -> list[list[Cell]]:
    """Return the cells that are compared at a budget, by group.

    Args:
        cells: of the sweep, at several global batches.
        budget: what is fixed.
        tokens_of: tokens (or samples, where a workload counts those) of a step of a cell.

    Raises:
        UsageError: no cell is within the budget, or memory was not measured.
    """
    if budget.kind == "tokens":
        kept = [cell for cell in cells if tokens_of(cell) == budget.amount]
        hide = {"global_batch_size": None, "size": "any"}
    else:
        fits = [cell for cell in cells if (_value(cell, "peak_memory_bytes") or math.inf) <= budget.amount]
        kept = _highest(fits)
        hide = {"global_batch_size": None}
    if not kept:
        raise UsageError(f"no cell is within --fixed {budget.text}: {_there_is(cells, budget, tokens_of)}")
    blurred = [msgspec.structs.replace(cell, spec=msgspec.structs.replace(cell.spec, **hide)) for cell in kept]
    back = {id(one): cell for one, cell in zip(blurred, kept, strict=True)}
    return [[back[id(one)] for one in group] for group in grouped(blurred)]


def _highest(cells: Sequence[Cell]) -> list[Cell]:
    """Return of each strategy, size and number of ranks the cell with the highest throughput."""
    best: dict[tuple[object, ...], Cell] = {}
    for cell in cells:
        key = (cell.spec.workload, cell.spec.size, cell.strategy, cell.spec.world_size, cell.fingerprint, cell.software)
        if key not in best or (_value(cell, "samples_per_s") or 0) > (_value(best[key], "samples_per_s") or 0):
            best[key] = cell
    return list(best.values())


def _there_is(cells: Sequence[Cell], budget: Budget, tokens_of: Callable[[Cell], int]) -> str:
    if budget.kind == "tokens":
        return f"steps here have {', '.join(map(str, sorted({tokens_of(cell) for cell in cells})))} tokens"
    least = [x for cell in cells if (x := _value(cell, "peak_memory_bytes")) is not None]
    return f"the least needs {min(least) / 2**20:.3g} MiB" if least else "no record has peak_memory_bytes"


def _value(cell: Cell, name: str) -> float | None:
    metric = cell.metrics.get(name)
    return metric.value if metric is not None else None
