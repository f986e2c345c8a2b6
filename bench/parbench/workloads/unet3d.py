"""unet3d: a U-Net on volumes, as one chain of blocks with which skipped tensors travel, on synthetic blobs.

    volume ─ down 0 ─ down 1 ─ ... ─ bottom ─ ... ─ up 1 ─ up 0 ─ head ─> two logits per voxel
                └── stash ────────── (passes by) ────── pop ─┘

B samples, C channels, D slices, H rows, W columns; F channels of the first block.
Architecture and loss: Zhu et al. 2020, "LAMP: Large Deep Nets with Automated Model Parallelism for Image Segmentation":
the first convolution halves the volume, channels double from level to level, Dice plus half a focal loss.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.workloads import _conv, _data, _synthetic
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

Value = tuple[Tensor, ...]

_MOST_CHANNELS = 1024
_BLOBS = 2
_HELD_OUT = 8
_FOCUS = 2  # exponent of Lin et al. 2017, "Focal Loss for Dense Object Detection"


@final
class Unet3d(Workload):
    """Segmentation of bright blobs in noise; judged by the Dice coefficient on volumes that are held out."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"filters": 4, "depth": 2, "side": 8},
        "small": {"filters": 8, "depth": 3, "side": 32},
        "lamp32": {"filters": 32, "depth": 4, "side": 64},
        "lamp128": {"filters": 128, "depth": 4, "side": 128},
    }
    source: ClassVar[str] = (
        "volumes generated from the seed; the U-Net of Zhu et al. 2020 (LAMP) with group norms for batch norms, at its "
        "numbers of filters and sizes of volumes; the paper states no number of parameters"
    )

    def default_batch_size(self, size: str) -> int:
        """Return 4 volumes."""
        settings_of("unet3d", self.sizes, size)
        return 4

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the network and its stream of volumes.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("unet3d", self.sizes, size)
        depth = s["depth"]
        return Job(
            model=seeded(lambda: _network(s["filters"], depth), _conv.fill, seed, device),
            loss=dice_and_focal,
            optimizer=_rmsprop,
            batch=_volumes(s["side"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=[f"{part}.{k}" for part in ("down", "up") for k in range(depth)] + ["head"],
            held_out=_evaluator(s["side"]),
        )


def channels(filters: int, level: int) -> int:
    """Return the channels of a level: they double until 1024."""
    return min(filters << level, _MOST_CHANNELS)


def _network(filters: int, depth: int) -> nn.Sequential:
    width = [channels(filters, level) for level in range(depth)]
    down = [_Down(width[k - 1] if k else 1, width[k], stash=k < depth - 1) for k in range(depth)]
    # From the bottom up: the last goes back to the size that the first convolution halved, where nothing was stashed.
    up = [_Up(width[k], width[k - 1], pop=True) for k in range(depth - 1, 0, -1)]
    return nn.Sequential(
        OrderedDict(
            down=nn.Sequential(*down),
            up=nn.Sequential(*up, _Up(width[0], width[0], pop=False)),
            head=nn.Conv3d(width[0], 2, 1),
        )
    )


def _twice(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(_convolution(inputs, outputs, stride), _convolution(outputs, outputs))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(OrderedDict(conv=conv, norm=_conv.norm(outputs), relu=nn.ReLU()))


@final
class _Down(nn.Module):
    """(x, what skips) -> (x at half the size, what skips and a copy of it)."""

    def __init__(self, inputs: int, outputs: int, *, stash: bool) -> None:
        super().__init__()
        self.layers = _twice(inputs, outputs, stride=2)
        self.stash = stash

    def forward(self, value: Tensor | Value) -> Tensor | Value:
        """Halve, and stash the result for the way up."""
        x, *skips = (value,) if isinstance(value, Tensor) else value
        x = self.layers(x)
        return _passed(x, [*skips, x] if self.stash else skips)


@final
class _Up(nn.Module):
    """(x, what skips) -> (x at twice the size, what skips without the last, which was mixed in)."""

    def __init__(self, inputs: int, outputs: int, *, pop: bool) -> None:
        super().__init__()
        self.narrow = nn.Conv3d(inputs, outputs, 1)
        self.layers = _twice(2 * outputs if pop else outputs, outputs)
        self.pop = pop

    def forward(self, value: Tensor | Value) -> Tensor | Value:
        """Double, and mix in what was stashed at this size."""
        x, *skips = (value,) if isinstance(value, Tensor) else value
        x = self.narrow(F.interpolate(x, scale_factor=2))
        if self.pop:
            x = torch.cat([x, skips.pop()], dim=1)
        return _passed(self.layers(x), skips)


def _passed(x: Tensor, skips: list[Tensor]) -> Tensor | Value:
    return (x, *skips) if skips else x


def dice(probability_BV: Tensor, truth_BV: Tensor) -> Tensor:
    """Return the soft Dice coefficient of each sample: twice the overlap over the sum of both, from 0 to 1."""
    overlap_B = (probability_BV * truth_BV).sum(1)
    return (2 * overlap_B + 1) / (probability_BV.sum(1) + truth_BV.sum(1) + 1)


def dice_and_focal(outputs: Tensor, share: Batch) -> Tensor:
    """Return the sum over samples of 1 - Dice of the foreground plus half the mean focal loss over voxels.

    Args:
        outputs: (B, 2, D, H, W), logits.
        share: its targets are (B, D, H, W), 1 in the foreground.
    """
    log_B2V = outputs.log_softmax(1).flatten(2)
    truth_BV = share.targets.flatten(1)
    right_BV = log_B2V.gather(1, truth_BV.unsqueeze(1)).squeeze(1)
    focal_B = (-((1 - right_BV.exp()) ** _FOCUS) * right_BV).mean(1)
    return (1 - dice(log_B2V[:, 1].exp(), truth_BV) + 0.5 * focal_B).sum()


def _rmsprop(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=3e-3, eps=1e-6)  # the paper's 1e-3 trains for thousands of epochs


def _volumes(side: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    _synthetic.checked(batch_size)
    return lambda step: blobs(side, batch_size, _data.generator(seed, "volumes", step))


def blobs(side: int, samples: int, random: torch.Generator) -> Batch:
    """Return volumes (samples, 1, D, H, W) with two bright balls in noise, and which voxels lie inside of one."""
    place_S = (torch.arange(side) + 0.5) / side
    centre = torch.rand(samples, _BLOBS, 3, generator=random)
    radius = 0.15 + 0.15 * torch.rand(samples, _BLOBS, 1, 1, 1, generator=random)
    along = (place_S - centre.unsqueeze(-1)).square()  # (samples, blobs, 3, side)
    square = along[:, :, 0, :, None, None] + along[:, :, 1, None, :, None] + along[:, :, 2, None, None, :]
    inside = (square < radius.square()).any(dim=1)
    noise = torch.rand(samples, 1, side, side, side, generator=random).sub_(0.5).mul_(2)
    return Batch(inputs=noise + inside.unsqueeze(1), targets=inside.long())


def _evaluator(side: int) -> Callable[[nn.Module], Mapping[str, float]]:
    """Return model -> loss, fraction of voxels right, and mean Dice coefficient of what is called foreground."""

    def evaluate(model: nn.Module) -> Mapping[str, float]:
        held_out = blobs(side, _HELD_OUT, _data.generator(-1, "held out"))
        device = next(model.parameters()).device
        with torch.no_grad():
            outputs = model(held_out.inputs.to(device)).float().cpu()
        called = outputs.argmax(1)
        return {
            "loss": float(dice_and_focal(outputs, held_out)) / _HELD_OUT,
            "accuracy": float((called == held_out.targets).float().mean()),
            "dice": float(dice(called.flatten(1).float(), held_out.targets.flatten(1)).mean()),
        }

    return evaluate
