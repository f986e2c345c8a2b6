"""count_sketch adds up sketches: tables into which every number is hashed, in which large ones are found again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Carriage, Channel, Claims, Finish, Paper, RoundsCompressor, Shape, decoded
from parbench_strategies.compression._draws import lasting
from parbench_strategies.compression._hashing import Hashing
from parbench_strategies.compression._ratio import checked_ratio, kept
from parbench_strategies.compression._selection import largest
from parbench_strategies.compression._sparse import at


@final
class CountSketch(RoundsCompressor):
    """Finds the largest numbers of the average in the sum of sketches, and averages these exactly in a second round.

    Args:
        ratio: share of the elements that is averaged, rounded up.
        rows: hash functions; an estimate is the median of as many.
        width: columns of a sketch, as a share of the elements.
        per: what is sketched: each "tensor", or a whole "group" of the fusion rule.
    """

    name = "count_sketch"
    paper = Paper(
        "Communication-efficient Distributed SGD with Sketching (Ivkin et al., 2019)",
        "https://arxiv.org/abs/1903.04488",
    )
    linear = True
    feedback = True
    claims: Claims = "contraction"

    def __init__(
        self, ratio: float = 0.05, rows: int = 5, width: float = 0.05, per: Literal["tensor", "group"] = "tensor"
    ) -> None:
        self.ratio = checked_ratio(ratio)
        if not 1 <= rows <= 64:
            raise ValueError(f"rows is the number of hash functions, from 1 to 64, got {rows}")
        self.rows, self.width, self.per = rows, checked_ratio(width), per
        self._hashings: dict[str, Hashing] = {}

    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        cells, values = self._sizes(math.prod(shape))
        return 4 * cells + element_bytes * values < math.prod(shape) * element_bytes

    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        hashed = [self._hashing(grad, key) for grad, key in zip(grads, keys, strict=True)]
        flat = [grad.reshape(-1) for grad in grads]
        sketches = channel.mean([one.sketch(grad_N.float()) for one, grad_N in zip(hashed, flat, strict=True)])
        found = [
            largest(one.estimates(sketch), kept(len(grad_N), self.ratio))
            for one, sketch, grad_N in zip(hashed, sketches, flat, strict=True)
        ]
        owns = [grad_N[places] for grad_N, places in zip(flat, found, strict=True)]
        averaging = channel.start_mean(owns)
        values = [partial(at, places_K=places, like_B=grad) for places, grad in zip(found, grads, strict=True)]
        return lambda: decoded(values, averaging(), owns)

    def cost(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction]:
        cells, values = zip(*(self._sizes(math.prod(shape)) for shape in shapes), strict=True)
        return channel.together(channel.averaged(sum(cells), 4), channel.averaged(sum(values), element_bytes))

    def _sizes(self, elements: int) -> tuple[int, int]:
        return self.rows * kept(elements, self.width), kept(elements, self.ratio)  # cells of a sketch, values

    def _hashing(self, grad_B: Tensor, key: str) -> Hashing:
        place = f"{key}/{grad_B.numel()}"  # functions of as many elements, made once
        if place not in self._hashings:
            sizes = grad_B.numel(), self.rows, self._sizes(grad_B.numel())[0]
            self._hashings[place] = Hashing(*sizes, lasting(self, key, torch.device("cpu")), grad_B.device)
        return self._hashings[place]
