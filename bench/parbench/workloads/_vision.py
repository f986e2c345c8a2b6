"""Image classifiers: a multi-layer perceptron and a small convolutional network, chains of named blocks.

B samples, F flattened pixels, D width, C image channels, H rows, W columns.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import final

import torch
from torch import Tensor, nn

from parbench.workloads._weights import seeded

CHUNK = 256  # samples evaluated at a time


def mlp(pixels: int, width: int, layers: int, classes: int, seed: int, device: torch.device) -> nn.Sequential:
    """Build (B, pixels) -> (B, classes): `layers` hidden layers of `width` and a head."""

    def build() -> nn.Sequential:
        sizes = [pixels] + [width] * layers
        hidden = [_layer(nn.Linear(m, n)) for m, n in itertools.pairwise(sizes)]
        return nn.Sequential(OrderedDict(layers=nn.Sequential(*hidden), head=nn.Linear(width, classes)))

    return seeded(build, _fill, seed, device)


def cnn(channels: int, filters: int, classes: int, seed: int, device: torch.device) -> nn.Sequential:
    """Build (B, channels, H, W) -> (B, classes) for images of any size: three convolutions and a head.

    Two of them halve the image and double the filters; the head sees the mean over all places that are left. A mean and
    strides, unlike adaptive pooling, have deterministic gradients on GPUs.
    """

    def build() -> nn.Sequential:
        stages = [
            _layer(nn.Conv2d(channels, filters, 3, padding=1)),
            _layer(nn.Conv2d(filters, 2 * filters, 3, stride=2, padding=1)),
            _layer(nn.Conv2d(2 * filters, 4 * filters, 3, stride=2, padding=1)),
        ]
        head = nn.Sequential(OrderedDict(mean=PlaceMean(), linear=nn.Linear(4 * filters, classes)))
        return nn.Sequential(OrderedDict(layers=nn.Sequential(*stages), head=head))

    return seeded(build, _fill, seed, device)


def blocks(layers: int) -> list[str]:
    """Return the names of the blocks of a model with this many hidden layers, in forward order."""
    return [*(f"layers.{k}" for k in range(layers)), "head"]


def mlp_shardings(layers: int) -> Mapping[str, str]:
    """Return how tensor parallelism cuts the hidden layers: by column, by row, by column, ... in pairs.

    A row-cut layer needs the column-cut one before it: a last layer without partner and the head stay whole.
    """
    cuts: dict[str, str] = {}
    for k in range(0, layers - 1, 2):
        cuts[f"layers.{k}.linear.*"] = "column"
        cuts[f"layers.{k + 1}.linear.weight"] = "row"  # its bias is added once, after the sum: it stays whole
    return cuts


def momentum_sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of the image workloads."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@final
class PlaceMean(nn.Module):
    """The mean over rows and columns: (B, C, H, W) -> (B, C)."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Average over the last two dimensions."""
        return images_BCHW.mean(dim=(-2, -1))


def _layer(linear: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(linear=linear, relu=nn.ReLU()))


def _fill(name: str, value: Tensor, random: torch.Generator) -> None:
    if name.endswith("bias"):
        value.zero_()
    elif name.startswith("head"):
        value.normal_(0.0, 0.01, generator=random)  # nearly equal outputs: the first loss is ln(classes)
    else:
        value.normal_(0.0, (2.0 / value[0].numel()) ** 0.5, generator=random)  # He: keeps the variance through a ReLU
