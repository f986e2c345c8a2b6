"""Time to loss: how many steps, seconds, bytes and joules a strategy takes until its training loss is as low as asked.

Strategies that change the mathematics may take cheaper steps and more of them; only this compares them with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from parbench.errors import UsageError
from parbench.record import RunRecord, Schema

if TYPE_CHECKING:
    import pandas

SCHEMA = Schema(name="parbench.toloss", major=1, minor=0)
# A loss counts as reached by the mean of so many steps, not by one lucky batch.
_SMOOTHED_STEPS = 5
# Runs that differ in one of these do not train the same thing in the same place; seeds are launches of one.
_TOLD = (
    "global_batch_size", "precision", "recompute", "compile", "accumulate", "data_workers", "data_delay_s", "threads",
    "device", "backend", "network", "rank_speed", "straggler",
)  # fmt: skip


class ToLoss(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy on its way to a loss.

    Attributes:
        workload: with its size, and what else runs differ in.
        strategy: as the user wrote it.
        ranks: world size.
        launches: behind the numbers, which are medians over them.
        agrees: how closely it claims to train as one process does.
        target: the loss to reach.
        last: the loss at the end; None where it was not finite.
        steps: training steps until then, warm-up included; None where it was not reached.
        seconds: of those steps, each on its slowest rank.
        bytes: logical bytes that one rank sent in them; None where they were not counted.
        joules: of all ranks in them; None where energy was not measured.
    """

    workload: str
    strategy: str
    ranks: int
    launches: int
    agrees: str
    target: float
    last: float | None
    steps: float | None = None
    seconds: float | None = None
    bytes: float | None = None
    joules: float | None = None


class LossTable(msgspec.Struct, frozen=True, kw_only=True):
    """All strategies of a folder on their way to a loss, by workload."""

    schema: Schema = SCHEMA
    path: str
    rows: tuple[ToLoss, ...]


def to_loss(path: Path, records: Sequence[RunRecord], target: float | None = None) -> LossTable:
    """Return what every strategy took to reach a loss.

    Args:
        path: of the results; every step's loss is read from there.
        records: of the runs to look at.
        target: the loss to reach; by default the highest that any strategy of the workload ended with, so that all do.

    Raises:
        UsageError: no run has losses.
    """
    from parbench.frames import load

    by_id = {record.id: record for record in records if record.status == "complete"}
    frame = load(path, steps=True)
    curves = {str(run): curve_of(part) for run, part in frame.groupby("run") if run in by_id}
    curves = {run: curve for run, curve in curves.items() if len(curve)}
    if not curves:
        raise UsageError(f"no run under {str(path)!r} has losses of its steps; give results of complete runs")
    named = namer([by_id[run] for run in curves])
    groups: dict[str, list[str]] = {}
    for run in curves:
        groups.setdefault(named(by_id[run]), []).append(run)
    rows = []
    for workload, runs in groups.items():
        ends = [float(curves[run]["loss"].iloc[-1]) for run in runs if curves[run]["loss"].notna().iloc[-1]]
        goal = target if target is not None else max(ends, default=0.0)
        cells: dict[tuple[str, int], list[str]] = {}
        for run in runs:
            cells.setdefault((by_id[run].spec.strategy, by_id[run].spec.world_size), []).append(run)
        rows += [_row(workload, [(by_id[r], curves[r]) for r in members], goal) for members in cells.values()]
    return LossTable(path=str(path), rows=tuple(rows))


def namer(records: Sequence[RunRecord]) -> Callable[[RunRecord], str]:
    """Return what names a run's workload, with the settings, machines and software in which `records` differ."""

    def facts(record: RunRecord) -> dict[str, object]:
        where = {"machine": record.environment.fingerprint[:8], "software": record.environment.software[:8]}
        return {name: getattr(record.spec, name) for name in _TOLD} | where

    every = [facts(record) for record in records]
    told = [name for name in every[0] if len({each[name] for each in every}) > 1]

    def named(record: RunRecord) -> str:
        said = (f"{name}={facts(record)[name]}" for name in told)
        return ", ".join([f"{record.spec.workload}/{record.spec.size}", *said])

    return named


def curve_of(steps: pandas.DataFrame) -> pandas.DataFrame:
    """Return one run's smoothed loss and seconds so far, by step."""
    # Every rank takes part in a step; it is over when the slowest is.
    curve = steps.groupby("step").agg(seconds=("seconds", "max"), loss=("loss", "mean")).sort_index()
    curve["loss"] = curve["loss"].rolling(_SMOOTHED_STEPS, min_periods=_SMOOTHED_STEPS).mean()
    curve["seconds"] = curve["seconds"].cumsum()
    return curve


def _row(workload: str, runs: Sequence[tuple[RunRecord, pandas.DataFrame]], target: float) -> ToLoss:
    first = runs[0][0]
    reached = [found for record, curve in runs if (found := _reached(record, curve, target)) is not None]
    ends = [float(curve["loss"].iloc[-1]) for _, curve in runs if curve["loss"].notna().iloc[-1]]
    row = ToLoss(
        workload=workload,
        strategy=first.spec.strategy,
        ranks=first.spec.world_size,
        launches=len(runs),
        agrees=first.agreement.declared if first.agreement else "not checked",
        target=target,
        last=median(ends) if ends else None,
    )
    if len(reached) < len(runs):
        return row
    steps, seconds, sent, joules = zip(*reached, strict=True)
    return msgspec.structs.replace(
        row, steps=median(steps), seconds=median(seconds), bytes=_median(sent), joules=_median(joules)
    )


def _reached(
    record: RunRecord, curve: pandas.DataFrame, target: float
) -> tuple[float, float, float | None, float | None] | None:
    below = curve[curve["loss"] <= target * (1 + 1e-9)]
    if below.empty:
        return None
    at = below.index[0]
    steps = float(curve.index.get_loc(at) + 1)  # type: ignore[operator]
    sent, energy = (_per_step(record, name) for name in ("traffic_bytes_per_step", "energy_j_per_step"))
    seconds = float(curve["seconds"].loc[at])
    return steps, seconds, None if sent is None else steps * sent, None if energy is None else steps * energy


def _per_step(record: RunRecord, name: str) -> float | None:
    metric = record.metrics.get(name)
    return metric.value if metric is not None else None


def _median(values: Sequence[float | None]) -> float | None:
    known = [x for x in values if x is not None]
    return median(known) if len(known) == len(values) else None
