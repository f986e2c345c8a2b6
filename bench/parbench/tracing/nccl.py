"""Collectives over NCCL: `record_param_comms` on the host says what was issued, kernels on a stream when it ran.

Which kernel belongs to which call is said by "External id"; newer versions repeat the arguments at the kernel itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from parbench.tracing.arguments import Arguments, dtype_name, element_bytes, ranks, text, whole
from parbench.tracing.ideal import sent_bytes
from parbench.tracing.names import nccl_op, op_of
from parbench.tracing.spans import Collective

RECORD = "record_param_comms"
# Records that are about communication and move nothing.
_SILENT = frozenset({"init", "wait", "coalesced", "start_coalescing", "end_coalescing"})


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A `record_param_comms` on the host."""

    time_ns: int
    args: Arguments


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """What ran on a device for communication: a kernel of NCCL, or a copy between devices."""

    name: str
    start_ns: int
    end_ns: int
    args: Arguments


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives, and how much of what might have been one is."""

    collectives: list[Collective]
    candidates: int
    recognised: int


def collectives(calls: Sequence[Call], kernels: Sequence[Kernel]) -> Found:
    """Return the collectives of one rank in the order of issue, those that only a kernel shows among them."""
    said = [call for call in calls if text(call.args.collective) not in _SILENT]
    by_id: dict[int, Call] = {}
    for call in said:
        number = whole(call.args.external)
        if number is not None:
            by_id.setdefault(number, call)
    found: list[Collective] = []
    ran: dict[int, int] = {}
    recognised = 0
    for kernel in kernels:
        number = whole(kernel.args.external)
        issuer = by_id.get(number) if number is not None else None
        one = _collective(kernel, issuer)
        if one is None:
            continue
        recognised += 1
        if issuer is not None and id(issuer) in ran:  # one call, carried out in pieces
            k = ran[id(issuer)]
            found[k] = _spanning(found[k], one)
            continue
        if issuer is not None:
            ran[id(issuer)] = len(found)
        found.append(one)
    for call in said:
        if id(call) in ran:
            continue
        op = op_of(text(call.args.collective) or "")
        if op is not None:
            recognised += 1
            found.append(_described(op, call.args, call.time_ns))
    ordered = sorted(found, key=lambda one: one.issued_ns or one.start_ns or 0)
    return Found(
        collectives=[msgspec.structs.replace(one, number=k) for k, one in enumerate(ordered)],
        candidates=len(kernels) + sum(1 for call in said if id(call) not in ran),
        recognised=recognised,
    )


def _spanning(one: Collective, other: Collective) -> Collective:
    starts = [piece.start_ns for piece in (one, other) if piece.start_ns is not None]
    ends = [piece.end_ns for piece in (one, other) if piece.end_ns is not None]
    return msgspec.structs.replace(one, start_ns=min(starts, default=None), end_ns=max(ends, default=None))


def _collective(kernel: Kernel, call: Call | None) -> Collective | None:
    """Return what a kernel carried out; None where nothing says what that is."""
    issued = None if call is None else call.time_ns
    for args in (kernel.args, *([call.args] if call else [])):
        op = op_of(text(args.collective) or "")
        if op is not None:
            one = _described(op, args, issued)
            break
    else:
        copied = whole(kernel.args.bytes)
        op = nccl_op(kernel.name)
        if op is None and copied is None:
            return None
        one = Collective(
            op=op or "copy", number=0, logical_bytes=None if copied is None else float(copied), issued_ns=issued
        )
    return msgspec.structs.replace(one, start_ns=kernel.start_ns, end_ns=kernel.end_ns, shown_as=short(kernel.name))


def _described(op: str, args: Arguments, issued_ns: int | None) -> Collective:
    members = ranks(args.ranks)
    size = _buffer(op, args)
    logical = sent_bytes(op, size, len(members)) if size is not None and members else None
    return Collective(
        op=op,
        number=0,
        group=text(args.group) or (None if whole(args.group) is None else str(args.group)),
        members=members,
        axis=axis(text(args.description)),
        peer=whole(args.target if op == "send" else args.source) if op in ("send", "recv") else None,
        dtype=dtype_name(args.dtype),
        logical_bytes=None if logical is None else float(logical),
        issued_ns=issued_ns,
    )


def _buffer(op: str, args: Arguments) -> int | None:
    """Return the bytes of the whole buffer: of the side that has n parts, where one has."""
    counts: Mapping[str, object] = {"all_gather": args.received_elements, "recv": args.received_elements}
    elements, each = whole(counts.get(op, args.sent_elements)), element_bytes(args.dtype)
    return None if elements is None or each is None else elements * each


def axis(description: str | None) -> str | None:
    """Return the axis of a group, from torch's description of it: "mesh_tp" is a device mesh's."""
    if description is None:
        return None
    if description == "default_pg":
        return "world"
    return description.removeprefix("mesh_") if description.startswith("mesh_") else None


def short(kernel: str) -> str:
    """Return the name of a kernel without its arguments."""
    return kernel.removeprefix("void ").partition("(")[0]
