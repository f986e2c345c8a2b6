"""text: a character-level GPT on the documentation inside CPython, or on a text file of the user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import ClassVar, final

import torch

from parbench.api import Job, Workload
from parbench.errors import unknown_name
from parbench.workloads import _corpus, _gpt_model, _loss, _windows
from parbench.workloads._optimizer import adamw


@final
class Text(Workload):
    """Next-character prediction: the windows do not overlap, and the last tenth of the text is held out."""

    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "width": 32, "heads": 4, "context": 32, "vocabulary": _corpus.VOCABULARY, "tied": 0},
        "small": {"layers": 4, "width": 48, "heads": 4, "context": 64, "vocabulary": _corpus.VOCABULARY, "tied": 0},
    }
    source: ClassVar[str] = (
        "the text of help() inside this CPython (pydoc_data.topics; it differs between Python versions, the data hash "
        "tells) or the file given as path; a GPT over characters, without dropout"
    )

    def __init__(self, path: str | None = None) -> None:
        """Remember which text to read.

        Args:
            path: a UTF-8 text file; None takes Python's documentation.
        """
        self._path = path

    def unsupported(self) -> str | None:
        """Say that Python's documentation is missing, where it is needed and left out of this Python."""
        return _corpus.lacking(self._path, "text")

    def data_hash(self) -> str:
        """Return the SHA-256 of the text's bytes.

        Raises:
            UsageError: the file cannot be read.
            MissingError: this Python comes without its documentation.
        """
        return hashlib.sha256(_corpus.read(self._path)).hexdigest()

    def default_batch_size(self, size: str) -> int:
        """Return 32 windows."""
        self._shape(size)
        return 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and the epochs of its train windows.

        Raises:
            UsageError: no such size, a file that cannot be read, is not UTF-8 or too short, or a batch of more windows
                than there are.
            MissingError: this Python comes without its documentation.
        """
        shape = self._shape(size)
        ids_N, name = _corpus.identified(self._path)
        train, held_out = _windows.split(ids_N, shape.context, name)
        return Job(
            model=_gpt_model.build_gpt(shape, seed, device),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_windows.batches(train, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=shape.context,
            blocks=_gpt_model.block_names(shape),
            shardings=_gpt_model.SHARDINGS,
            whole=_gpt_model.whole(shape),
            steps_per_epoch=-(-train.samples // global_batch_size),
            held_out=_windows.evaluator(held_out),
        )

    def _shape(self, size: str) -> _gpt_model.GptShape:
        if size not in self.sizes:
            raise unknown_name("size of text", size, self.sizes, "parbench list workloads")
        return _gpt_model.shape_of(self.sizes[size])
