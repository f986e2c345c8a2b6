"""Scaling says what more ranks bring: strong with the same global batch, weak with the same batch per rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from parbench.comparable import setting_of
from parbench.comparison import Scaled
from parbench.metrics import Cell


def scaling(cells: Sequence[Cell], names: Sequence[str]) -> list[Scaled]:
    """Return how each strategy scales, where it was measured at two world sizes or more.

    The base is the strategy's own smallest world size: one process without a wrapper (`single`) is another program than
    the strategy at one rank. Formulas: strong T_1 / (N T_N), weak T_1 / T_N, overhead N T_N - T_1 of N ranks, with the
    base in place of one rank.

    Args:
        cells: rankable or not; what is not is left out.
        names: workload with size of each.
    """
    return [*_of_kind(cells, names, "strong"), *_of_kind(cells, names, "weak")]


def crossover(cells: Sequence[Cell]) -> list[str]:
    """Return sentences on the number of ranks from which another strategy is the fastest, for one group of cells."""
    times: dict[int, dict[str, float]] = {}
    for cell in cells:
        if (time := _time(cell)) is not None:
            times.setdefault(cell.spec.world_size, {})[cell.strategy] = time
    sizes = sorted(n for n, found in times.items() if len(found) > 1)
    best = [(n, min(times[n], key=times[n].__getitem__)) for n in sizes]
    return [
        f"from {m} ranks {after} has the shortest step time, at {n} it is {before}"
        for (n, before), (m, after) in pairwise(best)
        if before != after
    ]


def _of_kind(cells: Sequence[Cell], names: Sequence[str], kind: str) -> list[Scaled]:
    groups: dict[tuple[object, ...], list[tuple[str, Cell]]] = {}
    for name, cell in zip(names, cells, strict=True):
        if (key := _key(cell, kind)) is not None:
            groups.setdefault(key, []).append((name, cell))
    return [one for group in groups.values() for one in _group(group, kind)]


def _key(cell: Cell, kind: str) -> tuple[object, ...] | None:
    spec = cell.spec
    if _time(cell) is None or spec.global_batch_size is None:
        return None
    if kind == "weak" and spec.global_batch_size % spec.world_size:
        return None
    batch = spec.global_batch_size if kind == "strong" else spec.global_batch_size // spec.world_size
    return (*setting_of(spec), cell.strategy, cell.fingerprint, cell.software, batch)


def _group(group: Sequence[tuple[str, Cell]], kind: str) -> list[Scaled]:
    ordered = sorted(group, key=lambda item: item[1].spec.world_size)
    base = ordered[0][1]
    if len({cell.spec.world_size for _, cell in ordered}) < 2:
        return []
    return [_scaled(name, cell, base, kind) for name, cell in ordered]


def _scaled(name: str, cell: Cell, base: Cell, kind: str) -> Scaled:
    t, t_base = _time(cell) or 0.0, _time(base) or 0.0
    more = cell.spec.world_size / base.spec.world_size
    work = more if kind == "weak" else 1.0
    ranks = base.spec.world_size
    return Scaled(
        workload=name,
        strategy=cell.strategy,
        kind=kind,
        base=f"{base.strategy} at {ranks} rank{'s' if ranks > 1 else ''}",
        ranks=cell.spec.world_size,
        step_time_s=t,
        speed_up=work * t_base / t,
        efficiency=work * t_base / t / more,
        overhead_s=cell.spec.world_size * t - work * ranks * t_base,
    )


def _time(cell: Cell) -> float | None:
    found = cell.metrics.get("step_time_s")
    return found.value if found is not None and cell.rankable and found.value else None
