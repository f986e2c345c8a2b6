"""A field of a RunSpec is one setting that users give; this checks its value and says in a sentence what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec
from msgspec import inspect as types

from parbench.errors import UsageError
from parbench.grammar import Call, Value, parse_value, unparse
from parbench.spec import RunSpec

# Filled in when a spec is resolved; nobody writes it.
DERIVED = "data_hash"


@cache
def names() -> tuple[str, ...]:
    """Return the fields that users give, in the order of RunSpec."""
    return tuple(one.name for one in msgspec.structs.fields(RunSpec) if one.name != DERIVED)


def is_text(name: str) -> bool:
    """Whether a field takes any string, which is then not parsed."""
    kind = _types()[name]
    choices = kind.types if isinstance(kind, types.UnionType) else (kind,)
    return any(isinstance(one, types.StrType) for one in choices)


def is_list(name: str) -> bool:
    """Whether a field takes a list as one value."""
    return isinstance(_types()[name], types.VarTupleType)


def checked(name: str, value: object, label: str) -> object:
    """Return the value of field `name` if it is allowed.

    Args:
        name: a field of RunSpec.
        value: what the user gave.
        label: where the user gave it, such as "--steps" or "run.steps".

    Raises:
        UsageError: it is not allowed; the sentence says what is.
    """
    try:
        found: object = msgspec.convert(value, _annotations()[name])
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a lone surrogate is no text that could be stored
        raise UsageError(f"{label} must be {allowed(name)}, given {shown(value)}; {_advice(name)}") from error
    if isinstance(found, str) and not (found.strip() and len(found) <= 4096 and _encodable(found)):
        raise UsageError(f"{label} must be {allowed(name)}, given {shown(value)}; {_advice(name)}")
    return found


def validated(spec: RunSpec) -> RunSpec:
    """Return `spec` with every field checked: a RunSpec made in Python is not checked when it is made.

    Raises:
        UsageError: a field holds what it must not.
    """
    found = {name: checked(name, getattr(spec, name), name) for name in names()}
    return msgspec.structs.replace(spec, **found)


def made(values: Mapping[str, object]) -> RunSpec:
    """Return the spec with these values, which are already checked."""
    return msgspec.convert(dict(values), RunSpec)


def from_text(name: str, text: str, label: str) -> object:
    """Return the value of field `name` that `text` from the command line means.

    Raises:
        UsageError: it is not allowed.
    """
    if is_text(name):
        return checked(name, text, label)
    try:
        return checked(name, parse_value(text), label)
    except UsageError:
        # Whatever is wrong with it, the user wants to see the text that was typed and what would be right.
        raise UsageError(f"{label} must be {allowed(name)}, given {shown(text)}; {_advice(name)}") from None


def plain(value: Value) -> object:
    """Return a parsed value as a suite holds it: a nested call is the text of a strategy or workload."""
    return unparse(value) if isinstance(value, Call) else value


def allowed(name: str) -> str:
    """Return in words what field `name` may hold."""
    return _words(_types()[name])


def shown(value: object) -> str:
    """Return a value as a message shows it: at most 80 characters, whatever it is."""
    try:
        text = repr(value) if isinstance(value, str | list | tuple | dict) else str(value)
    except (RecursionError, ValueError):  # tables without end, integers of thousands of digits
        return f"a value too large to show ({type(value).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."


def _words(kind: types.Type) -> str:
    match kind:
        case types.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case types.FloatType(ge=low, le=high) if low is not None and high is not None:
            return f"a number from {low:g} to {high:g}"
        case types.FloatType(gt=low, le=high):
            return f"a number above {low:g} and up to {high:g}" if low is not None and high is not None else "a number"
        case types.LiteralType(values=values):
            return f"one of {', '.join(map(str, values))}"
        case types.BoolType():
            return "true or false"
        case types.VarTupleType():
            return 'a list of names, such as ["contention"]'
        case types.UnionType(types=choices):
            return _words(choices[0])
        case _:
            return "a string of 1 to 4096 characters"


def _advice(name: str) -> str:
    default = next(one.default for one in msgspec.structs.fields(RunSpec) if one.name == name)
    if name == "network":
        return "see parbench list networks"
    if name in ("rank_speed", "straggler"):
        return "leave it out to slow nobody"
    if default is None:
        return "leave it out for an automatic choice"
    if default is msgspec.NODEFAULT:
        return f"see parbench list {'workloads' if name == 'workload' else 'strategies'}"
    return f"leave it out for {str(default).lower() if isinstance(default, bool) else default}"


def _encodable(text: str) -> bool:
    # A lone surrogate (bytes of the command line that are not UTF-8) could not be stored in a record.
    return not any("\ud800" <= char <= "\udfff" for char in text)


@cache
def _types() -> Mapping[str, types.Type]:
    info = types.type_info(RunSpec)
    if not isinstance(info, types.StructType):
        raise TypeError("RunSpec is no longer a msgspec Struct")
    return {one.name: one.type for one in info.fields}


@cache
def _annotations() -> Mapping[str, object]:
    return {one.name: one.type for one in msgspec.structs.fields(RunSpec)}
