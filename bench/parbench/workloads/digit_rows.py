"""digit-rows: handwritten digits read row by row by recurrent layers: a sequence of 8 rows of 8 pixels is a sample."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import ClassVar, final

import torch
from torch import nn

from parbench.api import Job, Workload
from parbench.workloads import _data, _digits, _loss, _recurrent, _vision
from parbench.workloads._recurrent import Cell, Last
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded


@final
class DigitRows(Workload):
    """Classification of UCI's handwritten digits as sequences of rows; a fixed fifth is held out, whatever the seed."""

    name: ClassVar[str] = "digit-rows"
    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "hidden": 16},
        "small": {"layers": 2, "hidden": 64},
    }
    source: ClassVar[str] = (
        "UCI 'Optical Recognition of Handwritten Digits', the 1,797 images of scikit-learn, row after row; an "
        "LSTM (Hochreiter and Schmidhuber 1997) whose last state is classified"
    )

    def __init__(self, cell: Cell = "lstm") -> None:
        """Remember the cell.

        Args:
            cell: "lstm", "gru", or "lstmcell", which goes from row to row in Python.
        """
        self._cell = _recurrent.checked(cell)

    def unsupported(self) -> str | None:
        """Say that scikit-learn is missing, where it is."""
        return _digits.lacking()

    def data_hash(self) -> str:
        """Return the SHA-256 of the pixels and labels, one byte each.

        Raises:
            MissingError: scikit-learn is not installed.
        """
        return _digits.data_hash()

    def default_batch_size(self, size: str) -> int:
        """Return 64: 22 full batches and one of 30 make an epoch."""
        settings_of(self.name, self.sizes, size)
        return 64

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the classifier and the epochs of its train images.

        Raises:
            UsageError: no such size, or a batch of more than the 1,438 train images.
            MissingError: scikit-learn is not installed.
        """
        s = settings_of(self.name, self.sizes, size)
        train, held_out = _digits.train_and_held_out(_digits.SIDE, _digits.SIDE)
        return Job(
            model=seeded(lambda: self._network(s), _recurrent.fill_of(s["hidden"]), seed, device),
            loss=_loss.sum_loss,
            optimizer=_adam,
            batch=_data.batches(train, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=[*(f"layers.{k}" for k in range(s["layers"])), "head"],
            steps_per_epoch=-(-train.samples // global_batch_size),
            held_out=_loss.evaluator(held_out, _vision.CHUNK),
        )

    def _network(self, s: Mapping[str, int]) -> nn.Sequential:
        layers = _recurrent.stacked(_digits.SIDE, s["hidden"], s["layers"], self._cell)
        head = OrderedDict(last=Last(), linear=nn.Linear(s["hidden"], _digits.CLASSES))
        return nn.Sequential(OrderedDict(layers=nn.Sequential(*layers), head=nn.Sequential(head)))


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2, eps=1e-6)
