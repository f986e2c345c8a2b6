"""What a rank issued: as parbench's log lists it, or as the calls of torch in a foreign trace over gloo show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from parbench.tracing.arguments import arguments, dtype_name, element_bytes, shapes, whole
from parbench.tracing.chromefile import Event
from parbench.tracing.header import Group, Header, Own
from parbench.tracing.ideal import sent_bytes
from parbench.tracing.names import op_of
from parbench.tracing.spans import Collective, Span


def inside(event: Span, listed: Sequence[Collective]) -> bool:
    """Whether an event of the backend may belong to what was listed: parbench lists what its steps issue only."""
    first = min((one.issued_ns for one in listed if one.issued_ns is not None), default=None)
    return first is None or event.start_ns >= first


def logged(own: Own, whose: Header) -> list[Collective]:
    """Return the collectives that parbench's log lists, on the clock of the header."""
    found = []
    for row in own.collectives:
        group = own.axes.get(row.group or "", Group())
        found.append(
            Collective(
                op=row.op,
                number=row.number,
                step=row.step,
                group=row.group,
                members=group.members,
                axis=group.axis,
                peer=row.peer,
                dtype=row.dtype,
                logical_bytes=row.logical_bytes,
                wire_bytes=row.wire_bytes,
                issued_ns=None if row.issued_ns is None else row.issued_ns + whose.base_ns,
            )
        )
    return found


def as_annotated(one: Collective, own: Mapping[int, Span]) -> Collective:
    """Give a collective of parbench's own sockets its times: it begins where its annotation does."""
    span = own.get(one.issued_ns) if one.issued_ns is not None else None
    if span is None or one.end_ns is not None:
        return one
    return msgspec.structs.replace(one, start_ns=span.start_ns, end_ns=span.end_ns, shown_as=span.name)


def from_calls(issued: Sequence[Event], whose: Header, elements: list[int | None]) -> list[Collective]:
    """Return what a foreign trace over gloo says of its collectives: the outermost calls, with shapes if it has any.

    The elements of each whole buffer are added to `elements`: what their type is, gloo's own event may have to say.
    """
    found: list[Collective] = []
    until: dict[int | str, float] = {}
    group = whose.only_group or Group()
    for event in sorted(issued, key=lambda one: (one.ts, -one.dur)):
        op = op_of(event.name)
        if op is None or event.ts < until.get(event.tid, 0.0):
            continue
        until[event.tid] = event.ts + event.dur
        args = arguments(event.args)
        dims = args.dims if isinstance(args.dims, list) else []
        types = args.types if isinstance(args.types, list) else []
        # Inputs and outputs come first; of a gather or scatter the larger one is the whole buffer.
        elements.append(max((sum(shapes(one)) for one in dims[:2] if shapes(one)), default=None))
        found.append(
            Collective(
                op=op,
                number=len(found),
                group="0" if whose.only_group else None,
                members=group.members,
                axis=group.axis,
                peer=_peer(op, args.concrete),
                dtype=dtype_name(next((one for one in types if element_bytes(one) is not None), None)),
                issued_ns=whose.ns(event.ts),
            )
        )
    return found


def sized(one: Collective, elements: int | None, whose: Header) -> Collective:
    """Give a collective its bytes, where elements and type of its buffer are known."""
    each = element_bytes(one.dtype)
    if elements is None or each is None:
        return one
    logical = sent_bytes(one.op, elements * each, len(one.members) or whose.world_size)
    return msgspec.structs.replace(one, logical_bytes=None if logical is None else float(logical))


def _peer(op: str, concrete: object) -> int | None:
    """Return the other rank of a message: the first number among a call's arguments."""
    if op not in ("send", "recv") or not isinstance(concrete, list):
        return None
    numbers = [whole(one) for one in concrete]
    return next((one for one in numbers if one is not None), None)
