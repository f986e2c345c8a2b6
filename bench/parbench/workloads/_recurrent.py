"""Recurrent layers: one per block, of LSTM or GRU, fused over time or cell by cell.

B samples, T positions, D width of what comes in, H width of the state.
"""

from __future__ import annotations

from typing import Final, Literal, final

import torch
from torch import Tensor, nn

from parbench.workloads._weights import Fill

Cell = Literal["lstm", "gru", "lstmcell"]
CELLS: Final[tuple[Cell, ...]] = ("lstm", "gru", "lstmcell")

State = tuple[Tensor, ...]


def checked(cell: str) -> str:
    """Return the name of a cell.

    Raises:
        ValueError: there is no such cell.
    """
    if cell not in CELLS:
        raise ValueError(f"cell must be one of {', '.join(CELLS)}, got {cell!r}")
    return cell


@final
class Recurrent(nn.Module):
    """x_BTD -> y_BTH: a layer of recurrent cells, from a state of zero.

    Args:
        inputs: D.
        hidden: H.
        cell: "lstm" and "gru" are fused over time, "lstmcell" goes from position to position by itself.
    """

    def __init__(self, inputs: int, hidden: int, cell: str) -> None:
        super().__init__()
        self.layer: nn.Module
        if checked(cell) == "lstmcell":
            self.layer = nn.LSTMCell(inputs, hidden)
        else:
            fused = nn.LSTM if cell == "lstm" else nn.GRU
            self.layer = fused(inputs, hidden, batch_first=True)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Go through the positions."""
        return self.from_state(x_BTD, None)[0]

    def from_state(self, x_BTD: Tensor, state: State | None) -> tuple[Tensor, State]:
        """Go through the positions from `state`, (B, H) each; return the results and the state after the last."""
        if isinstance(self.layer, nn.LSTMCell):
            return self._one_by_one(self.layer, x_BTD, state)
        before = None if state is None else tuple(part.unsqueeze(0) for part in state)
        if isinstance(self.layer, nn.GRU):
            y_BTH, after = self.layer(x_BTD, before[0] if before else None)
            return y_BTH, (after[0],)
        y_BTH, (hidden, cell) = self.layer(x_BTD, before)
        return y_BTH, (hidden[0], cell[0])

    def _one_by_one(self, cell: nn.LSTMCell, x_BTD: Tensor, state: State | None) -> tuple[Tensor, State]:
        results, now = [], None if state is None else (state[0], state[1])
        for x_BD in x_BTD.unbind(1):
            now = cell(x_BD, now)
            results.append(now[0])
        return torch.stack(results, dim=1), now or ()


def stacked(inputs: int, hidden: int, layers: int, cell: str) -> list[Recurrent]:
    """Return layers that follow each other: from `inputs` to `hidden`, then from `hidden` to `hidden`."""
    return [Recurrent(hidden if k else inputs, hidden, cell) for k in range(layers)]


@final
class Last(nn.Module):
    """y_BTH -> y_BH: the last position."""

    def forward(self, y_BTH: Tensor) -> Tensor:
        """Take it."""
        return y_BTH[:, -1]


def fill_of(hidden: int, embedding: float = 1.0) -> Fill:
    """Return what writes first weights: uniform up to 1 over the root of the state's width, and biases of zero."""
    most = hidden**-0.5

    def fill(name: str, value: Tensor, random: torch.Generator) -> None:
        if "bias" in name:
            value.zero_()
        elif name.startswith("embedding"):
            value.normal_(0.0, embedding, generator=random)
        elif name.startswith("head"):
            value.normal_(0.0, 0.01, generator=random)  # nearly equal outputs: the first loss is a guess's
        else:
            value.uniform_(-most, most, generator=random)

    return fill
