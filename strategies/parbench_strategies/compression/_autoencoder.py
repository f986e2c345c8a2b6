"""An Autoencoder turns a row of numbers into a code of a quarter of its length and back, by strided convolutions.

values K ──conv, stride 2──> 8 x K/2 ──conv, stride 2──> code K/4 ──and back──> 8 x K/2 ──> values K

R ranks. LGC (Abrahamyan et al., 2021) has more layers; nothing else depends on which.
"""

from __future__ import annotations

from typing import Final, final

import torch
import torch.nn.functional as F
from torch import Tensor

SHRINKS: Final = 4
_CHANNELS: Final = 8
_TAPS: Final = 4  # of every filter; with stride 2 and padding 1 they halve or double a length exactly
_LEARNING_RATE: Final = 3e-3


@final
class Autoencoder:
    """Weights that learn; ranks that begin alike and learn from the same numbers stay alike.

    Args:
        draws: gives the first weights.
        device: where they are.
    """

    def __init__(self, draws: torch.Generator, device: torch.device) -> None:
        shapes = ((_CHANNELS, 1), (1, _CHANNELS), (1, _CHANNELS), (_CHANNELS, 1))
        drawn = [torch.randn(*shape, _TAPS, generator=draws) / (shape[1] * _TAPS) ** 0.5 for shape in shapes]
        self.weights = [one.to(device).requires_grad_() for one in drawn]
        self._optimizer = torch.optim.Adam(self.weights, lr=_LEARNING_RATE)

    def code(self, values_RK: Tensor) -> Tensor:
        """Return codes, of K/4 numbers rounded up."""
        padded = F.pad(values_RK, (0, -values_RK.shape[1] % SHRINKS)).unsqueeze(1)
        hidden = F.leaky_relu(F.conv1d(padded, self.weights[0], stride=2, padding=1))
        return F.conv1d(hidden, self.weights[1], stride=2, padding=1).squeeze(1)

    def values(self, codes_RC: Tensor, count: int) -> Tensor:
        """Return the first `count` numbers that codes stand for."""
        hidden = F.leaky_relu(F.conv_transpose1d(codes_RC.unsqueeze(1), self.weights[2], stride=2, padding=1))
        return F.conv_transpose1d(hidden, self.weights[3], stride=2, padding=1).squeeze(1)[:, :count]

    def learn(self, values_RK: Tensor) -> float:
        """Take one step towards giving back the mean of rows from the mean of their codes; return the error before."""
        with torch.enable_grad():
            mean_1K = values_RK.mean(0, keepdim=True)
            found_1K = self.values(self.code(values_RK).mean(0, keepdim=True), values_RK.shape[1])
            error = F.mse_loss(found_1K, mean_1K)
            self._optimizer.zero_grad()
            error.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        return float(error.detach())
