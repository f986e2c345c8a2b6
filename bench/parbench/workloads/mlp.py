"""mlp: a multi-layer perceptron of any width on synthetic vectors; made to measure large matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import torch

from parbench.api import Job, Workload
from parbench.workloads import _loss, _synthetic, _vision
from parbench.workloads._sizes import settings_of


@final
class Mlp(Workload):
    """A perceptron on vectors made from the seed: every class is a point under noise."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"inputs": 16, "width": 16, "layers": 2, "classes": 4},
        "small": {"inputs": 64, "width": 256, "layers": 4, "classes": 10},
        "25m": {"inputs": 1024, "width": 2048, "layers": 6, "classes": 1000},
        "134m": {"inputs": 4096, "width": 4096, "layers": 8, "classes": 10},
    }
    source: ClassVar[str] = (
        "vectors generated from the seed; a perceptron with hidden layers and ReLUs (Rumelhart et al. 1986)"
    )

    def default_batch_size(self, size: str) -> int:
        """Return 64."""
        settings_of("mlp", self.sizes, size)
        return 64

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the perceptron and its stream of vectors.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("mlp", self.sizes, size)
        return Job(
            model=_vision.mlp(s["inputs"], s["width"], s["layers"], s["classes"], seed, device),
            loss=_loss.sum_loss,
            optimizer=_vision.momentum_sgd,
            batch=_synthetic.vectors(s["inputs"], s["classes"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=_vision.blocks(s["layers"]),
            shardings=_vision.mlp_shardings(s["layers"]),
        )
