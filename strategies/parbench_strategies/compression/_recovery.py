"""Recovery of sparse vectors from projections, by normalised iterative hard thresholding (Blumensath and Davies, 2010).

X rows are blocks of B numbers, Y rows their M measurements.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sparsest(blocks_XB: Tensor, sparsity: int) -> Tensor:
    """Return the blocks with all but the largest numbers of each set to zero."""
    places = blocks_XB.abs().topk(sparsity, dim=1, sorted=False).indices
    return torch.zeros_like(blocks_XB).scatter_(1, places, blocks_XB.gather(1, places))


def recovered(measured_XM: Tensor, projection_MB: Tensor, sparsity: int, iterations: int) -> Tensor:
    """Return sparse blocks whose projections are near the measured ones: the best of all iterations, for each block."""
    tiny = torch.finfo(torch.float32).tiny
    # Blocks of one size: squares of huge or tiny numbers would leave single precision.
    size_X1 = measured_XM.abs().amax(1, keepdim=True)
    y_XM = measured_XM / size_X1.clamp(min=tiny)
    x_XB = y_XM.new_zeros(len(y_XM), projection_MB.shape[1])
    best_XB, least_X = x_XB, y_XM.square().sum(1)
    for _ in range(iterations):
        gradient_XB = (y_XM - x_XB @ projection_MB.T) @ projection_MB
        support_XB = x_XB != 0
        # Before there is a support, that of the gradient's own largest numbers gives the step.
        on_support = torch.where(
            support_XB.any(1, keepdim=True), gradient_XB * support_XB, sparsest(gradient_XB, sparsity)
        )
        moved_X1 = (on_support @ projection_MB.T).square().sum(1, keepdim=True)
        step_X1 = on_support.square().sum(1, keepdim=True) / moved_X1.clamp(min=tiny)
        x_XB = sparsest(x_XB + step_X1 * gradient_XB, sparsity)
        error_X = (y_XM - x_XB @ projection_MB.T).square().sum(1)
        better_X = error_X < least_X
        best_XB = torch.where(better_X.unsqueeze(1), x_XB, best_XB)
        least_X = torch.where(better_X, error_X, least_X)
    return best_XB * size_X1
