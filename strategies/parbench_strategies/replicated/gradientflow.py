"""gradientflow sends gradients in half precision, in messages of some size, and of large chunks the largest only.

Each part of it can be left out, as in the paper's ablation:  overlap, + fp16 wire, + lazy all-reduce, + CSC
"""

from __future__ import annotations

from typing import final

from parbench.api import Compressor, Paper, Point
from parbench_strategies.compression import Csc, Fp16, Nothing
from parbench_strategies.fusion import Lazy, PerTensor
from parbench_strategies.replicated._engine_point import EnginePoint


@final
class GradientFlow(EnginePoint):
    """Averages gradients by the paper's ladder of techniques, each a switch.

    Args:
        overlap: whether messages go while backward is at work.
        fp16: whether numbers travel in half precision.
        lazy: whether gradients wait until there are `threshold_mb` of them; else each goes by itself.
        csc: whether only chunks of large norm are sent, with momentum correction.
        threshold_mb: of a message, in MiB.
        chunk: elements of a chunk.
        ratio: share of the chunks that is sent.
        warmup_steps: steps in which that share falls from a quarter.
    """

    paper = Paper(
        "Optimizing Network Performance for Distributed DNN Training on GPU Clusters: ImageNet/AlexNet Training in 1.5 "
        "Minutes (Sun et al., 2019)",
        "https://arxiv.org/abs/1902.06855",
    )
    point = Point(fusion="lazy all-reduce", compressor="csc, in half precision")

    def __init__(
        self,
        overlap: bool = True,
        fp16: bool = True,
        lazy: bool = True,
        csc: bool = True,
        threshold_mb: float = 4.0,
        chunk: int = 32768,
        ratio: float = 0.15,
        warmup_steps: int = 0,
    ) -> None:
        compressor: Compressor = Fp16() if fp16 else Nothing()
        if csc:
            compressor = Csc(chunk, ratio, warmup_steps=warmup_steps, half=fp16)
        super().__init__(Lazy(threshold_mb) if lazy else PerTensor(), compressor, overlap=overlap)
