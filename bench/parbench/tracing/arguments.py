"""Arguments of an event, as torch's profiler gives them to operators, kernels and collectives."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

# As torch calls its types in shapes, in NCCL's arguments and in Python -> bytes and torch's own name.
_DTYPES: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        **dict.fromkeys(("float", "float32"), (4, "float32")),
        **dict.fromkeys(("double", "float64"), (8, "float64")),
        **dict.fromkeys(("half", "float16", "c10::half"), (2, "float16")),
        **dict.fromkeys(("bfloat16", "c10::bfloat16"), (2, "bfloat16")),
        **dict.fromkeys(("int", "int32"), (4, "int32")),
        **dict.fromkeys(("long", "int64", "long int"), (8, "int64")),
        **dict.fromkeys(("byte", "uint8", "unsigned char"), (1, "uint8")),
        **dict.fromkeys(("char", "int8", "signed char"), (1, "int8")),
        **dict.fromkeys(("short", "int16", "short int"), (2, "int16")),
        "bool": (1, "bool"),
    }
)
_RANKS = re.compile(r"\[?\s*(\d+(?:\s*,\s*\d+)*)\s*\]?")


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an event; None where it is not said. Anybody may have written anything there."""

    sequence: object = msgspec.field(default=None, name="Sequence number")
    forward_thread: object = msgspec.field(default=None, name="Fwd thread id")
    external: object = msgspec.field(default=None, name="External id")
    correlation: object = None
    stream: object = None
    bytes: object = None
    dims: object = msgspec.field(default=None, name="Input Dims")
    types: object = msgspec.field(default=None, name="Input type")
    concrete: object = msgspec.field(default=None, name="Concrete Inputs")
    collective: object = msgspec.field(default=None, name="Collective name")
    sent_elements: object = msgspec.field(default=None, name="In msg nelems")
    received_elements: object = msgspec.field(default=None, name="Out msg nelems")
    dtype: object = None
    group: object = msgspec.field(default=None, name="Process Group Name")
    description: object = msgspec.field(default=None, name="Process Group Description")
    ranks: object = msgspec.field(default=None, name="Process Group Ranks")
    target: object = msgspec.field(default=None, name="Dst Rank")
    source: object = msgspec.field(default=None, name="Src Rank")


def arguments(raw: msgspec.Raw) -> Arguments:
    """Return the arguments of an event; none where they are not an object."""
    try:
        return msgspec.json.decode(raw, type=Arguments)
    except (msgspec.DecodeError, RecursionError):
        return Arguments()


def whole(value: object) -> int | None:
    """Return a whole number, which may be written as text, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else None


def text(value: object) -> str | None:
    """Return a text, or None."""
    return value if isinstance(value, str) and value else None


def element_bytes(dtype: object) -> int | None:
    """Return the bytes of an element of a type, by any of its names; None where that is unknown."""
    found = _DTYPES.get(dtype.lower()) if isinstance(dtype, str) else None
    return found[0] if found else None


def dtype_name(dtype: object) -> str | None:
    """Return torch's name of a type."""
    found = _DTYPES.get(dtype.lower()) if isinstance(dtype, str) else None
    return found[1] if found else text(dtype)


def ranks(value: object) -> tuple[int, ...]:
    """Return the ranks of a group, given as a list or as text; none where the profiler has shortened the list."""
    if isinstance(value, list):
        found = [whole(one) for one in value]
        return tuple(one for one in found if one is not None) if None not in found else ()
    match = _RANKS.fullmatch(value.strip()) if isinstance(value, str) else None
    return tuple(int(one) for one in match[1].split(",")) if match else ()


def shapes(dims: object, deep: int = 3) -> list[int]:
    """Return the elements of each tensor in an argument: a tensor, a list of them, or (`deep`) lists of those."""
    if not isinstance(dims, list) or not dims or not deep:
        return []
    if all(isinstance(one, int) for one in dims):
        return [math.prod(one for one in dims if isinstance(one, int))]
    return [elements for one in dims for elements in shapes(one, deep - 1)]
