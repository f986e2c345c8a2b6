"""alexnet: AlexNet in one tower, five convolutions and three wide layers, on synthetic images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, final

import torch
from torch import nn

from parbench.api import Job, Workload
from parbench.workloads import _conv, _loss, _synthetic
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_POOL = (3, 2)


@final
class Alexnet(Workload):
    """AlexNet without dropout, on images made from the seed: every class is a coarse pattern under noise."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"width": 8, "hidden": 32, "side": 63, "classes": 4},
        "small": {"width": 16, "hidden": 256, "side": 63, "classes": 10},
        "full": {"width": 64, "hidden": 4096, "side": 224, "classes": 1000},
    }
    source: ClassVar[str] = (
        "images generated from the seed; the network of one tower in Krizhevsky 2014, 'One weird trick for "
        "parallelizing convolutional neural networks', without dropout; parameters as torchvision publishes them"
    )
    parameters: ClassVar[Mapping[str, int]] = {"full": 61_100_840}

    def default_batch_size(self, size: str) -> int:
        """Return 8 for a smoke test and else 64."""
        settings_of("alexnet", self.sizes, size)
        return 8 if size == "smoke" else 64

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the network and its stream of images.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("alexnet", self.sizes, size)
        width = s["width"]
        layers = [
            _conv.Plain(width, 11, 4, 2, _POOL),
            _conv.Plain(3 * width, 5, 1, 2, _POOL),
            _conv.Plain(6 * width, 3, 1, 1),
            _conv.Plain(4 * width, 3, 1, 1),
            _conv.Plain(4 * width, 3, 1, 1, _POOL),
        ]
        flat = 4 * width * _rows(s["side"]) ** 2
        return Job(
            model=seeded(lambda: _conv.stacked(3, layers, flat, s["hidden"], s["classes"]), _conv.fill, seed, device),
            loss=_loss.sum_loss,
            optimizer=_sgd,
            batch=_synthetic.images(3, s["side"], s["classes"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=_conv.stacked_blocks(len(layers)),
            shardings=_conv.STACKED_SHARDINGS,
        )


def _rows(side: int) -> int:
    """Return the rows that are left of an image: 6 of 224."""
    rows = (side + 2 * 2 - 11) // 4 + 1
    for _ in range(3):
        rows = (rows - _POOL[0]) // _POOL[1] + 1
    return rows


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
