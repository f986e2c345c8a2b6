"""vit: a vision transformer, up to ViT-B/16, on synthetic images: patches of an image are its positions.

B samples, C channels, H rows, W columns, T positions (patches and one for the class), D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from parbench.api import Job, Workload
from parbench.workloads import _gpt_model, _loss, _synthetic
from parbench.workloads._optimizer import adamw
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

_CHANNELS = 3


@final
class Vit(Workload):
    """ViT without dropout, on images made from the seed: every class is a coarse pattern under noise."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "width": 32, "heads": 4, "side": 16, "patch": 8, "classes": 4},
        "small": {"layers": 4, "width": 128, "heads": 4, "side": 32, "patch": 4, "classes": 10},
        "b16": {"layers": 12, "width": 768, "heads": 12, "side": 224, "patch": 16, "classes": 1000},
    }
    source: ClassVar[str] = (
        "images generated from the seed; Dosovitskiy et al. 2021, 'An Image is Worth 16x16 Words', without dropout; "
        "parameters as torchvision publishes them"
    )
    parameters: ClassVar[Mapping[str, int]] = {"b16": 86_567_656}

    def default_batch_size(self, size: str) -> int:
        """Return 8 for a smoke test and else 32."""
        settings_of("vit", self.sizes, size)
        return 8 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of images.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("vit", self.sizes, size)
        shape = _gpt_model.GptShape(
            layers=s["layers"],
            width=s["width"],
            heads=s["heads"],
            context=(s["side"] // s["patch"]) ** 2 + 1,
            vocabulary=s["classes"],
            tied=False,
        )
        return Job(
            model=seeded(lambda: _network(shape, s["patch"]), _gpt_model.fill_of(shape.layers), seed, device),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_synthetic.images(_CHANNELS, s["side"], s["classes"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=_gpt_model.block_names(shape),
            shardings={p: cut for p, cut in _gpt_model.SHARDINGS.items() if p.startswith("blocks.")},
            whole=_gpt_model.whole(shape),
        )


def _network(shape: _gpt_model.GptShape, patch: int) -> nn.Sequential:
    model = nn.Sequential()
    model.add_module("embedding", _Patches(shape, patch))
    model.add_module("blocks", nn.Sequential(*(_gpt_model.Block(shape, causal=False) for _ in range(shape.layers))))
    model.add_module("head", _Head(shape))
    return model


@final
class _Patches(nn.Module):
    """images_BCHW -> x_BTD: what is in each patch, after a position for the class, plus where each stands."""

    def __init__(self, shape: _gpt_model.GptShape, patch: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(_CHANNELS, shape.width, patch, patch)
        self.of_class = nn.Parameter(torch.empty(1, 1, shape.width))
        self.positions = nn.Parameter(torch.empty(1, shape.context, shape.width))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """Cut, project, and add the positions."""
        patches_BTD = self.patches(images_BCHW).flatten(2).transpose(1, 2)
        of_class = self.of_class.to(patches_BTD.dtype).expand(patches_BTD.shape[0], -1, -1)
        return torch.cat([of_class, patches_BTD], dim=1) + self.positions


@final
class _Head(nn.Module):
    """x_BTD -> logits of every class, from the position that is for them."""

    def __init__(self, shape: _gpt_model.GptShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.logits = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Normalise, take the first position, project."""
        return self.logits(self.norm(x_BTD)[:, 0])  # type: ignore[no-any-return]
