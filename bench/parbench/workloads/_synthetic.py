"""Synthetic samples of any shape: noise around the pattern of a class, so that a model of any kind can learn them.

B samples, C classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from parbench.api import Batch
from parbench.errors import UsageError
from parbench.workloads import _data

_COARSE = 4  # cells of a pattern along each side
_PATTERNS_SEED = 0  # what the classes are belongs to the data: it is the same for every run


def checked(batch_size: int) -> int:
    """Return the size of a batch.

    Raises:
        UsageError: it holds no sample.
    """
    if batch_size < 1:
        raise UsageError(f"global batch size {batch_size} holds no sample; give 1 or more")
    return batch_size


def images(channels: int, side: int, classes: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Return step -> images (B, channels, side, side) and their classes (B,)."""
    coarse = min(_COARSE, side)
    random = _data.generator(_PATTERNS_SEED, "patterns")
    patterns = torch.randn(classes, channels, coarse, coarse, generator=random)

    def shown(classes_B: Tensor) -> Tensor:
        return F.interpolate(patterns[classes_B], size=(side, side))

    return _stream((channels, side, side), classes, shown, batch_size, seed)


def vectors(width: int, classes: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Return step -> vectors (B, width) and their classes (B,)."""
    patterns = torch.randn(classes, width, generator=_data.generator(_PATTERNS_SEED, "patterns"))
    return _stream((width,), classes, lambda classes_B: patterns[classes_B], batch_size, seed)


def _stream(
    shape: tuple[int, ...], classes: int, shown: Callable[[Tensor], Tensor], batch_size: int, seed: int
) -> Callable[[int], Batch]:
    checked(batch_size)

    def batch(step: int) -> Batch:
        random = _data.generator(seed, "samples", step)
        classes_B = torch.randint(0, classes, (batch_size,), generator=random)
        noise = torch.rand(batch_size, *shape, generator=random).sub_(0.5)  # a uniform draw takes a third of a normal's
        return Batch(inputs=noise.mul_(3.5).add_(shown(classes_B)), targets=classes_B)

    return batch
