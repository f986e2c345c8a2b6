"""micro lets every rank choose among a part of the gradient that is its own for a step: no place is chosen twice.

step 0   |rank 0 chooses|rank 1 chooses|     places of all are gathered, then averaged over all ranks
step 1   |rank 1 chooses|rank 0 chooses|
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Channel, Compressor, Paper, Reduced, uncompressed
from parbench_strategies.compression._indices import narrowed, widened
from parbench_strategies.compression._ratio import checked_ratio
from parbench_strategies.compression._selection import above
from parbench_strategies.compression._sparse import at
from parbench_strategies.compression._threshold_scaling import ThresholdScaling


@final
class Micro(Compressor):
    """Averages what ranks choose by a threshold in parts of their own, which is scaled to keep a density.

    Args:
        density: share of the elements that all ranks together choose.
        scaling: how the threshold moves where the share is nearly right: "published" raises it always, as the paper's
            code does, and ends a little below the density; "mended" also lowers it.
    """

    name = "micro"
    paper = Paper(
        "MiCRO: Near-Zero Cost Gradient Sparsification (Yoon and Oh, 2023)", "https://arxiv.org/abs/2310.00967"
    )
    linear = True
    feedback = True
    per = "group"

    def __init__(self, density: float = 0.001, scaling: Literal["published", "mended"] = "published") -> None:
        self.density = checked_ratio(density)
        self._thresholds = ThresholdScaling(mended=scaling == "mended")

    def reduce(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Sequence[Reduced]:
        """Choose, gather places, average."""
        return [self._reduce(grad, key, channel) for grad, key in zip(grads, keys, strict=True)]

    def _reduce(self, grad_B: Tensor, key: str, channel: Channel) -> Reduced:
        flat_N, n = grad_B.reshape(-1), channel.world_size
        threshold = self._thresholds.threshold(key, max(1, int(self.density * flat_N.numel())))
        size, longer = divmod(flat_N.numel(), n)
        part = (self.step + channel.rank) % n
        first = part * size + min(part, longer)
        own_part = flat_N[first : first + size + (part < longer)]
        chosen = above(own_part, threshold)
        if not chosen.numel() and own_part.numel():  # one at least, each time the next
            chosen = torch.tensor([self.step % own_part.numel()], device=own_part.device)
        message = [[narrowed(first + chosen, flat_N.numel())]]
        lengths = channel.lengths(message)
        count = sum(own_count for ((own_count,),) in lengths.counts)
        self._thresholds.chose(key, threshold, count)
        if n * lengths.longest() + 2 * count * flat_N.element_size() >= 2 * flat_N.numel() * flat_N.element_size():
            return uncompressed(channel.mean([grad_B])[0], grad_B)
        ((*by_rank,),) = channel.start_gather_varied(message, lengths)()
        places = torch.cat([widened(indices) for (indices,) in by_rank])
        (mean,) = channel.mean([flat_N[places]])
        return Reduced(average=at(mean, places, grad_B), contribution=partial(at, flat_N[places], places, grad_B))
