"""Hashing puts every element into one cell of each row of a sketch, with a sign, by two functions of its place.

(a x + b) mod p, with a prime p and a and b at random, are pairwise independent (Carter and Wegman, 1979).
"""

from __future__ import annotations

from typing import Final, final

import torch
from torch import Tensor

_PRIME: Final = 2**31 - 1


@final
class Hashing:
    """The functions of one tensor.

    Args:
        elements: of the tensor, fewer than 2^31.
        rows: of the sketch.
        cells: of the sketch, as many in each row.
        draws: gives the functions; on the host.
        device: where the tensor is.
    """

    def __init__(self, elements: int, rows: int, cells: int, draws: torch.Generator, device: torch.device) -> None:
        self._cells, width = cells, cells // rows
        a, b, c, d = torch.randint(1, _PRIME, (4, rows, 1), generator=draws).to(device)
        x = torch.arange(elements, device=device)
        self._cells_RN = (a * x + b) % _PRIME % width + torch.arange(rows, device=device).unsqueeze(1) * width
        self._signs_RN = ((c * x + d) % _PRIME & 1).float().mul_(2).sub_(1)

    def sketch(self, flat_N: Tensor) -> Tensor:
        """Return the sketch: in each cell the sum of what it was given, signs applied."""
        cells = torch.zeros(self._cells, device=flat_N.device)
        return cells.index_add_(0, self._cells_RN.view(-1), (self._signs_RN * flat_N).view(-1))

    def estimates(self, sketch: Tensor) -> Tensor:
        """Return about what was put in: the median over rows."""
        found_N: Tensor = (sketch[self._cells_RN] * self._signs_RN).median(0).values
        return found_N
