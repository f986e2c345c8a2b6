"""vgg: VGG-16 and VGG-19, convolutions of side 3 and three wide layers, on synthetic images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, final

import torch
from torch import nn

from parbench.api import Job, Workload
from parbench.workloads import _conv, _loss, _synthetic
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

# Table 1 of the paper: convolutions in each of the five stages, after which the image is halved.
_STAGES: Mapping[int, tuple[int, ...]] = {11: (1, 1, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_WIDENINGS = (1, 2, 4, 8, 8)


@final
class Vgg(Workload):
    """VGG without dropout, on images made from the seed: every class is a coarse pattern under noise."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"depth": 11, "width": 4, "hidden": 32, "side": 32, "classes": 4},
        "small": {"depth": 11, "width": 16, "hidden": 256, "side": 32, "classes": 10},
        "16": {"depth": 16, "width": 64, "hidden": 4096, "side": 224, "classes": 1000},
        "19": {"depth": 19, "width": 64, "hidden": 4096, "side": 224, "classes": 1000},
    }
    source: ClassVar[str] = (
        "images generated from the seed; Simonyan and Zisserman 2015, 'Very Deep Convolutional Networks for "
        "Large-Scale Image Recognition', without dropout; parameters as torchvision publishes them"
    )
    parameters: ClassVar[Mapping[str, int]] = {"16": 138_357_544, "19": 143_667_240}

    def default_batch_size(self, size: str) -> int:
        """Return 8 for a smoke test and else 32."""
        settings_of("vgg", self.sizes, size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the network and its stream of images.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("vgg", self.sizes, size)
        layers = [
            _conv.Plain(s["width"] * widening, 3, 1, 1, (2, 2) if k == count - 1 else None)
            for count, widening in zip(_STAGES[s["depth"]], _WIDENINGS, strict=True)
            for k in range(count)
        ]
        flat = layers[-1].channels * (s["side"] // 2 ** len(_WIDENINGS)) ** 2
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


def _sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)  # the paper's; without norms more of it diverges
