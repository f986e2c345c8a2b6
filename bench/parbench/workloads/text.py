"""text: a character-level GPT on the documentation inside CPython, or on a text file of the user's own.

    |<------------- train: windows of T characters, permuted per epoch ------------->|<-- held out: last tenth -->|

N characters, W windows, T characters of a window, B samples.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import ClassVar, final

import torch
from torch import Tensor

from parbench.api import Batch, Job, Workload
from parbench.errors import UsageError, unknown_name
from parbench.workloads import _corpus, _data, _gpt_model, _loss
from parbench.workloads._optimizer import adamw

HELD_OUT_WINDOWS = 128  # spread over the held-out part; all of it would take longer than it tells
_CHUNK = 32


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
        if self._path is not None or importlib.util.find_spec("pydoc_data"):
            return None
        return "this Python was packaged without its documentation (pydoc_data); give a file: text(path='FILE')"

    def data_hash(self) -> str:
        """Return the SHA-256 of the text's bytes.

        Raises:
            UsageError: the file cannot be read.
            MissingError: this Python comes without its documentation.
        """
        return hashlib.sha256(self._read()).hexdigest()

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
        name = "Python's documentation" if self._path is None else repr(self._path)
        ids_N = _corpus.encode(_corpus.decode(self._read(), name))
        train, held_out = _split(ids_N, shape.context, name)
        return Job(
            model=_gpt_model.build_gpt(shape, seed, device),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_batches(train, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=shape.context,
            blocks=_gpt_model.block_names(shape),
            shardings=_gpt_model.SHARDINGS,
            whole=_gpt_model.whole(shape),
            held_out=_loss.evaluator(_spread(held_out, HELD_OUT_WINDOWS), _CHUNK),
        )

    def _read(self) -> bytes:
        return _corpus.python_docs() if self._path is None else _corpus.read_file(self._path)

    def _shape(self, size: str) -> _gpt_model.GptShape:
        if size not in self.sizes:
            raise unknown_name("size of text", size, self.sizes, "parbench list workloads")
        return _gpt_model.shape_of(self.sizes[size])


def _split(ids_N: Tensor, context: int, name: str) -> tuple[Batch, Batch]:
    needed = 10 * (context + 1)  # a tenth of it holds one window and the character after
    if len(ids_N) < needed:
        raise UsageError(
            f"{name} has {len(ids_N)} characters, but samples of {context} need at least {needed}; "
            "give a longer text or a size with a shorter context"
        )
    train = len(ids_N) - len(ids_N) // 10
    return _windows(ids_N[:train], context), _windows(ids_N[train:], context)


def _windows(ids_N: Tensor, context: int) -> Batch:
    """Cut into windows, views of the text: inputs_WT, and targets_WT one character later."""
    end = (len(ids_N) - 1) // context * context
    return Batch(inputs=ids_N[:end].view(-1, context), targets=ids_N[1 : end + 1].view(-1, context))


def _spread(windows: Batch, most: int) -> Batch:
    """Return at most `most` windows at equal distances, as tokens."""
    kept = min(most, windows.samples)
    index_W = torch.arange(kept) * windows.samples // kept
    return _tokens(windows, index_W)


def _batches(windows: Batch, batch_size: int, seed: int) -> Callable[[int], Batch]:
    order = _data.Epochs(windows.samples, batch_size, seed)
    return lambda step: _tokens(windows, order.indices(step))


def _tokens(windows: Batch, index_B: Tensor) -> Batch:
    # One byte per character is kept; only what is trained on becomes the int64 that embeddings and losses take.
    return Batch(inputs=windows.inputs[index_B].long(), targets=windows.targets[index_B].long())
