"""A Row is what the table says about one cell, in words, before anything is laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from parbench.comparable import REFERENCE
from parbench.metrics import Cell
from parbench.record import Agreement, Metric, RunRecord
from parbench.report.words import DASH, SIGNS, TIMES, amount, number, several, small, visible, with_interval
from parbench.spec import RunSpec

# Settings that tell groups apart, and what to call them.
_SHOWN = (
    ("batch", "global_batch_size"),
    ("", "precision"),
    ("recompute", "recompute"),
    ("compile", "compile"),
    ("accumulate", "accumulate"),
    ("seed", "seed"),
    ("threads", "threads"),
    ("", "device"),
    ("", "backend"),
    ("network", "network"),
    ("speeds", "rank_speed"),
    ("straggler", "straggler"),
)

State = Literal["ranked", "unranked", "failed"]

SPEED = f"{TIMES} {REFERENCE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        group: cells with the same group are compared with each other.
        state: whether it is ranked, shown only, or has no numbers.
        texts: column -> what it says.
        footnotes: column -> sentences about that number.
    """

    group: str
    state: State
    texts: Mapping[str, str]
    footnotes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def named(cell: Cell) -> str:
    """Return a cell's strategy and ranks in words."""
    ranks = cell.spec.world_size
    return f"{visible(cell.strategy, 60)} at {ranks} rank{'' if ranks == 1 else 's'}"


def group_name(cell: Cell, cells: Sequence[Cell]) -> str:
    """Return the workload and whatever else differs between the groups of `cells`."""
    return namer(cells)(cell)


def namer(cells: Sequence[Cell]) -> Callable[[Cell], str]:
    """Return what gives each of `cells` the name of its group; quicker than to ask for one after the other."""
    of_workload: dict[tuple[str, str], list[RunSpec]] = {}
    for cell in cells:
        of_workload.setdefault((cell.spec.workload, cell.spec.size), []).append(cell.spec)
    varying = {
        key: [shown for shown in _SHOWN if len({getattr(spec, shown[1]) for spec in specs}) > 1]
        for key, specs in of_workload.items()
    }
    machines = len({one.fingerprint for one in cells}) > 1
    versions = len({one.software for one in cells}) > 1

    def name(cell: Cell) -> str:
        spec = cell.spec
        parts = [f"{visible(spec.workload, 40)}/{visible(spec.size, 20)}"]
        for label, attribute in varying.get((spec.workload, spec.size), ()):
            parts.append(f"{label} {visible(getattr(spec, attribute), 60)}".strip())
        parts += [f"machine {visible(cell.fingerprint, 6)}"] if machines else []
        parts += [f"software {visible(cell.software, 6)}"] if versions else []
        return " ".join(parts)

    return name


def step_time(cell: Cell) -> Metric:
    """Return a cell's step time, or the metric that says there is none."""
    return cell.metrics.get("step_time_s") or Metric.unavailable("s", "lower", "it is not in the record")


def reference_of(group: Sequence[Cell]) -> Cell | None:
    """Return the cell that speed is given relative to, if it can be believed."""
    found = (cell for cell in group if cell.strategy == REFERENCE and cell.rankable)
    return next((cell for cell in found if step_time(cell).value), None)


def machine_of(record: RunRecord) -> str:
    """Return machine and torch in words."""
    facts = record.environment.facts
    cores = facts.get("cores")
    parts = [visible(facts.get("gpu") or facts.get("cpu") or "unknown machine", 60)]
    parts += [f"{visible(cores, 10)} cores"] if cores else []
    parts += [f"torch {visible(facts['torch'], 30)}"] if facts.get("torch") else []
    return ", ".join(parts)


def overlap(left: Metric, right: Metric) -> bool:
    """Whether the intervals of two metrics overlap; a metric without one overlaps everything."""
    if left.ci_low is None or left.ci_high is None or right.ci_low is None or right.ci_high is None:
        return True
    return left.ci_low <= right.ci_high and right.ci_low <= left.ci_high


def has_interval(metric: Metric) -> bool:
    """Whether it is known how sure a metric is."""
    return metric.ci_low is not None and metric.ci_high is not None


def leaders(group: Sequence[Cell]) -> list[Cell]:
    """Return the fastest cell of a group, then those that cannot be told from it; none where fewer than two rank."""
    ranked = sorted((cell for cell in group if cell.rankable), key=lambda cell: step_time(cell).value or 0.0)
    if len(ranked) < 2:
        return []
    return [ranked[0], *(cell for cell in ranked[1:] if overlap(step_time(ranked[0]), step_time(cell)))]


def row(cell: Cell, group: Sequence[Cell], name: str, records: Sequence[RunRecord]) -> Row:
    """Return the line of `cell`.

    Args:
        cell: what it is about.
        group: all cells it is compared with, itself included.
        name: of the group.
        records: the launches behind the cell.
    """
    texts = {"workload": name, "strategy": visible(cell.strategy, 40), "ranks": str(cell.spec.world_size)}
    if not cell.launches:
        return Row(group=name, state="failed", texts={**texts, "step time": "/".join(dict.fromkeys(cell.statuses))})
    throughput = cell.metrics.get("tokens_per_s")
    if throughput is None or throughput.value is None:
        throughput = cell.metrics.get("samples_per_s")
    metrics = {
        "step time": step_time(cell),
        "throughput": throughput,
        "startup": cell.metrics.get("startup_s"),
        "final loss": cell.metrics.get("final_loss"),
        "held-out acc.": cell.metrics.get("held_out_accuracy"),
    }
    footnotes: dict[str, tuple[str, ...]] = {}
    for column, metric in metrics.items():
        texts[column], footnotes[column] = told(column, metric)
    texts["agreement"], footnotes["agreement"] = _agreement(records)
    texts[SPEED] = _speed(cell, group)
    unranked = _why_unranked(cell, records)
    footnotes["step time"] = tuple(dict.fromkeys((*footnotes["step time"], *unranked)))
    return Row(group=name, state="ranked" if cell.rankable else "unranked", texts=texts, footnotes=footnotes)


def told(column: str, metric: Metric | None) -> tuple[str, tuple[str, ...]]:
    """Return what a column says of a metric, and the sentences that must be read with it."""
    if metric is None:
        return DASH, (f"{column}: it is not in the record",)
    if metric.value is None:
        return DASH, (f"{column}: {visible(metric.reason or 'not measured')}",)
    text = with_interval(metric) if column == "step time" else _short(column, metric)
    if metric.quality == "measured":
        return text, ()
    return text + SIGNS[metric.quality], (
        f"{column} is {metric.quality}: {visible(metric.reason or metric.source or 'no reason given')}",
    )


def _short(column: str, metric: Metric) -> str:
    if column == "held-out acc." and metric.value is not None:
        return f"{number(100 * metric.value)} %"
    return amount(metric).removesuffix(f" {metric.unit}") if column == "final loss" else amount(metric)


def _agreement(records: Sequence[RunRecord]) -> tuple[str, tuple[str, ...]]:
    found = [record.agreement for record in records if record.status == "complete" and record.agreement is not None]
    if not found:
        return DASH, ("agreement: it was not checked",)
    worst = min(found, key=lambda one: (one.passed is not False, one.passed is True))
    if worst.passed is None:
        return "not checked", (f"agreement was not checked: {visible(worst.reason or 'no reason given')}",)
    kept = "✓" if worst.declared in ("exactly", "closely") else "≠"  # what claims no equality has none to keep
    text = " ".join(filter(None, (kept if worst.passed else "✗", worst.declared, _differences(found))))
    if worst.passed:
        return text, ()
    return text, (f"agreement failed: {visible(worst.reason or 'it trains differently from one process')}",)


def _differences(found: Sequence[Agreement]) -> str:
    values = [x for one in found for x in (one.loss_difference, one.parameter_difference) if x is not None]
    return small(max(values)) if values else ""


def _speed(cell: Cell, group: Sequence[Cell]) -> str:
    reference, time = reference_of(group), step_time(cell)
    if reference is None or not cell.rankable or not time.value:
        return ""
    base = step_time(reference)
    ratio = number((base.value or 0.0) / time.value)
    if cell is reference:
        return "1"
    return f"≈ {ratio}" if overlap(base, time) else ratio


def _why_unranked(cell: Cell, records: Sequence[RunRecord]) -> tuple[str, ...]:
    if cell.rankable:
        return ()
    reasons = [f"the loss is {visible(one.numerics)}" for one in records if one.numerics != "finite"]
    reasons += ["not every launch is complete" for one in records if one.status != "complete"]
    reasons += [
        "it does not train as one process does" for one in records if one.agreement and one.agreement.passed is False
    ]
    reasons += [
        f"it trains {one.agreement.declared}, not step for step as one process: compare losses, not speed alone"
        for one in records
        if one.agreement and one.agreement.passed and one.agreement.declared not in ("exactly", "closely")
    ]
    reasons += ["agreement was not checked" for one in records if one.agreement is None or one.agreement.passed is None]
    reasons += ["its time cannot be believed" for _ in records if step_time(cell).quality in ("suspect", "unavailable")]
    because = several(dict.fromkeys(reasons)) or "one of its launches cannot be ranked"
    return (f"not ranked: {because}",)
