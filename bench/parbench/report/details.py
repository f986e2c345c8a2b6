"""The details of one run: how it ended, every metric with its source, every choice with its reason, the machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parbench.record import RunRecord
from parbench.report.breakdown import breakdown_lines
from parbench.report.meters import meter_lines
from parbench.report.words import duration, size, small, visible, with_interval


def record_details(record: RunRecord) -> RenderableType:
    """Return everything a reader may ask about one run."""
    spec = record.spec
    place = f"{visible(spec.strategy, 60)} on {visible(spec.workload, 60)}/{visible(spec.size, 20)}"
    ranks = "1 rank" if spec.world_size == 1 else f"{spec.world_size} ranks"
    title = f"{visible(record.id, 60)}: {place}, {ranks}, launch {record.repeat}"
    return Group(
        Text(""),
        Text(title, style="bold"),
        *_ending(record),
        *_agreement(record),
        _metrics(record),
        *breakdown_lines(record),
        *_traffic(record),
        *_held(record),
        *meter_lines(record),
        *_precision(record),
        *_notes(record),
        *_warm_up(record),
        *(
            Text(f"{visible(name, 40)}: {visible(one.value)} ({visible(one.because)})")
            for name, one in sorted(record.chosen.items())
        ),
        *(
            Text(f"warning {visible(one.code, 40)}: {visible(one.message)} → {visible(one.advice or 'nothing to do')}")
            for one in record.warnings
        ),
        *_environment(record),
    )


def _ending(record: RunRecord) -> Iterator[Text]:
    reason = f": {visible(record.reason)}" if record.reason else ""
    yield Text(f"status: {record.status}{reason}", style="" if record.status == "complete" else "red")
    if record.numerics != "finite":
        yield Text(f"numerics: {visible(record.numerics)}", style="red")
    failure = record.failure
    if failure is None:
        return
    rank = "unknown rank" if failure.rank is None else f"rank {failure.rank}/{record.spec.world_size}"
    step = "before the first step" if failure.step is None else f"step {failure.step}"
    yield Text(f"failure: {rank} {step} {visible(failure.message)} ({visible(failure.kind, 40)})", style="red")
    if failure.detail:
        yield Text(f"  see {visible(failure.detail)} in the run's folder")
    yield from (Text(f"  followed: {visible(one)}") for one in failure.followed)


def _agreement(record: RunRecord) -> Iterator[Text]:
    found = record.agreement
    if found is None:
        yield Text("agreement: not checked")
        return
    verdict = {True: "holds", False: "fails", None: "not checked"}[found.passed]
    differences = [
        f"{what} differs by at most {small(value)}"
        for what, value in (("loss", found.loss_difference), ("a parameter", found.parameter_difference))
        if value is not None
    ]
    parts = [f"agreement: trains {found.declared} as one process does: {verdict}", *differences]
    parts += [f"over {found.steps} steps"] if found.steps else []
    parts += [visible(found.reason)] if found.reason else []
    yield Text(", ".join(parts), style="red" if found.passed is False else "")


def _metrics(record: RunRecord) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("metric", "value [95 % interval]", "n", "quality", "source or reason"):
        table.add_column(name, overflow="fold")
    for name, metric in record.metrics.items():
        why = metric.reason or metric.source
        table.add_row(
            *map(Text, (visible(name, 60), with_interval(metric), str(metric.n), metric.quality, visible(why)))
        )
    return table


def _traffic(record: RunRecord) -> Iterator[Text]:
    found = record.traffic
    if found is None:
        return
    yield Text(f"sent per step by rank {found.rank}: {_sizes(found.sent)} in {found.collectives:g} collectives")
    if found.closed_form is not None:
        yield Text(f"  closed form: {_sizes(found.closed_form)}")
    if found.wire is not None:
        yield Text(f"  on the wire of this backend: {_sizes(found.wire)}")
    if found.textbook is not None and found.textbook_bytes is not None:
        yield Text(f"  textbook: {visible(found.textbook)} = {size(found.textbook_bytes)}")


def _held(record: RunRecord) -> Iterator[Text]:
    found = record.held
    if found is None:
        return
    yield Text(f"held by rank {found.rank}: {_sizes(found.held)}")
    if found.closed_form is not None:
        yield Text(f"  closed form: {_sizes(found.closed_form)}")
    yield Text(f"  shared out over the ranks: {', '.join(map(visible, found.shards)) or 'nothing, every rank has all'}")


def _precision(record: RunRecord) -> Iterator[Text]:
    if record.precision:
        parts = (f"{visible(name, 40)} {visible(kind, 40)}" for name, kind in record.precision.items())
        yield Text(f"computed in: {', '.join(parts)}")


def _notes(record: RunRecord) -> Iterator[Text]:
    for rank, notes in enumerate(record.notes):
        said = ", ".join(f"{visible(name, 60)} {visible(value, 200)}" for name, value in notes.items())
        yield Text(f"rank {rank}: {said}")


def _sizes(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{visible(name, 40)} {size(value)}" for name, value in parts.items()) or "nothing"


def _warm_up(record: RunRecord) -> Iterator[Text]:
    found = record.warm_up
    if found is not None:
        took = f"{found.steps} steps in {duration(found.wall_s)}, the first took {duration(found.first_step_s)}"
        yield Text(f"warm-up: {took}; rule: {visible(found.rule)}")


def _environment(record: RunRecord) -> Iterator[Text]:
    found = record.environment
    facts = {**found.facts, **found.variables}
    yield Text(
        "environment: " + ", ".join(f"{visible(k, 60)}={visible(v, 200)}" for k, v in facts.items()), style="dim"
    )
    yield Text(f"machine {visible(found.fingerprint, 64)}, software {visible(found.software, 64)}", style="dim")
