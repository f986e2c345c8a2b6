"""pactrain leaves out what has been zero on all ranks for a while: no indices, a plain average, and nothing is lost.

mask = places whose average was zero in every step so far      once it has not changed for some steps:
|x 0 0 x x 0| ──> |x x x| ──average──> |x x x| ──> |x 0 0 x x 0|     any rank with a number there: all send all again
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from parbench.api import Agrees, Channel, Claims, Finish, Paper, Reduced, RoundsCompressor, Shape, uncompressed
from parbench_strategies.compression._masks import Masks

_FLAG_BYTES = 4


@final
class PacTrain(RoundsCompressor):
    """Averages the places that are not masked; the paper prunes the model first, which makes many zeros for good.

    Args:
        patience: steps for which a mask must stay the same before it is used.
    """

    name = "pactrain"
    paper = Paper(
        "PacTrain: Pruning and Adaptive Sparse Gradient Compression (Wang et al., 2025)",
        "https://arxiv.org/abs/2505.18563",
    )
    agrees: Agrees = "closely"
    linear = True
    claims: Claims = "contraction"
    repeatable = True

    def __init__(self, patience: int = 10) -> None:
        if patience < 1:
            raise ValueError(f"patience is a number of steps, at least 1, got {patience}")
        self._masks = Masks(patience)

    def compresses(self, shape: Shape, element_bytes: int, world_size: int) -> bool:
        return 0 not in shape

    def exchange(self, grads: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> Finish:
        flat = [grad.reshape(-1) for grad in grads]
        masks = self._agreed(flat, keys, channel)
        parts = [grad_N if mask is None else grad_N[~mask] for grad_N, mask in zip(flat, masks, strict=True)]
        averaging = channel.start_mean(parts)

        def finish() -> list[Reduced]:
            found = []
            for mean, mask, grad, key in zip(averaging(), masks, grads, keys, strict=True):
                average_N = mean if mask is None else grad.new_zeros(grad.numel()).masked_scatter_(~mask, mean)
                self._masks.see(key, average_N)
                found.append(uncompressed(average_N.view(grad.shape), grad))
            return found

        return finish

    def _agreed(self, flat: Sequence[Tensor], keys: Sequence[str], channel: Channel) -> list[Tensor | None]:
        """Return the mask of each gradient that no rank has a number in."""
        least = _FLAG_BYTES // flat[0].element_size()  # fewer zeros would save less than to ask for them takes
        masks = [self._masks.stable(key, least) for key in keys]
        stable = [(k, mask) for k, mask in enumerate(masks) if mask is not None]
        broken = [flat[k][mask].any().to(torch.int32).view(1) for k, mask in stable]
        for (k, _), ranks in zip(stable, channel.sum(broken), strict=True):
            if bool(ranks):
                self._masks.forget(keys[k])
                masks[k] = None
        return masks
