"""A ByteCounter counts the collectives that pass while it is active, torch's own included, and their logical bytes.

Logical bytes are what the ideal algorithm of a collective sends per rank (the factors of bus bandwidth), whatever this
backend really moves. S is the whole buffer of one rank, n the size of the collective's group.

    all_reduce 2(n-1)/n S | all_gather, reduce_scatter, all_to_all (n-1)/n S | send S | broadcast S on the root
    gather S on all but the root | reduce S on all but the root | scatter (n-1)/n S on the root
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _resolve_process_group
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from parbench.wire import wire_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One collective as this rank issued it.

    Attributes:
        op: its name, such as "all_reduce".
        logical_bytes: what the ideal algorithm sends from this rank.
        wire_bytes: what this backend's algorithm sends from this rank; None where it is not known.
        group_size: ranks that take part.
        group: the group's name.
        dtype: of the buffer; None where there is none on this rank.
        peer: the other rank of a send or recv, counted in the group; None for others, and where any will do.
    """

    op: str
    logical_bytes: Fraction
    wire_bytes: Fraction | None
    group_size: int
    group: str
    dtype: torch.dtype | None
    peer: int | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one dispatcher operator is read: its name, which argument holds the whole buffer, and the factor."""

    op: str
    buffer: int
    factor: Callable[[int, bool], Fraction]


def _all_reduce(n: int, root: bool) -> Fraction:
    return Fraction(2 * (n - 1), n)


def _share(n: int, root: bool) -> Fraction:
    return Fraction(n - 1, n)


def _whole(n: int, root: bool) -> Fraction:
    return Fraction(1)


def _root_only(n: int, root: bool) -> Fraction:
    return Fraction(1 if root else 0)


def _all_but_root(n: int, root: bool) -> Fraction:
    return Fraction(0 if root else 1)


def _root_share(n: int, root: bool) -> Fraction:
    return Fraction(n - 1, n) if root else Fraction(0)


def _nothing(n: int, root: bool) -> Fraction:
    return Fraction(0)


def _chunk_to_each(n: int, root: bool) -> Fraction:
    return Fraction(n - 1)  # the argument is this rank's chunk, a 1/n of the whole


_RULES: Final[Mapping[str, _Rule]] = {
    "c10d::allreduce_": _Rule("all_reduce", 0, _all_reduce),
    "c10d::allreduce_coalesced_": _Rule("all_reduce", 0, _all_reduce),
    "c10d::broadcast_": _Rule("broadcast", 0, _root_only),
    "c10d::allgather_": _Rule("all_gather", 1, _chunk_to_each),
    "c10d::_allgather_base_": _Rule("all_gather", 1, _chunk_to_each),
    "c10d::allgather_coalesced_": _Rule("all_gather", 1, _chunk_to_each),
    "c10d::allgather_into_tensor_coalesced_": _Rule("all_gather", 1, _chunk_to_each),
    "c10d::reduce_scatter_": _Rule("reduce_scatter", 1, _share),
    "c10d::_reduce_scatter_base_": _Rule("reduce_scatter", 1, _share),
    "c10d::reduce_scatter_tensor_coalesced_": _Rule("reduce_scatter", 1, _share),
    "c10d::alltoall_": _Rule("all_to_all", 1, _share),
    "c10d::alltoall_base_": _Rule("all_to_all", 1, _share),
    "c10d::send": _Rule("send", 0, _whole),
    "c10d::recv_": _Rule("recv", 0, _nothing),
    "c10d::recv_any_source_": _Rule("recv", 0, _nothing),
    "c10d::reduce_": _Rule("reduce", 0, _all_but_root),
    "c10d::gather_": _Rule("gather", 1, _all_but_root),
    "c10d::scatter_": _Rule("scatter", 1, _root_share),
    "c10d::barrier": _Rule("barrier", 0, _nothing),
    "c10d::monitored_barrier_": _Rule("barrier", 0, _nothing),
    "_c10d_functional::all_reduce": _Rule("all_reduce", 0, _all_reduce),
    "_c10d_functional::all_reduce_": _Rule("all_reduce", 0, _all_reduce),
    "_c10d_functional::all_reduce_coalesced": _Rule("all_reduce", 0, _all_reduce),
    "_c10d_functional::all_reduce_coalesced_": _Rule("all_reduce", 0, _all_reduce),
    "_c10d_functional::all_gather_into_tensor": _Rule("all_gather", 0, _chunk_to_each),
    "_c10d_functional::all_gather_into_tensor_out": _Rule("all_gather", 0, _chunk_to_each),
    "_c10d_functional::all_gather_into_tensor_coalesced": _Rule("all_gather", 0, _chunk_to_each),
    "_c10d_functional::reduce_scatter_tensor": _Rule("reduce_scatter", 0, _share),
    "_c10d_functional::reduce_scatter_tensor_out": _Rule("reduce_scatter", 0, _share),
    "_c10d_functional::reduce_scatter_tensor_coalesced": _Rule("reduce_scatter", 0, _share),
    "_c10d_functional::all_to_all_single": _Rule("all_to_all", 0, _share),
    "_c10d_functional::broadcast": _Rule("broadcast", 0, _root_only),
    "_c10d_functional::broadcast_": _Rule("broadcast", 0, _root_only),
}
# Bookkeeping around collectives, which moves nothing.
_SILENT: Final = ("wait_tensor", "_wrap_tensor_autograd", "wait_tensors")
# Where a message says who the other rank is.
_PEER: Final[Mapping[str, int]] = {"c10d::send": 2, "c10d::recv_": 2}
# Where a rooted operator says who its root is, counted from the arguments' start.
_ROOT: Final[Mapping[str, int]] = {
    "c10d::broadcast_": 2,
    "c10d::reduce_": 3,
    "c10d::gather_": 3,
    "c10d::scatter_": 3,
    "_c10d_functional::broadcast": 1,
    "_c10d_functional::broadcast_": 1,
}


@final
class ByteCounter(TorchDispatchMode):
    """Counts the collectives this thread issues while it is active (use it as a context manager).

    Attributes:
        seen: every collective, in issue order.
        unknown: names of communication operators it could not read, with how often they came.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Counted] = []
        self.unknown: Counter[str] = Counter()

    def by_op(self) -> dict[str, Fraction]:
        """Return op -> logical bytes, operators that send nothing left out."""
        total: dict[str, Fraction] = {}
        for one in self.seen:
            if one.logical_bytes:
                total[one.op] = total.get(one.op, Fraction(0)) + one.logical_bytes
        return total

    def wire_by_op(self) -> dict[str, Fraction] | None:
        """Return op -> bytes that this backend sends, as `by_op`; None where that is not known of one of them."""
        total: dict[str, Fraction] = {}
        for one in self.seen:
            if one.wire_bytes is None:
                return None
            if one.wire_bytes:
                total[one.op] = total.get(one.op, Fraction(0)) + one.wire_bytes
        return total

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if "c10d" in func.namespace:
            self._note(func, args)
        return func(*args, **(kwargs or {}))

    def _note(self, func: torch._ops.OpOverload, args: tuple[object, ...]) -> None:
        name = func._schema.name
        rule = _RULES.get(name)
        if rule is None:
            if not name.endswith(_SILENT):
                self.unknown[name] += 1
            return
        group = _group_of(args)
        tensors = list(_tensors(args[rule.buffer]))
        if group is None or (not tensors and rule.factor not in (_nothing, _root_share, _all_but_root)):
            self.unknown[name] += 1
            return
        source = args[_ROOT[name]] if name in _ROOT else None
        root = source == group.rank()
        place = (group.rank() - source) % group.size() if isinstance(source, int) else group.rank()
        size = sum(t.numel() * t.element_size() for t in tensors)
        peer = args[_PEER[name]] if name in _PEER else None
        logical = rule.factor(group.size(), root) * size
        self.seen.append(
            Counted(
                op=rule.op,
                logical_bytes=logical,
                wire_bytes=wire_bytes(dist.get_backend(group), rule.op, size, group.size(), place, logical),
                group_size=group.size(),
                group=group.group_name,
                dtype=tensors[0].dtype if tensors and rule.op != "barrier" else None,
                peer=peer if isinstance(peer, int) else None,
            )
        )


def op_of(name: str) -> str | None:
    """Return the collective that a dispatcher operator such as "c10d::allreduce_" is, None if it is none."""
    rule = _RULES.get(name)
    return None if rule is None else rule.op


def tell(counted: Counted) -> None:
    """Let the counters that watch this thread know of a collective that does not pass torch's dispatcher."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, ByteCounter):
            mode.seen.append(counted)


def _group_of(args: tuple[object, ...]) -> dist.ProcessGroup | None:
    if isinstance(args[-1], str):  # functional collectives name their group last
        named: dist.ProcessGroup = _resolve_process_group(args[-1])  # type: ignore[arg-type]
        return named
    for value in args:
        if isinstance(value, torch.ScriptObject):
            try:
                group: dist.ProcessGroup = dist.ProcessGroup.unbox(value)
            except RuntimeError:  # the reduce operation is boxed too
                continue
            return group
    return None


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from _tensors(item)
