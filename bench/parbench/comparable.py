"""Comparable says what differs between two runs besides what is compared, and which of that forbids comparing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from parbench.metrics import Cell
from parbench.record import Environment, RunRecord
from parbench.spec import RunSpec

# Facts of the environment that differ from run to run and say nothing about it.
_PASSING = frozenset({"load_1min"})
# Settings that change what is computed or where: comparing across them must be meant.
_FORBIDDING = (
    "global_batch_size",
    "data_hash",
    "precision",
    "recompute",
    "compile",
    "accumulate",
    "data_workers",
    "data_delay_s",
    "seed",
    "threads",
    "network",
    "rank_speed",
    "straggler",
)
# What the others are held against unless something else is asked for.
REFERENCE = "single"
# What `--allow` takes.
ALLOWED = ("machine", "device", "backend", "compute", *_FORBIDDING)
# Settings that decide how precisely something is measured, not what.
_HARMLESS = ("steps", "steps_per_round", "warmup", "parity_steps", "probes", "repeats", "timeout_s")


class Differs(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not the same on both sides.

    Attributes:
        what: "machine", a setting of the spec, a fact or a variable of the environment.
        old: its value there, in words.
        new: its value here.
        forbids: the word for `--allow` without which the two are not compared; None where they are.
    """

    what: str
    old: str
    new: str
    forbids: str | None = None


def differs(old: Sequence[RunRecord], new: Sequence[RunRecord]) -> list[Differs]:
    """Return what differs between the runs of one cell on either side, what forbids comparing them first."""
    a, b = old[-1], new[-1]
    pairs = [("machine", a.environment.fingerprint, b.environment.fingerprint, "machine")]
    pairs += [(name, _chosen(a, name), _chosen(b, name), name) for name in ("device", "backend")]
    pairs += [("compute", _compute(a), _compute(b), "compute")]
    pairs += [(name, _said(a, name), _said(b, name), name) for name in _FORBIDDING]
    found = [Differs(what=what, old=x, new=y, forbids=word) for what, x, y, word in pairs if x != y]
    for name in _HARMLESS:
        if (x := _said(a, name)) != (y := _said(b, name)):
            found.append(Differs(what=name, old=x, new=y))
    return found + environments(a.environment, b.environment)


def group_of(cell: Cell) -> tuple[object, ...]:
    """Return what cells must share to be compared: everything but the strategy and its ranks, and one machine."""
    return (*setting_of(cell.spec), cell.spec.global_batch_size, cell.fingerprint, cell.software)


def setting_of(spec: RunSpec) -> tuple[object, ...]:
    """Return what is computed and where, but for the strategy, its ranks and the batch, which scaling changes."""
    return (
        spec.workload,
        spec.size,
        spec.precision,
        spec.recompute,
        spec.compile,
        spec.accumulate,
        spec.data_workers,
        spec.data_delay_s,
        spec.seed,
        spec.threads,
        spec.device,
        spec.backend,
        spec.network,
        spec.rank_speed,
        spec.straggler,
    )


def grouped(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return the cells by group, both in the order in which they first appear."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(group_of(cell), []).append(cell)
    return list(groups.values())


def by_cell(records: Sequence[RunRecord]) -> list[list[RunRecord]]:
    """Return fresh launches of the same cell, machine and software together, by repeat."""
    groups: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        key = (record.spec_id, record.environment.fingerprint, record.environment.software)
        groups.setdefault(key, []).append(record)
    return [sorted(group, key=lambda r: (r.repeat, r.id)) for group in groups.values()]


def alike(spec: RunSpec) -> tuple[object, ...]:
    """Return what two paths must share for a cell of one to be held against one of the other."""
    return (spec.workload, spec.size, spec.strategy, spec.world_size)


def environments(one: Environment, two: Environment) -> list[Differs]:
    """Return what facts and variables differ."""
    names = _both(one.facts, two.facts)
    facts = [(name, one.facts.get(name), two.facts.get(name)) for name in names if name not in _PASSING]
    variables = [(n, one.variables.get(n), two.variables.get(n)) for n in _both(one.variables, two.variables)]
    return [Differs(what=name, old=_word(x), new=_word(y)) for name, x, y in (*facts, *variables) if x != y]


def _both(one: Iterable[str], two: Iterable[str]) -> list[str]:
    return list(dict.fromkeys((*one, *two)))


def _chosen(record: RunRecord, name: str) -> str:
    return record.chosen[name].value if name in record.chosen else _said(record, name)


def _compute(record: RunRecord) -> str:
    """Return how its time came about: real work, paced or simulated."""
    time = record.metrics.get("step_time_s")
    return time.quality if time is not None and time.quality in ("paced", "simulated") else "real"


def _said(record: RunRecord, name: str) -> str:
    return _word(getattr(record.spec, name))


def _word(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
