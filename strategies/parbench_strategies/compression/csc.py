"""csc cuts the pool of gradients into chunks and averages those of largest norm, as one dense message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import final

from torch import Tensor

from parbench.api import Carriage, Channel, Claims, Finish, Paper, Reduced, RoundsCompressor, Shape
from parbench_strategies.compression._chunks import By, chunked, unchunked
from parbench_strategies.compression._ratio import checked_ratio, checked_warmup, kept, warmed
from parbench_strategies.compression._wire import bytes_on, sent_on

_URL = "https://arxiv.org/abs/1902.06855"


@final
class Csc(RoundsCompressor):
    """Averages the chunks whose L1 norms, added up over the ranks, are largest; with momentum correction.

    Args:
        chunk: elements of a chunk.
        ratio: share of the chunks that is sent, rounded up.
        select: by the norms of this step ("current": one round more), or of the last ("prev").
        warmup_steps: steps in which the share falls from a quarter to `ratio`.
        half: whether chunks travel in half precision.
    """

    name = "csc"
    paper = Paper("Optimizing Network Performance for Distributed DNN Training (Sun et al., 2019)", _URL)
    linear = True
    feedback = True
    momentum_correction = True
    claims: Claims = "contraction"
    per = "group"

    def __init__(
        self, chunk: int = 32768, ratio: float = 0.1, select: By = "current", warmup_steps: int = 0, half: bool = False
    ) -> None:
        if chunk < 1:
            raise ValueError(f"chunk is a number of elements, at least 1, got {chunk}")
        self.chunk, self.select, self.half = chunk, select, half
        self.ratio, self.warmup_steps = checked_ratio(ratio), checked_warmup(warmup_steps)
        self._norms: dict[str, Tensor] = {}

    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        chunks, some = self._chunks(math.prod(shape))
        return 4 * chunks + some * self.chunk * bytes_on(self.half, element_bytes) < math.prod(shape) * element_bytes

    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        return partial(list, [self._exchange(grad, key, channel) for grad, key in zip(grads, keys, strict=True)])

    def cost(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction] | None:
        sizes, size = [self._chunks(math.prod(shape)) for shape in shapes], bytes_on(self.half, element_bytes)
        messages = [one for chunks, some in sizes for one in ((chunks, 4), (some * self.chunk, size))]
        return None if self.warmup_steps else channel.together(*(channel.averaged(*one) for one in messages))

    def _chunks(self, elements: int) -> tuple[int, int]:
        chunks = -(-elements // self.chunk)
        return chunks, kept(chunks, warmed(self.ratio, self.step, self.warmup_steps))

    def _exchange(self, grad_B: Tensor, key: str, channel: Channel) -> Reduced:
        rows = chunked(grad_B, self.chunk)
        some = self._chunks(grad_B.numel())[1]
        norms = rows.float().abs().mean(1)
        before = self._norms.get(key) if self.select == "prev" else None
        if before is None:  # the first step has no other
            (summed,) = channel.mean([norms])
            chosen = summed.topk(some).indices
            (mean,) = channel.mean([own := sent_on(self.half, rows[chosen])])
        else:
            chosen = before.topk(some).indices
            summed, mean = channel.mean([norms, own := sent_on(self.half, rows[chosen])])
        self._norms[key] = summed
        value = partial(unchunked, chosen_K=chosen, like_B=grad_B)
        return Reduced(average=value(mean.to(rows.dtype)), contribution=lambda: value(own.to(rows.dtype)))
