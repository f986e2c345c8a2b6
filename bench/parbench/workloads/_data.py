"""Sample order: every sample exactly once per epoch, in an order drawn from (seed, epoch), reachable at any step.

    step       0    1    2  |  3    4    5  |  6 ...      150 samples in batches of 64:
    samples   64   64   22  | 64   64   22  | 64 ...      the last batch of an epoch is smaller, never dropped or padded

N samples, B samples of one batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from parbench.api import Batch
from parbench.errors import UsageError

# Which samples are held out belongs to the data set: it is the same for every run, whatever the run's seed.
_SPLIT_SEED = 0


def generator(seed: int, *stream: int | str) -> torch.Generator:
    """Return a CPU generator of its own for `stream`, such as ("epoch", 3).

    torch's CPU generator looks at the lower 32 bits of a seed only, so seed and stream are hashed into those.
    """
    text = "/".join(str(part) for part in (seed, *stream))
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def split(samples: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the train samples and of the held-out fifth; the same split for every run."""
    order_N = torch.randperm(samples, generator=generator(_SPLIT_SEED, "split"))
    train = samples - samples // 5
    return order_N[:train], order_N[train:]


@final
class Epochs:
    """The order in which train samples are visited; remembers the current epoch's permutation."""

    def __init__(self, samples: int, batch_size: int, seed: int) -> None:
        """Check the batch size against the data.

        Args:
            samples: train samples.
            batch_size: samples of a step, over all ranks.
            seed: decides every epoch's permutation.

        Raises:
            UsageError: a batch would be empty or hold a sample twice.
        """
        if not 1 <= batch_size <= samples:
            raise UsageError(
                f"global batch size {batch_size} does not fit the data; allowed: 1 to {samples} (its train samples); "
                "choose a smaller batch or more data"
            )
        self.samples = samples
        self.batch_size = batch_size
        self.steps_per_epoch = -(-samples // batch_size)
        self._seed = seed
        self._latest = (-1, torch.empty(0, dtype=torch.int64))  # epoch and its order

    def indices(self, step: int) -> Tensor:
        """Return the indices of the samples of `step`: int64, B of them, or fewer at the end of an epoch."""
        epoch, index = divmod(step, self.steps_per_epoch)
        latest, order_N = self._latest  # read and written as one: several threads may ask
        if latest != epoch:
            order_N = torch.randperm(self.samples, generator=generator(self._seed, "epoch", epoch))
            self._latest = (epoch, order_N)
        return order_N[index * self.batch_size : (index + 1) * self.batch_size]


def batches(train: Batch, batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Return step -> global batch for train samples that are in memory in the form the model takes.

    Raises:
        UsageError: `batch_size` is no size for this data.
    """
    order = Epochs(train.samples, batch_size, seed)

    def batch(step: int) -> Batch:
        index_B = order.indices(step)
        return Batch(inputs=train.inputs[index_B], targets=train.targets[index_B])

    return batch


def skewed_tokens(context: int, vocabulary: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    """Return step -> tokens drawn from (seed, step), and those one place later: a few are frequent, most are rare.

    Raises:
        UsageError: a batch would be empty.
    """
    if batch_size < 1:
        raise UsageError(f"global batch size {batch_size} holds no sample; give 1 or more")

    def batch(step: int) -> Batch:
        uniform = torch.rand(batch_size, context + 1, generator=generator(seed, "tokens", step))
        # Cubed, so that a tenth of the vocabulary makes nearly half of the tokens.
        tokens = (uniform**3 * vocabulary).long().clamp_(max=vocabulary - 1)
        return Batch(inputs=tokens[:, :-1].contiguous(), targets=tokens[:, 1:].contiguous())

    return batch
