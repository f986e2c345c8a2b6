"""Parts of convolutional networks: normalised convolutions, plain stacks of convolutions, their first weights.

B samples, C channels, H rows, W columns.

Every network here normalises over groups of channels of one sample (Wu and He 2018, "Group Normalization") where its
paper normalises over the batch (Ioffe and Szegedy 2015). Both have a weight and a bias per channel, so the published
number of parameters stays; but a batch norm computes something else for every way of cutting a batch into shares, and
then no strategy would compute what one process does. Dropout is left out for the same reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parbench.workloads._vision import PlaceMean

_CHANNELS_OF_A_GROUP = 16  # table 3 of Wu and He: as good as 32 groups


def norm(channels: int) -> nn.GroupNorm:
    """Return a norm over groups of 16 channels, or over all of them where there are fewer."""
    return nn.GroupNorm(channels // _CHANNELS_OF_A_GROUP if channels % _CHANNELS_OF_A_GROUP == 0 else 1, channels)


def normalised(
    inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int | None = None, *, relu: bool = True
) -> nn.Sequential:
    """Return a convolution without bias, its norm and a ReLU.

    Args:
        inputs: channels that come in.
        outputs: channels that go out.
        kernel: side of the filter.
        stride: places it moves by.
        padding: zeros around the image; None keeps its size at stride 1.
        relu: whether the ReLU is there.
    """
    padding = kernel // 2 if padding is None else padding
    parts: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)),
        ("norm", norm(outputs)),
    ]
    return nn.Sequential(OrderedDict([*parts, ("relu", nn.ReLU())] if relu else parts))


def mean_head(channels: int, classes: int) -> nn.Sequential:
    """Return (B, C, H, W) -> (B, classes): the mean over all places, and one layer."""
    return nn.Sequential(OrderedDict(mean=PlaceMean(), linear=nn.Linear(channels, classes)))


@dataclass(frozen=True, slots=True)
class Plain:
    """A convolution with bias and a ReLU, and a maximum over places after it.

    Attributes:
        channels: that go out.
        kernel: side of the filter.
        stride: places it moves by.
        padding: zeros around the image.
        pool: side and stride of the maximum; None has none.
    """

    channels: int
    kernel: int
    stride: int
    padding: int
    pool: tuple[int, int] | None = None


def stacked(channels: int, layers: Sequence[Plain], flat: int, hidden: int, classes: int) -> nn.Sequential:
    """Return convolutions one after the other, two hidden layers and a head, as VGG and AlexNet are.

    Args:
        channels: of the images.
        layers: the convolutions.
        flat: numbers that the last of them gives per image.
        hidden: width of both hidden layers.
        classes: that the head tells apart.
    """
    features, inputs = [], channels
    for layer in layers:
        parts: list[tuple[str, nn.Module]] = [
            ("conv", nn.Conv2d(inputs, layer.channels, layer.kernel, layer.stride, layer.padding)),
            ("relu", nn.ReLU()),
        ]
        if layer.pool:
            parts.append(("pool", nn.MaxPool2d(*layer.pool)))
        features.append(nn.Sequential(OrderedDict(parts)))
        inputs = layer.channels
    first = OrderedDict(flatten=nn.Flatten(), linear=nn.Linear(flat, hidden), relu=nn.ReLU())
    second = OrderedDict(linear=nn.Linear(hidden, hidden), relu=nn.ReLU())
    return nn.Sequential(
        OrderedDict(
            features=nn.Sequential(*features),
            hidden=nn.Sequential(nn.Sequential(first), nn.Sequential(second)),
            head=nn.Linear(hidden, classes),
        )
    )


# The hidden layers hold most of the parameters of a stack, and are what tensor parallelism can cut.
STACKED_SHARDINGS: Mapping[str, str] = {"hidden.0.linear.*": "column", "hidden.1.linear.weight": "row"}


def stacked_blocks(layers: int) -> list[str]:
    """Return the blocks of a stack of so many convolutions, in forward order."""
    return [*(f"features.{k}" for k in range(layers)), "hidden.0", "hidden.1", "head"]


def fill(name: str, value: Tensor, random: torch.Generator) -> None:
    """Write first weights: norms 1, biases 0, a head that guesses, and variances that a ReLU keeps (He et al. 2015)."""
    if name.endswith("bias"):
        value.zero_()
    elif name.endswith("norm.weight"):
        value.fill_(1.0)
    elif name.startswith("head"):
        value.normal_(0.0, 0.01, generator=random)
    else:
        value.normal_(0.0, (2.0 / value[0].numel()) ** 0.5, generator=random)
