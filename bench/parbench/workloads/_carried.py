"""Carried layers go on where the last chunk of a long sequence ended: their state is kept from batch to batch.

    step        0          1          2      |   3          4     ...
    chunk       0 ──h──>   1 ──h──>   2      |   0 ──h──>   1         a new sequence begins with a state of zero
    slot read   -          0          1      |   -          0
    slot kept   0          1          0      |   0          1

Every sample says which stream it belongs to and which chunk of it it is, so that a batch may be cut into shares and
micro-batches. A chunk reads the slot of the one before and writes its own: computing it again (recomputation in
backward) finds what it found before. No gradient passes from chunk to chunk.

B samples, T positions, D width of what comes in, H width of the state.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from parbench.workloads._recurrent import Recurrent, State

Placed = tuple[Tensor, Tensor]


@final
class Carried(nn.Module):
    """(x_BTD, place_B2) -> (y_BTH, place_B2): a recurrent layer that begins with the state its stream ended with.

    In eval mode every sample is a sequence of its own.

    Args:
        layer: the layer.
        streams: how many there are.
    """

    def __init__(self, layer: Recurrent, streams: int) -> None:
        super().__init__()
        self.layer = layer
        self._streams = streams
        # Not a buffer: each rank has the states of its own streams, which nobody may average or broadcast.
        self._kept: tuple[State, State] | None = None

    def forward(self, placed: Placed) -> Placed:
        """Go on from the last chunk."""
        x_BTD, place_B2 = placed
        if not self.training:
            return self.layer(x_BTD), place_B2
        stream_B, chunk_B = place_B2.round().long().unbind(1)
        y_BTH, after = self.layer.from_state(x_BTD, self._before(stream_B, chunk_B))
        if type(after[0]) is Tensor and not after[0].is_meta:  # values, not shapes alone
            self._keep(stream_B, chunk_B, after)
        return y_BTH, place_B2

    def _before(self, stream_B: Tensor, chunk_B: Tensor) -> State | None:
        if self._kept is None:
            return None
        begun_B1 = (chunk_B > 0).unsqueeze(1)
        odd_B1 = (chunk_B % 2 == 1).unsqueeze(1)  # the chunk before an odd one is even
        return tuple(
            torch.where(odd_B1, even[stream_B], odd[stream_B]) * begun_B1 for even, odd in zip(*self._kept, strict=True)
        )

    @torch.no_grad()
    def _keep(self, stream_B: Tensor, chunk_B: Tensor, after: State) -> None:
        if self._kept is None:
            empty = [torch.zeros(self._streams, part.shape[1], dtype=part.dtype, device=part.device) for part in after]
            self._kept = (tuple(empty), tuple(part.clone() for part in empty))
        for parity, slot in enumerate(self._kept):
            mine = chunk_B % 2 == parity
            for kept, part in zip(slot, after, strict=True):
                kept[stream_B[mine]] = part.detach()[mine].to(kept.dtype)
