"""A Plan is a suite as written: axes that multiply, values that hold for all, and cells that are left out.

name = "scaling"
[workload]                           # which model and data
name = "digits"
[matrix]                             # lists multiply
strategy = ["single", "ddp"]
world_size = [2, 4]
[[exclude]]                          # cells left out
strategy = "ddp"
world_size = 4
[run]                                # the same for every cell
steps = 50
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from parbench import fields
from parbench.errors import UsageError, unknown_name
from parbench.grammar import Call, parse, parse_value, unparse
from parbench.spec import RunSpec

MAX_CELLS = 10_000

# What each table of a suite may set.
_WORKLOAD = ("name", "size", "arguments")
_NOT_AXES = ("repeats", "timeout_s", "parity_steps", "probes", "peak_tflops", "memory")
_SECTIONS = ("name", "workload", "matrix", "exclude", "run")

# Changes of a plan from the command line: field -> its new values; several make it an axis.
Changes = Mapping[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A suite before it is multiplied out; every value is checked.

    Attributes:
        name: of the suite.
        values: field -> its values, in the order they multiply; a field with one value holds for all cells.
        excludes: conditions; a cell that meets all fields of one is left out.
    """

    name: str
    values: Changes
    excludes: tuple[Changes, ...] = ()


def read(document: Mapping[str, object], *, name: str, source: str) -> Plan:
    """Check a suite document.

    Args:
        document: tables and values as TOML or JSON holds them.
        name: the suite's name where the document gives none.
        source: where the document comes from, for messages.

    Raises:
        UsageError: a key is unknown, or a value is not allowed.
    """
    _refuse_unknown(document, _SECTIONS, source, "key")
    workload = _table(document, "workload", source)
    matrix = _table(document, "matrix", source)
    run = _table(document, "run", source)
    _refuse_unknown(workload, _WORKLOAD, f"{source} [workload]", "key")
    _refuse_unknown(matrix, _axes(), f"{source} [matrix]", "key")
    _refuse_unknown(run, _run_keys(), f"{source} [run]", "key")
    parts: list[dict[str, tuple[object, ...]]] = [
        _workload_values(workload, source),
        {key: _several(key, value, f"{source} matrix.{key}") for key, value in matrix.items()},
        {key: (fields.checked(key, value, f"{source} run.{key}"),) for key, value in run.items()},
    ]
    values: dict[str, tuple[object, ...]] = {}
    for part in parts:
        twice = sorted(values.keys() & part.keys())
        if twice:
            raise UsageError(f"{source} gives {twice[0]!r} in two tables; keep one")
        values |= part
    given = document.get("name", name)
    return Plan(name=checked_name(given, f"{source} name"), values=values, excludes=_excludes(document, source))


def changed(plan: Plan, changes: Changes) -> Plan:
    """Return `plan` with the given fields replaced."""
    return replace(plan, values={**plan.values, **changes})


def cells(plan: Plan) -> tuple[list[RunSpec], list[str]]:
    """Multiply the plan out.

    Returns:
        The cells in order, strategies of one setting beside each other, and what a reader should know.

    Raises:
        UsageError: there is no workload or strategy, no cell is left, or there are too many.
    """
    for needed, example in (("workload", '[workload] name = "digits"'), ("strategy", '[matrix] strategy = ["ddp"]')):
        if needed not in plan.values:
            raise UsageError(f"the suite {plan.name!r} names no {needed}; add {example}")
    count = math.prod(len(values) for values in plan.values.values())
    if count > MAX_CELLS:
        raise UsageError(f"the matrix of {plan.name!r} has {count} cells, allowed are {MAX_CELLS}; shorten its lists")
    # The strategy varies fastest: what is compared stands together.
    keys = [key for key in plan.values if key != "strategy"] + ["strategy"]
    everything = [
        dict(zip(keys, combination, strict=True))
        for combination in itertools.product(*(plan.values[key] for key in keys))
    ]
    kept = [cell for cell in everything if not any(_meets(cell, one) for one in plan.excludes)]
    if not kept:
        raise UsageError(f"every cell of {plan.name!r} is excluded; remove an [[exclude]] table")
    notes = [
        f"[[exclude]] number {k} matches no cell"
        for k, one in enumerate(plan.excludes, start=1)
        if not any(_meets(cell, one) for cell in everything)
    ]
    return [fields.made(cell) for cell in kept], notes


def assignment(text: str) -> tuple[str, tuple[object, ...]]:
    """Parse `--set KEY=VALUE`: `steps=5`, `run.steps=5`, `workload.size=cnn`, `matrix.world_size=[1,2]`.

    Raises:
        UsageError: there is no `=`, the key is unknown or the value not allowed.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set takes KEY=VALUE such as run.steps=5, given {text[:80]!r}; add the '='")
    field = _field_of(key.strip())
    label = f"--set {key.strip()}"
    value = value.strip()
    if not value.startswith("[") or fields.is_list(field):
        return field, (fields.from_text(field, value, label),)
    listed = parse_value(value)
    if not isinstance(listed, tuple):
        raise UsageError(f"{label} takes one value or one list [a, b], given {value[:80]!r}; mend it")
    return field, _several(field, [fields.plain(item) for item in listed], label)


def checked_name(name: object, label: str) -> str:
    """Return a suite's name if it can be one.

    Raises:
        UsageError: it is not a string of 1 to 200 printable characters.
    """
    if not isinstance(name, str) or not 0 < len(name.strip()) <= len(name) <= 200 or not name.isprintable():
        raise UsageError(
            f"{label} must be 1 to 200 printable characters, given {fields.shown(name)}; choose a shorter one"
        )
    return name


def _axes() -> tuple[str, ...]:
    return tuple(name for name in fields.names() if name not in _NOT_AXES)


def _run_keys() -> tuple[str, ...]:
    return tuple(name for name in fields.names() if name not in ("workload", "size"))


def _field_of(key: str) -> str:
    table, dot, name = key.rpartition(".")
    if not dot:
        if key in fields.names():
            return key
        raise unknown_name("setting", key, fields.names(), "given by --set")
    tables: Mapping[str, Sequence[str]] = {"workload": _WORKLOAD[:2], "matrix": _axes(), "run": _run_keys()}
    if table not in tables or name not in tables[table]:
        every = [f"{one}.{field}" for one, known in tables.items() for field in known]
        raise unknown_name("setting", key, every, "given by --set")
    return "workload" if key == "workload.name" else name


def _workload_values(table: Mapping[str, object], source: str) -> dict[str, tuple[object, ...]]:
    values: dict[str, tuple[object, ...]] = {}
    if "size" in table:
        values["size"] = (fields.checked("size", table["size"], f"{source} workload.size"),)
    arguments = table.get("arguments", {})
    if arguments and "name" not in table:
        raise UsageError(f"{source} workload.arguments need workload.name; add it")
    if "name" not in table:
        return values
    written = str(fields.checked("workload", table["name"], f"{source} workload.name"))
    if not isinstance(arguments, Mapping):
        raise UsageError(
            f"{source} workload.arguments must be a table {{key = value}}, given {fields.shown(arguments)}; mend it"
        )
    if arguments:
        call = parse(written)
        plain = {_argument_name(key, source): _argument(key, value, source) for key, value in arguments.items()}
        written = unparse(Call(call.name, call.args, {**call.kwargs, **plain}))
        fields.checked("workload", written, f"{source} workload.name with its arguments")
    return {"workload": (written,), **values}


def _argument_name(key: object, source: str) -> str:
    # What is no name would become part of the call's text and mean something else there.
    if isinstance(key, str) and key.isascii() and key.isidentifier():
        return key
    raise UsageError(f"{source} workload.arguments has a key {fields.shown(key)}; arguments are named like width")


def _argument(key: object, value: object, source: str) -> int | float | bool | str:
    if isinstance(value, float | str) or (isinstance(value, int) and value.bit_length() <= 64):
        return value
    raise UsageError(
        f"{source} workload.arguments.{key} must be a number of at most 64 bits, a string, true or false, "
        f"given {fields.shown(value)}; change it"
    )


def _several(key: str, value: object, label: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        return (fields.checked(key, value, label),)
    if not value:
        raise UsageError(f"{label} is an empty list, so there would be no cell; give at least one value")
    return tuple(dict.fromkeys(fields.checked(key, item, label) for item in value))


def _excludes(document: Mapping[str, object], source: str) -> tuple[Changes, ...]:
    listed = document.get("exclude", [])
    tables = listed if isinstance(listed, list) else [listed]
    return tuple(_exclude(table, f"{source} [[exclude]] number {k}") for k, table in enumerate(tables, start=1))


def _exclude(table: object, label: str) -> Changes:
    if not isinstance(table, Mapping) or not table:
        raise UsageError(f"{label} must be a table of at least one setting, such as world_size = 4; mend it")
    _refuse_unknown(table, _axes(), label, "key")
    return {str(key): _several(str(key), value, f"{label} {key}") for key, value in table.items()}


def _meets(cell: Mapping[str, object], condition: Changes) -> bool:
    return all(
        any(_same(key, cell.get(key, _default(key)), value) for value in values) for key, values in condition.items()
    )


def _same(key: str, left: object, right: object) -> bool:
    if left == right:
        return True
    if key not in ("strategy", "workload"):
        return False
    try:
        return unparse(parse(str(left))) == unparse(parse(str(right)))
    except UsageError:
        return False


def _default(key: str) -> object:
    blank: object = getattr(RunSpec(workload="", strategy=""), key)
    return blank


def _table(document: Mapping[str, object], key: str, source: str) -> Mapping[str, object]:
    table = document.get(key, {})
    if isinstance(table, Mapping):
        return table
    raise UsageError(f"{source} {key} must be a table [{key}], given {fields.shown(table)}; mend it")


def _refuse_unknown(table: Iterable[object], known: Sequence[str], where: str, kind: str) -> None:
    for key in table:
        if key not in known:
            raise unknown_name(kind, str(key), known, f"in {where}")
