"""Windows of a text: samples of T characters that do not overlap, the last tenth of the text held out.

    |<------------- train: windows of T characters, permuted per epoch ------------->|<-- held out: last tenth -->|

N characters, W windows, T characters of a window, B samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from parbench.api import Batch
from parbench.errors import UsageError
from parbench.workloads import _data, _loss

_HELD_OUT = 128  # windows, spread over the held-out part; all of it would take longer than it tells
_CHUNK = 32


def split(ids_N: Tensor, context: int, name: str) -> tuple[Batch, Batch]:
    """Return the windows to train on and those held out.

    Raises:
        UsageError: the text, which messages call `name`, is too short.
    """
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


def spread(windows: Batch, most: int) -> Batch:
    """Return at most `most` windows at equal distances, as tokens."""
    kept = min(most, windows.samples)
    index_W = torch.arange(kept) * windows.samples // kept
    return _tokens(windows, index_W)


def batches(windows: Batch, batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Return step -> global batch of windows, as tokens.

    Raises:
        UsageError: `batch_size` is no size for this text.
    """
    order = _data.Epochs(windows.samples, batch_size, seed)
    return lambda step: _tokens(windows, order.indices(step))


def _tokens(windows: Batch, index_B: Tensor) -> Batch:
    # One byte per character is kept; only what is trained on becomes the int64 that embeddings and losses take.
    return Batch(inputs=windows.inputs[index_B].long(), targets=windows.targets[index_B].long())


def evaluator(held_out: Batch) -> Callable[[nn.Module], Mapping[str, float]]:
    """Return model -> loss and accuracy on some of the windows that are held out."""
    return _loss.evaluator(spread(held_out, _HELD_OUT), _CHUNK)
