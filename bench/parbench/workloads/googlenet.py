"""googlenet: GoogLeNet, whose blocks look at the image through four convolutions side by side, on synthetic images.

         ┌─ 1x1 ─────────┐
    x ───┼─ 1x1 ── 3x3 ──┼── side by side ──>
         ├─ 1x1 ── 3x3 ──┤      (torchvision's third branch has side 3 where the paper has 5; so has this)
         └─ pool ─ 1x1 ──┘

B samples, C channels, H rows, W columns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from parbench.api import Job, Workload
from parbench.workloads import _conv, _loss, _synthetic, _vision
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

# Table 1 of the paper: channels of the branches (1x1; 1x1 and 3x3; 1x1 and "5x5"; after the pool).
_BLOCKS = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)
_POOL_BEFORE = {0: 3, 2: 3, 7: 2}  # block -> side of the maximum that halves the image before it


@final
class Googlenet(Workload):
    """GoogLeNet with group norms and without its auxiliary classifiers, on images made from the seed."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"thinner": 8, "side": 32, "classes": 4},
        "small": {"thinner": 4, "side": 64, "classes": 10},
        "full": {"thinner": 1, "side": 224, "classes": 1000},
    }
    source: ClassVar[str] = (
        "images generated from the seed; Szegedy et al. 2015, 'Going deeper with convolutions', as torchvision has it, "
        "with group norms for batch norms, without dropout and auxiliary classifiers"
    )
    parameters: ClassVar[Mapping[str, int]] = {"full": 6_624_904}

    def default_batch_size(self, size: str) -> int:
        """Return 8 for a smoke test and else 32."""
        settings_of("googlenet", self.sizes, size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the network and its stream of images.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("googlenet", self.sizes, size)
        return Job(
            model=seeded(lambda: _network(s["thinner"], s["classes"]), _conv.fill, seed, device),
            loss=_loss.sum_loss,
            optimizer=_vision.momentum_sgd,
            batch=_synthetic.images(3, s["side"], s["classes"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=["stem", *(f"blocks.{k}" for k in range(len(_BLOCKS))), "head"],
        )


def _network(thinner: int, classes: int) -> nn.Sequential:
    wide, narrow = 192 // thinner, 64 // thinner
    stem = OrderedDict(
        first=_conv.normalised(3, narrow, 7, stride=2),
        pool=_halving(3),
        second=_conv.normalised(narrow, narrow, 1),
        third=_conv.normalised(narrow, wide, 3),
    )
    blocks, inputs = [], wide
    for k, channels in enumerate(_BLOCKS):
        branches = Branches(inputs, [c // thinner for c in channels])
        pool = _POOL_BEFORE.get(k)
        blocks.append(nn.Sequential(OrderedDict(pool=_halving(pool), branches=branches)) if pool else branches)
        inputs = branches.outputs
    return nn.Sequential(
        OrderedDict(stem=nn.Sequential(stem), blocks=nn.Sequential(*blocks), head=_conv.mean_head(inputs, classes))
    )


def _halving(side: int) -> nn.MaxPool2d:
    return nn.MaxPool2d(side, 2, ceil_mode=True)


@final
class Branches(nn.Module):
    """x_BCHW -> four views of it, one behind the other along the channels.

    Args:
        inputs: channels that come in.
        channels: of the branches, six numbers as in the paper's table.
    """

    def __init__(self, inputs: int, channels: list[int]) -> None:
        super().__init__()
        plain, narrow3, wide3, narrow5, wide5, pooled = channels
        self.plain = _conv.normalised(inputs, plain, 1)
        self.near = nn.Sequential(_conv.normalised(inputs, narrow3, 1), _conv.normalised(narrow3, wide3, 3))
        self.far = nn.Sequential(_conv.normalised(inputs, narrow5, 1), _conv.normalised(narrow5, wide5, 3))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), _conv.normalised(inputs, pooled, 1))
        self.outputs = plain + wide3 + wide5 + pooled

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Look four times."""
        return torch.cat([self.plain(x_BCHW), self.near(x_BCHW), self.far(x_BCHW), self.pooled(x_BCHW)], dim=1)
