"""A Suite is a named list of RunSpecs, wherever it came from: a TOML file, flags, a stored record or the default."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from parbench import fields, plan
from parbench.errors import UsageError
from parbench.plan import Changes, Plan
from parbench.record import RunRecord
from parbench.spec import RunSpec

MAX_FILE_BYTES = 1 << 20
# tomllib takes the square of a key's parts; this many steps are a fifth of a second.
_MAX_KEY_STEPS = 10_000_000

NO_CHANGES: Changes = MappingProxyType({})
DEFAULT_STRATEGIES = ("single", "ddp", "fsdp", "tensor", "pipeline")
# Real data that needs no download; six families of strategies in under a minute on two cores: a transformer spread by
# five of them, and a recurrent network in mixed precision, for which it is made.
_COMPRESSOR, _MIXED = "topk", "amp_rnn(weights=bf16)"
_DEFAULT: Mapping[str, tuple[object, ...]] = {
    "workload": ("text", "digit-rows"),
    "size": ("small",),
    "world_size": (2,),
    "strategy": (*DEFAULT_STRATEGIES, _COMPRESSOR, _MIXED),
    "steps": (30,),
}
_LEFT_OUT: tuple[Changes, ...] = (
    {"workload": ("text",), "strategy": (_MIXED,)},
    {"workload": ("digit-rows",), "strategy": ("fsdp", "tensor", "pipeline", _COMPRESSOR)},
)


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """What one `parbench run` does.

    Attributes:
        name: names the results folder.
        specs: the cells, in order.
        notes: sentences a reader of the results should know.
    """

    name: str
    specs: tuple[RunSpec, ...]
    notes: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, object]:
        """What every record keeps of its suite: the name and all cells, values that are defaults left out."""
        return {"name": self.name, "cells": [msgspec.to_builtins(spec) for spec in self.specs]}


def load(path: Path, changes: Changes = NO_CHANGES, name: str | None = None) -> Suite:
    """Read a suite file.

    Args:
        path: a TOML file.
        changes: fields to replace, with their values.
        name: replaces the suite's name.

    Raises:
        UsageError: the file is unreadable, or something in it is unknown or not allowed.
    """
    document = _read_toml(path)
    return _built(plan.read(document, name=_name_from(path.stem), source=path.name), changes, name)


def default(changes: Changes = NO_CHANGES, name: str | None = None) -> Suite:
    """Return what `parbench run` does when it is told nothing."""
    # Who chooses workloads or strategies gets all of them.
    left_out = () if {"workload", "strategy"} & changes.keys() else _LEFT_OUT
    return _built(Plan(name="default", values=_DEFAULT, excludes=left_out), changes, name)


def from_flags(workload: str, changes: Changes = NO_CHANGES, name: str | None = None) -> Suite:
    """Return the suite that compares strategies on one workload, the default strategies at two ranks unless changed.

    Raises:
        UsageError: something is not allowed.
    """
    written = fields.checked("workload", workload, "the workload")
    values: Changes = {"workload": (written,), "world_size": (2,), "strategy": DEFAULT_STRATEGIES}
    return _built(Plan(name=_name_from(workload.partition("(")[0]), values=values), changes, name)


def from_record(record: RunRecord, changes: Changes = NO_CHANGES, name: str | None = None) -> Suite:
    """Return the suite that `record` belongs to, to be repeated.

    Args:
        record: any record of the suite; each holds all of its cells.
        changes: fields to replace in every cell, with their values.
        name: replaces the suite's name.

    Raises:
        UsageError: something is not allowed.
    """
    # Other data than the record's is asked for: its hash is of no use. Else resolving tells whether data has changed.
    fixed = {"data_hash": None} if {"workload", "size"} & changes.keys() else {}
    specs = {
        msgspec.structs.replace(cell, **dict(zip(changes, values, strict=True)), **fixed): None
        for cell in _cells_of(record)
        for values in itertools.product(*changes.values())
    }
    chosen = _name_from(record.suite) if name is None else plan.checked_name(name, "--suite-name")
    return Suite(name=chosen, specs=tuple(map(fields.validated, specs)))


def of_specs(specs: tuple[RunSpec, ...], name: str = "python") -> Suite:
    """Return the suite of specs made in Python.

    Raises:
        UsageError: a spec holds what it must not.
    """
    return Suite(name=plan.checked_name(name, "the suite's name"), specs=tuple(map(fields.validated, specs)))


def _cells_of(record: RunRecord) -> list[RunSpec]:
    try:
        cells = msgspec.convert(record.resolved_suite.get("cells", []), list[RunSpec])
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the suite in record {record.id} cannot be repeated: {error}; start it from its file"
        ) from error
    return cells or [record.spec]


def _built(written: Plan, changes: Changes, name: str | None) -> Suite:
    specs, notes = plan.cells(plan.changed(written, changes))
    chosen = written.name if name is None else plan.checked_name(name, "--suite-name")
    return Suite(name=chosen, specs=tuple(specs), notes=tuple(notes))


def _name_from(text: str) -> str:
    printable = "".join(char for char in text if char.isprintable()).strip()
    return printable[:200] or "suite"


def _read_toml(path: Path) -> dict[str, object]:
    shown = str(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the suite {shown!r}: {error}; check the path") from error
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(
            f"the suite {shown!r} has more than {MAX_FILE_BYTES} bytes; a suite is a short text, shorten it"
        )
    dots = [line.count(b".") for line in raw.splitlines()]
    if max(dots, default=0) * len(dots) + sum(count * count for count in dots) > _MAX_KEY_STEPS:
        raise UsageError(f"the suite {shown!r} has lines with too many dots for keys of a suite; flatten it")
    try:
        return tomllib.loads(raw.decode())
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"the suite {shown!r} is not UTF-8 in line {line}; save it as UTF-8") from error
    except RecursionError as error:
        raise UsageError(f"the suite {shown!r} is nested too deeply; flatten it") from error
    except ValueError as error:
        raise UsageError(f"the suite {shown!r} is not valid TOML: {error}; mend it") from error
