"""gpt: a transformer decoder, up to GPT-2 XL, on synthetic tokens; made to measure throughput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import torch

from parbench.api import Job, Workload
from parbench.errors import unknown_name
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
        "gpt2-large": {"layers": 36, "width": 1280, "heads": 20, "context": 1024, "vocabulary": 50257, "tied": 1},
        "gpt2-xl": {"layers": 48, "width": 1600, "heads": 25, "context": 1024, "vocabulary": 50257, "tied": 1},
    }
    source: ClassVar[str] = (
        "tokens generated from the seed; the architecture of GPT-2 (Radford et al. 2019) without dropout, "
        "gpt2 to gpt2-xl with its exact shapes and tied embeddings, and the parameters of the released weights"
    )
    parameters: ClassVar[Mapping[str, int]] = {
        "gpt2": 124_439_808,
        "gpt2-medium": 354_823_168,
        "gpt2-large": 774_030_080,
        "gpt2-xl": 1_557_611_200,
    }

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
            batch=_data.skewed_tokens(shape.context, shape.vocabulary, global_batch_size, seed),
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
