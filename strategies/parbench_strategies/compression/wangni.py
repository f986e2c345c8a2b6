"""wangni sends numbers with probabilities that keep the variance low where few are sent, larger ones for certain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor

from parbench.api import Claims, GatherCompressor, Paper
from parbench_strategies.compression._bits import packed, unpacked
from parbench_strategies.compression._draws import own
from parbench_strategies.compression._indices import narrowed, widened
from parbench_strategies.compression._probabilities import closed_form, greedy
from parbench_strategies.compression._ratio import checked_ratio


@final
class Wangni(GatherCompressor):
    """Sends g / p with probability p = min(lambda |g|, 1): values that are certain, and signs of the others.

    What is not certain has one magnitude, 1 / lambda, of which a single number is sent.

    Args:
        method: how lambda is found: "closed" for a given variance, or "greedy" for a given share.
        density: with "greedy", the share of the elements that is sent on average.
        epsilon: with "closed", by what share of |g|^2 the second moment may be larger.
    """

    name = "wangni"
    paper = Paper(
        "Gradient Sparsification for Communication-Efficient Distributed Optimization (Wangni et al., 2018)",
        "https://arxiv.org/abs/1710.09854",
    )
    claims: Claims = "unbiased"

    def __init__(
        self, method: Literal["greedy", "closed"] = "greedy", density: float = 0.1, epsilon: float = 1.0
    ) -> None:
        self.method = method
        self.density = checked_ratio(density)
        if not 0 < epsilon < float("inf"):
            raise ValueError(f"epsilon is how much larger the second moment may be, above 0 and finite, got {epsilon}")
        self.epsilon = epsilon

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        flat_N = grad_B.reshape(-1)
        sizes_N = flat_N.abs().double()
        largest = sizes_N.max().clamp(min=torch.finfo(torch.float64).tiny)
        sizes_N /= largest
        greedily = self.method == "greedy"
        p_N = greedy(sizes_N, self.density) if greedily else closed_form(sizes_N, self.epsilon)
        draws = own(self, key, grad_B.device)
        drawn_N = torch.rand(flat_N.shape, dtype=torch.float64, generator=draws, device=grad_B.device)
        certain = (p_N >= 1).nonzero().view(-1)
        chosen = ((drawn_N < p_N) & (p_N < 1)).nonzero().view(-1)
        # |g| / p is the same of all that are not certain; of the largest it is rounded least.
        uncertain_N = torch.where(p_N < 1, sizes_N, -1.0)
        at = uncertain_N.argmax()
        magnitude = (sizes_N[at] / p_N[at].clamp(min=torch.finfo(torch.float64).tiny) * largest).to(torch.float32)
        places = [narrowed(certain, flat_N.numel()), narrowed(chosen, flat_N.numel())]
        return [*places, flat_N[certain], packed(flat_N[chosen] < 0), magnitude.view(1)]

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Tensor:
        certain, chosen, values, negative, magnitude = message
        flat_N = torch.zeros(grad_B.numel(), dtype=grad_B.dtype, device=grad_B.device)
        flat_N.index_copy_(0, widened(certain), values)
        sampled = torch.where(unpacked(negative, chosen.numel()), -magnitude, magnitude)
        return flat_N.index_copy_(0, widened(chosen), sampled.to(grad_B.dtype)).view(grad_B.shape)
