"""Planted faults: a regression problem that is wrong in exactly one way, to see which law of workloads notices."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from parbench.api import Batch, Job, Workload

FAULTS = (
    "none",
    "other batches",
    "other weights",
    "global RNG",
    "global RNG of Python",
    "call order",
    "mean loss",
    "empty pattern",
    "unknown cut",
    "block missing",
    "activation missing",
    "blocks overlap",
    "block twice",
    "no such block",
    "wrong unit",
    "wrong units per sample",
    "does not learn",
    "wrong count",
    "parameter on the CPU",
    "buffer on the CPU",
    "empty share",
    "raises on meta",
    "raises",
    "no sentence",
)
_BUILDS = itertools.count()


@final
class PlantedWorkload(Workload):
    """Learns a linear map, but for one planted fault.

    Args:
        fault: which one.
    """

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {"smoke": {"width": 8}, "small": {"width": 16}}
    source: ClassVar[str] = "numbers drawn from the seed"
    parameters: ClassVar[Mapping[str, int]] = {"smoke": 40, "small": 80}

    def __init__(self, fault: str = "none") -> None:
        if fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, got {fault}")
        self.fault = fault
        if fault == "wrong count":
            vars(self)["parameters"] = {"smoke": 40, "small": 81}

    def unsupported(self) -> str | None:
        return "no" if self.fault == "no sentence" else None

    def default_batch_size(self, size: str) -> int:
        return 16

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        fault, width, build = self.fault, self.sizes[size]["width"], next(_BUILDS)
        if fault == "raises" or (fault == "raises on meta" and device.type == "meta"):
            raise RuntimeError("no luck")
        if fault == "global RNG":
            torch.rand(1)
        if fault == "global RNG of Python":
            import random

            random.random()
        # A plain nn.Linear draws its weights from the global random state, and that is a law of its own.
        first, last = (skip_init(nn.Linear, *shape, bias=False) for shape in ((4, width), (width, 1)))
        model = nn.Sequential(first, nn.Tanh(), last)
        if fault == "buffer on the CPU":
            model[1].register_buffer("scale", torch.ones(1))
        else:
            model.to(device)
        if fault == "buffer on the CPU":
            model[0].to(device)
            model[2].to(device)
        _fill(model, seed + (build if fault == "other weights" else 0))
        if fault == "parameter on the CPU":
            model[2].weight = nn.Parameter(torch.ones(1, width))
        calls = itertools.count()

        def batch(step: int) -> Batch:
            if fault == "other batches":
                step += 1000 * build
            if fault == "call order":
                step = next(calls)
            x = torch.randn(global_batch_size, 4, generator=torch.Generator().manual_seed(1000 * seed + step))
            return Batch(inputs=x, targets=x.sum(1, keepdim=True) / 4)

        def loss(y: Tensor, share: Batch) -> Tensor:
            found = (y - share.targets).square().sum()
            if fault == "mean loss":
                return found / max(1, share.samples)
            if fault == "empty share" and not share.samples:
                return model[0].weight.sum()
            return found

        blocks = {
            "block missing": ["0", "1"],
            "activation missing": ["0", "2"],
            "blocks overlap": ["0", "1", "2", "2.weight"],
            "block twice": ["0", "1", "2", "2"],
            "no such block": ["0", "1", "3"],
        }.get(fault, ["0", "1", "2"])
        shardings = {"0.weight": "column", "2.weight": "row"}
        if fault == "empty pattern":
            shardings["3.*"] = "row"
        if fault == "unknown cut":
            shardings["2.weight"] = "diagonal"
        return Job(
            model=model,
            loss=loss,
            optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.0 if fault == "does not learn" else 0.01),
            batch=batch,
            unit="tokens" if fault == "wrong unit" else "samples",
            units_per_sample=2 if fault == "wrong units per sample" else 1,
            blocks=blocks,
            shardings=shardings,
        )


def _fill(model: nn.Module, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.device.type != "meta":
                p.copy_(torch.randn(p.shape, generator=random) / 3)
