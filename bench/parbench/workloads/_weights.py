"""Initial weights: drawn on the CPU from one generator per seed, so that they are the same on every rank and device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from parbench.workloads._data import generator

M = TypeVar("M", bound=nn.Module)
Fill = Callable[[str, Tensor, torch.Generator], None]


def seeded(build: Callable[[], M], fill: Fill, seed: int, device: torch.device) -> M:
    """Build a model on `device` with weights that depend on `seed` alone.

    Constructors of torch's layers draw from the global random state. On the meta device there is nothing to draw, so
    the model is built there and its parameters are then replaced one by one; tied ones stay tied.

    Args:
        build: makes the model.
        fill: (parameter name, empty CPU tensor, generator) -> None; writes the initial values.
        seed: decides all weights.
        device: where the model shall live; "meta" leaves it as shapes.
    """
    with torch.device("meta"):
        model = build()
    if device.type == "meta":
        return model
    random = generator(seed, "weights")
    filled: dict[nn.Parameter, nn.Parameter] = {}
    for prefix, module in model.named_modules():
        for name, shape_only in list(module.named_parameters(recurse=False)):
            if shape_only not in filled:
                value = torch.empty(shape_only.shape, dtype=shape_only.dtype, device="cpu")
                fill(f"{prefix}.{name}", value, random)
                filled[shape_only] = nn.Parameter(value.to(device))
            setattr(module, name, filled[shape_only])
    return model
