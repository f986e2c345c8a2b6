"""dgc is top-k with what keeps training with it stable: momentum correction, gradients cut to a norm, and a warm-up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import final

from torch import Tensor

from parbench.api import Carriage, Claims, Paper, Shape
from parbench_strategies.compression._indices import index_bytes
from parbench_strategies.compression._ratio import checked_ratio, checked_warmup, kept, warmed
from parbench_strategies.compression._selection import largest
from parbench_strategies.compression._sparse import SparseCompressor


@final
class Dgc(SparseCompressor):
    """Sends the largest of what momentum has added up, and forgets the momentum of what it sent.

    The optimizer's momentum, where it has one, is applied before compression instead of after.

    Args:
        ratio: share of the elements that is sent, rounded up.
        warmup_steps: steps in which the share falls from a quarter to `ratio`.
        clip: norm of a parameter's average gradient that each rank's is cut to its part of; `inf` cuts nothing.
    """

    name = "dgc"
    paper = Paper(
        "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training (Lin et al., 2018)",
        "https://arxiv.org/abs/1712.01887",
    )
    feedback = True
    momentum_correction = True
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, ratio: float = 0.001, warmup_steps: int = 0, clip: float = math.inf) -> None:
        self.ratio = checked_ratio(ratio)
        self.warmup_steps = checked_warmup(warmup_steps)
        if not clip > 0:
            raise ValueError(f"clip is a norm, above 0 (inf cuts nothing), got {clip}")
        self.clip = None if clip == math.inf else clip

    def places(self, flat_N: Tensor) -> Tensor:
        return largest(flat_N, self._kept(flat_N.numel()))

    def length(self, shape: Shape, element_bytes: int) -> int:
        """A value and an index for each."""
        elements = math.prod(shape)
        return self._kept(elements) * (element_bytes + index_bytes(elements))

    def sent(self, shapes: Sequence[Shape], element_bytes: int, channel: Carriage) -> Mapping[str, Fraction] | None:
        """Nothing can be said of all steps where warm-up sends more."""
        return None if self.warmup_steps else super().sent(shapes, element_bytes, channel)

    def _kept(self, elements: int) -> int:
        return kept(elements, warmed(self.ratio, self.step, self.warmup_steps))
