"""The work of one collective: its tensors laid out as the bytes that a ring stream sends, receives and adds."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from parbench.errors import UsageError
from parbench.network.ring_errors import RingMismatch
from parbench.network.ring_parts import Add, Put, Work
from parbench.network.ring_plan import OPS, Op, RingPlan, bounds, plan

# Their place in this list is their number in headers.
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
)
_HEADER = struct.Struct("<4sIQQBBH4x")
_MAGIC = b"prng"
HEADER_BYTES = _HEADER.size


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective of one rank; use `of`.

    Attributes:
        number: how many the ring issued before it; all ranks count alike.
        whole: the buffer of all parts, flat.
        shard: this rank's part where the collective has one; else `whole`.
        result: the caller's tensor that holds the result.
    """

    op: Op
    number: int
    whole: Tensor
    shard: Tensor
    result: Tensor
    rank: int
    world_size: int
    source: int

    @staticmethod
    def of(op: Op, number: int, whole: Tensor, shard: Tensor, rank: int, world_size: int, source: int) -> Collective:
        """Check the tensors and lay them flat.

        Raises:
            UsageError: this ring cannot move them, or they do not fit together.
        """
        for tensor in (whole, shard):
            if tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.dtype not in _DTYPES:
                raise UsageError(
                    f"a ring moves contiguous CPU tensors of real numbers; this one is {tensor.dtype} on "
                    f"{tensor.device}{'' if tensor.is_contiguous() else ', not contiguous'}"
                )
        borders = bounds(whole.numel(), world_size)
        mine = borders[rank + 1] - borders[rank]
        if shard is not whole and (shard.numel() != mine or shard.dtype != whole.dtype):
            raise UsageError(
                f"{op}: rank {rank} of {world_size} has {mine} of {whole.numel()} {_name(whole.dtype)}, "
                f"not {shard.numel()} {_name(shard.dtype)}"
            )
        if not 0 <= source < world_size:
            raise UsageError(f"broadcast from rank {source}: ranks are 0 to {world_size - 1}")
        return Collective(
            op=op,
            number=number,
            whole=whole.detach().view(-1),
            shard=shard.detach().view(-1),
            result=shard if op == "reduce_scatter" else whole,
            rank=rank,
            world_size=world_size,
            source=source,
        )

    @property
    def title(self) -> str:
        """What it is, for messages."""
        return f"{self.op} of {self.whole.numel()} {_name(self.whole.dtype)} (collective {self.number} of this ring)"

    def prepare(self) -> None:
        """Put in place what needs no other rank."""
        if self.op == "all_gather":
            borders = bounds(self.whole.numel(), self.world_size)
            mine = self.whole[borders[self.rank] : borders[self.rank + 1]]
            if mine.data_ptr() != self.shard.data_ptr():
                mine.copy_(self.shard)
        if self.op == "reduce_scatter" and self.world_size == 1:
            self.shard.copy_(self.whole)

    def header(self) -> bytes:
        """Return what goes ahead of the parts, for the next rank to compare with its own."""
        dtype = _DTYPES.index(self.whole.dtype)
        numel = self.whole.numel()
        return _HEADER.pack(_MAGIC, self.number, numel, self.source, OPS.index(self.op), dtype, self.rank)

    def compare(self, header: bytes) -> None:
        """Compare the previous rank's header with this rank's.

        Raises:
            RingMismatch: that rank issued something else.
        """
        if header[:-6] == self.header()[:-6]:  # all but the sender's rank
            return
        magic, number, numel, source, op, dtype, rank = _HEADER.unpack(header)
        if magic != _MAGIC or op >= len(OPS) or dtype >= len(_DTYPES):
            raise RingMismatch(f"ring: what came instead of the header of {self.title} is none")
        theirs = f"{OPS[op]} of {numel} {_name(_DTYPES[dtype])} (collective {number} of this ring)"
        root = f", from ranks {self.source} and {source}" if source != self.source else ""
        raise RingMismatch(f"ring: rank {self.rank} issued {self.title}, rank {rank} {theirs}{root}")


def work_of(collective: Collective) -> Work:
    """Lay out what the rank of `collective` sends, receives and adds."""
    op, whole = collective.op, collective.whole
    steps = plan(op, collective.rank, collective.world_size, collective.source)
    borders = bounds(whole.numel(), 1 if op == "broadcast" else collective.world_size)
    header, arriving = collective.header(), bytearray(HEADER_BYTES)
    if op == "reduce_scatter":
        incoming, passed = _sums(collective, steps, borders)
    else:
        incoming, passed = _in_place(whole, steps, borders)
    own = [_part(_bytes(whole), borders, at, whole.element_size()) for at in steps.outgoing[: steps.ready]]
    return Work(
        title=collective.title,
        # What is sent first is this rank's own; what is sent later is what came in.
        outgoing=[memoryview(header), *own, *passed[: len(steps.outgoing) - steps.ready]],
        ready_bytes=len(header) + sum(view.nbytes for view in own),
        header=memoryview(arriving),
        check=lambda: collective.compare(bytes(arriving)),
        incoming=incoming,
    )


def _in_place(whole: Tensor, steps: RingPlan, borders: Sequence[int]) -> tuple[list[Put | Add], list[memoryview]]:
    """Return where parts arrive and from where they are passed on: the same place of the buffer."""
    raw, size = _bytes(whole), whole.element_size()
    passed = [_part(raw, borders, one.part, size) for one in steps.incoming]
    arriving: list[Put | Add] = []
    for one, view in zip(steps.incoming, passed, strict=True):
        own = whole[borders[one.part] : borders[one.part + 1]] if one.add else None
        arriving.append(Put(view) if own is None else Add(own, own, view.nbytes))
    return arriving, passed


def _sums(collective: Collective, steps: RingPlan, borders: Sequence[int]) -> tuple[list[Put | Add], list[memoryview]]:
    """Return the same for a reduce-scatter, whose buffer is only read: sums go to a place of their own."""
    arriving: list[Put | Add] = []
    passed = []
    for one in steps.incoming:
        own = collective.whole[borders[one.part] : borders[one.part + 1]]
        result = collective.shard if one.part == collective.rank else torch.empty_like(own)
        view = _bytes(result)
        arriving.append(Add(own, result, view.nbytes))
        passed.append(view)
    return arriving, passed


def _part(raw: memoryview, borders: Sequence[int], at: int, size: int) -> memoryview:
    return raw[borders[at] * size : borders[at + 1] * size]


def _bytes(flat: Tensor) -> memoryview:
    # A tensor of no elements may have a stride that cannot be seen as bytes.
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
