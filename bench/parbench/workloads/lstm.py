"""lstm: a recurrent language model of characters, up to 70 million parameters, on the text that `text` takes."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import ClassVar, final

import torch
from torch import nn

from parbench.api import Job, Workload
from parbench.workloads import _corpus, _loss, _recurrent, _windows
from parbench.workloads._recurrent import Cell
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded


@final
class Lstm(Workload):
    """Next-character prediction by recurrent layers: the windows do not overlap, each begins with a state of zero."""

    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "embedding": 16, "hidden": 24, "context": 16},
        "small": {"layers": 2, "embedding": 48, "hidden": 96, "context": 64},
        "70m": {"layers": 2, "embedding": 512, "hidden": 2336, "context": 128},
    }
    source: ClassVar[str] = (
        "the text of help() inside this CPython or the file given as path; an LSTM over characters (Hochreiter and "
        "Schmidhuber 1997), one layer per block; 70m is as large as the largest of Svyatkovskiy et al. 2017"
    )

    def __init__(self, path: str | None = None, cell: Cell = "lstm") -> None:
        """Remember which text to read.

        Args:
            path: a UTF-8 text file; None takes Python's documentation.
            cell: "lstm", "gru", or "lstmcell", which goes from position to position in Python.
        """
        self._path = path
        self._cell = _recurrent.checked(cell)

    def unsupported(self) -> str | None:
        """Say that Python's documentation is missing, where it is needed and left out of this Python."""
        return _corpus.lacking(self._path, "lstm")

    def data_hash(self) -> str:
        """Return the SHA-256 of the text's bytes.

        Raises:
            UsageError: the file cannot be read.
            MissingError: this Python comes without its documentation.
        """
        return hashlib.sha256(_corpus.read(self._path)).hexdigest()

    def default_batch_size(self, size: str) -> int:
        """Return 8 windows for a smoke test and else 32."""
        settings_of("lstm", self.sizes, size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and the epochs of its train windows.

        Raises:
            UsageError: no such size, a file that cannot be read, is not UTF-8 or too short, or a batch of more windows
                than there are.
            MissingError: this Python comes without its documentation.
        """
        s = settings_of("lstm", self.sizes, size)
        ids_N, name = _corpus.identified(self._path)
        train, held_out = _windows.split(ids_N, s["context"], name)
        return Job(
            model=seeded(lambda: self._network(s), _recurrent.fill_of(s["hidden"]), seed, device),
            loss=_loss.sum_loss,
            optimizer=_adam,
            batch=_windows.batches(train, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=s["context"],
            blocks=["embedding", *(f"layers.{k}" for k in range(s["layers"])), "head"],
            steps_per_epoch=-(-train.samples // global_batch_size),
            held_out=_windows.evaluator(held_out),
        )

    def _network(self, s: Mapping[str, int]) -> nn.Sequential:
        layers = _recurrent.stacked(s["embedding"], s["hidden"], s["layers"], self._cell)
        return nn.Sequential(
            OrderedDict(
                embedding=nn.Embedding(_corpus.VOCABULARY, s["embedding"]),
                layers=nn.Sequential(*layers),
                head=nn.Linear(s["hidden"], _corpus.VOCABULARY),
            )
        )


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=2e-3, eps=1e-6)
