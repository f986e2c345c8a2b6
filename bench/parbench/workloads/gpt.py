"""gpt: a transformer decoder, up to GPT-2 medium, on synthetic tokens; made to measure throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, final

import torch

from parbench.api import Batch, Job, Workload
from parbench.errors import UsageError, unknown_name
from parbench.workloads import _data, _gpt_model, _loss
from parbench.workloads._optimizer import adamw


@final
class Gpt(Workload):
    """GPT on tokens drawn from (seed, step): a few are frequent, most are rare, and none depends on another."""

    unit: ClassVar[str] = "tokens"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "width": 32, "heads": 4, "context": 32, "vocabulary": 256, "tied": 0},
        "small": {"layers": 4, "width": 128, "heads": 4, "context": 64, "vocabulary": 1024, "tied": 0},
        "25m": {"layers": 6, "width": 512, "heads": 8, "context": 256, "vocabulary": 6144, "tied": 0},
        "gpt2": {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50257, "tied": 1},
        "gpt2-medium": {"layers": 24, "width": 1024, "heads": 16, "context": 1024, "vocabulary": 50257, "tied": 1},
    }
    source: ClassVar[str] = (
        "tokens generated from the seed; the architecture of GPT-2 (Radford et al. 2019) without dropout, "
        "gpt2 and gpt2-medium with its exact shapes and tied embeddings"
    )

    def default_batch_size(self, size: str) -> int:
        """Return 8: one sample for each of eight ranks."""
        self._shape(size)
        return 8

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of synthetic batches.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        shape = self._shape(size)
        return Job(
            model=_gpt_model.build_gpt(shape, seed, device),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_synthetic(shape, global_batch_size, seed),
            unit=self.unit,
            units_per_sample=shape.context,
            blocks=_gpt_model.block_names(shape),
            shardings=_gpt_model.SHARDINGS,
            whole=_gpt_model.whole(shape),
        )

    def _shape(self, size: str) -> _gpt_model.GptShape:
        if size not in self.sizes:
            raise unknown_name("size of gpt", size, self.sizes, "parbench list workloads")
        return _gpt_model.shape_of(self.sizes[size])


def _synthetic(shape: _gpt_model.GptShape, batch_size: int, seed: int) -> Callable[[int], Batch]:
    if batch_size < 1:
        raise UsageError(f"global batch size {batch_size} holds no sample; give 1 or more")

    def batch(step: int) -> Batch:
        random = _data.generator(seed, "tokens", step)
        uniform = torch.rand(batch_size, shape.context + 1, generator=random)
        # Cubed, so that a tenth of the vocabulary makes nearly half of the tokens.
        tokens = (uniform**3 * shape.vocabulary).long().clamp_(max=shape.vocabulary - 1)
        return Batch(inputs=tokens[:, :-1].contiguous(), targets=tokens[:, 1:].contiguous())

    return batch
