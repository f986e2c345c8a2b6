"""resnet: residual networks, ResNet-18 and ResNet-50 for ImageNet and the ResNet-20 for CIFAR, on synthetic images.

    x ──┬─ conv ─ norm ─ relu ─ conv ─ norm ─ + ─ relu ──>      three convolutions in a bottleneck (ResNet-50)
        └──────── x, or fitted to the shape ──┘

B samples, C channels, H rows, W columns.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Job, Workload
from parbench.workloads import _conv, _loss, _synthetic, _vision
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_IMAGENET_STAGES: Mapping[int, tuple[int, ...]] = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # table 1 of the paper
_WIDENS = 4  # a bottleneck's last convolution


@final
class Resnet(Workload):
    """ResNet with group norms, on images made from the seed: every class is a coarse pattern under noise."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"depth": 8, "width": 8, "side": 16, "classes": 4},
        "small": {"depth": 20, "width": 16, "side": 32, "classes": 10},
        "18": {"depth": 18, "width": 64, "side": 224, "classes": 1000},
        "50": {"depth": 50, "width": 64, "side": 224, "classes": 1000},
    }
    source: ClassVar[str] = (
        "images generated from the seed; He et al. 2016, 'Deep Residual Learning for Image Recognition', with group "
        "norms for batch norms (small is its ResNet-20 for CIFAR); parameters as torchvision publishes them"
    )
    parameters: ClassVar[Mapping[str, int]] = {"18": 11_689_512, "50": 25_557_032}

    def default_batch_size(self, size: str) -> int:
        """Return 8 for a smoke test and else 32."""
        settings_of("resnet", self.sizes, size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the network and its stream of images.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("resnet", self.sizes, size)
        model = seeded(lambda: network(s["depth"], s["width"], s["classes"]), _conv.fill, seed, device)
        return Job(
            model=model,
            loss=_loss.sum_loss,
            optimizer=_vision.momentum_sgd,
            batch=_synthetic.images(3, s["side"], s["classes"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=["stem", *(f"blocks.{k}" for k in range(len(model.blocks))), "head"],
        )


def network(depth: int, width: int, classes: int) -> _Network:
    """Build the network of 18 or 50 layers for ImageNet, or of 6 n + 2 for CIFAR.

    Args:
        depth: layers with weights.
        width: channels of the first stage.
        classes: outputs.
    """
    stages = _IMAGENET_STAGES.get(depth)
    if stages is None:
        stem = _conv.normalised(3, width, 3)
        return _Network(stem, list(_blocks(((depth - 2) // 6,) * 3, width, bottleneck=False, padded=True)), classes)
    parts = OrderedDict(conv=_conv.normalised(3, width, 7, stride=2), pool=nn.MaxPool2d(3, 2, 1))
    return _Network(nn.Sequential(parts), list(_blocks(stages, width, bottleneck=depth >= 50, padded=False)), classes)


def _blocks(stages: tuple[int, ...], width: int, *, bottleneck: bool, padded: bool) -> Iterator[Residual]:
    inputs = width
    for stage, count in enumerate(stages):
        inner = width << stage
        for k in range(count):
            block = Residual(inputs, inner, 2 if stage and not k else 1, bottleneck=bottleneck, padded=padded)
            inputs = block.outputs
            yield block


@final
class _Network(nn.Module):
    """images_BCHW -> logits: a stem, residual blocks, and a head on the mean over all places."""

    def __init__(self, stem: nn.Module, blocks: list[Residual], classes: int) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = nn.Sequential(*blocks)
        self.head = _conv.mean_head(blocks[-1].outputs, classes)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Return the logits of every class."""
        return self.head(self.blocks(self.stem(images_BCHW)))  # type: ignore[no-any-return]


@final
class Residual(nn.Module):
    """Two convolutions, or three in a bottleneck, added to what comes in.

    Args:
        inputs: channels that come in.
        inner: channels of the convolutions of side 3.
        stride: by which the image shrinks.
        bottleneck: whether convolutions of side 1 lie around one of side 3.
        padded: whether what comes in is fitted by zeros (the paper's option A), else by a convolution of side 1 (B).
    """

    def __init__(self, inputs: int, inner: int, stride: int, *, bottleneck: bool, padded: bool) -> None:
        super().__init__()
        self.outputs = inner * (_WIDENS if bottleneck else 1)
        layers = (
            [
                _conv.normalised(inputs, inner, 1),
                _conv.normalised(inner, inner, 3, stride),
                _conv.normalised(inner, self.outputs, 1, relu=False),
            ]
            if bottleneck
            else [_conv.normalised(inputs, inner, 3, stride), _conv.normalised(inner, inner, 3, relu=False)]
        )
        self.layers = nn.Sequential(*layers)
        self.fit: nn.Module = nn.Identity()
        if stride > 1 or inputs != self.outputs:
            fitted = _conv.normalised(inputs, self.outputs, 1, stride, relu=False)
            self.fit = _Padded(stride, self.outputs - inputs) if padded else fitted

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Add, then bend."""
        return F.relu(self.layers(x_BCHW) + self.fit(x_BCHW))


@final
class _Padded(nn.Module):
    """Every `stride`-th place, and channels of zeros added: it has no parameters."""

    def __init__(self, stride: int, added: int) -> None:
        super().__init__()
        self.stride, self.added = stride, added

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Fit the image to the block's result."""
        return F.pad(x_BCHW[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added))
