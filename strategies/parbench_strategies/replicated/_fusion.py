"""Fusion makes few large messages of many small tensors: they are copied into one buffer, reduced, and copied back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from parbench.api import Comm, bytes_of


def fused(sizes: Sequence[int], kinds: Sequence[object], capacity: int) -> list[list[int]]:
    """Return the messages, each the places of the tensors in it; they begin in the order in which tensors come.

    Args:
        sizes: bytes of each tensor.
        kinds: what tensors of one message have in common, such as the type of their elements.
        capacity: bytes of a message; a larger tensor is one by itself.
    """
    messages: list[list[int]] = []
    open_messages: dict[object, tuple[list[int], int]] = {}
    for place, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        message, filled = open_messages.get(kind, ([], 0))
        if not message or filled + size > capacity:
            message, filled = [], 0
            messages.append(message)
        message.append(place)
        open_messages[kind] = message, filled + size
    return messages


@final
class FusionBuffer:
    """The memory through which fused tensors are averaged.

    Args:
        capacity: bytes of a message.
        tensors: all that will ever be averaged, which may take less.
    """

    def __init__(self, capacity: int, tensors: Sequence[Tensor]) -> None:
        self._capacity = capacity
        self._buffers: dict[torch.dtype, Tensor] = {}
        for dtype in dict.fromkeys(t.dtype for t in tensors):
            alike = [t for t in tensors if t.dtype is dtype]
            elements = min(capacity, bytes_of(alike)) // alike[0].element_size()
            self._buffers[dtype] = torch.empty(elements, dtype=dtype, device=alike[0].device)

    def average(self, tensors: Sequence[Tensor], comm: Comm) -> None:
        """Average `tensors` over all ranks in place, in as few messages as they fit."""
        for message in fused([bytes_of([t]) for t in tensors], [t.dtype for t in tensors], self._capacity):
            self._average([tensors[place] for place in message], comm)

    def _average(self, tensors: Sequence[Tensor], comm: Comm) -> None:
        if len(tensors) == 1 and tensors[0].is_contiguous():
            comm.mean(tensors[0])
            return
        size = sum(t.numel() for t in tensors)
        buffer = self._buffers[tensors[0].dtype]
        # One tensor that is not contiguous may be larger than the buffer.
        flat = buffer[:size] if size <= buffer.numel() else torch.empty_like(tensors[0]).reshape(-1)
        torch.cat([t.reshape(-1) for t in tensors], out=flat)
        comm.mean(flat)
        for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))
