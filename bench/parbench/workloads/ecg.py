"""ecg: a transformer on electrocardiograms of 12 leads: convolutions make positions of the series, synthetic rhythms.

B samples, C leads, S measurements of a lead, T positions, D width.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.workloads import _data, _gpt_model, _loss, _synthetic
from parbench.workloads._optimizer import adamw
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

LEADS = 12
_SECONDS = 5.0
_HELD_OUT = 64
# Beats per minute of the rhythms to tell apart, and how much a beat's length varies: slow, normal, fast, irregular.
_RATES = ((35.0, 50.0, 0.02), (60.0, 90.0, 0.02), (110.0, 150.0, 0.02), (60.0, 90.0, 0.4))
# McSharry et al. 2003, "A dynamical model for generating synthetic electrocardiogram signals", table I: where in a beat
# each wave (P, Q, R, S, T) lies, in radians, how high and how wide it is.
_WAVES = ((-math.pi / 3, 1.2, 0.25), (-math.pi / 12, -5.0, 0.1), (0.0, 30.0, 0.1), (math.pi / 12, -7.5, 0.1))
_WAVES_WITH_T = (*_WAVES, (math.pi / 2, 0.75, 0.4))


@final
class Ecg(Workload):
    """Which of four rhythms is it? Beats of five waves, seen by 12 leads, under noise."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 1, "width": 32, "heads": 4, "measurements": 256, "stride": 16},
        "small": {"layers": 3, "width": 64, "heads": 4, "measurements": 1000, "stride": 20},
        "base": {"layers": 12, "width": 768, "heads": 12, "measurements": 2500, "stride": 10},
    }
    source: ClassVar[str] = (
        "five seconds of 12 leads generated from the seed (waves of McSharry et al. 2003); a convolution and a "
        "transformer, after Mileski et al. 2025, whose model is not published: base has the blocks of ViT-B"
    )

    def default_batch_size(self, size: str) -> int:
        """Return 16 for a smoke test and else 32."""
        settings_of("ecg", self.sizes, size)
        return 16 if size == "smoke" else 32

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its stream of series.

        Raises:
            UsageError: no such size, or a batch without samples.
        """
        s = settings_of("ecg", self.sizes, size)
        _synthetic.checked(global_batch_size)
        shape = _gpt_model.GptShape(
            layers=s["layers"],
            width=s["width"],
            heads=s["heads"],
            context=s["measurements"] // s["stride"],
            vocabulary=len(_RATES),
            tied=False,
        )
        held_out = rhythms(_HELD_OUT, s["measurements"], _data.generator(-1, "held out"))
        return Job(
            model=seeded(lambda: _network(shape, s["stride"]), _gpt_model.fill_of(shape.layers), seed, device),
            loss=_loss.sum_loss,
            optimizer=adamw,
            batch=_stream(s["measurements"], global_batch_size, seed),
            unit=self.unit,
            units_per_sample=1,
            blocks=_gpt_model.block_names(shape),
            shardings={p: cut for p, cut in _gpt_model.SHARDINGS.items() if p.startswith("blocks.")},
            whole=_gpt_model.whole(shape),
            held_out=_loss.evaluator(held_out, _HELD_OUT),
        )


def _stream(measurements: int, batch_size: int, seed: int) -> Callable[[int], Batch]:
    return lambda step: rhythms(batch_size, measurements, _data.generator(seed, "rhythms", step))


def rhythms(samples: int, measurements: int, random: torch.Generator) -> Batch:
    """Return series (samples, 12, measurements) of unit deviation or so, and the number of the rhythm of each."""
    rhythm_B = torch.randint(0, len(_RATES), (samples,), generator=random)
    low_B, high_B, varies_B = torch.tensor(_RATES)[rhythm_B].unbind(1)
    rate_B = low_B + (high_B - low_B) * torch.rand(samples, generator=random)
    # The rate changes from second to second.
    coarse = torch.randn(samples, 1, math.ceil(_SECONDS), generator=random)
    changes_BS = nn.functional.interpolate(coarse, size=measurements, mode="linear", align_corners=True).squeeze(1)
    speed_BS = rate_B.unsqueeze(1) / 60 * (1 + varies_B.unsqueeze(1) * changes_BS).clamp(min=0.2)
    begin_B1 = torch.rand(samples, 1, generator=random)
    phase_BS = 2 * math.pi * (begin_B1 + speed_BS.cumsum(1) * (_SECONDS / measurements))
    waves = []
    for place, height, width in _WAVES_WITH_T:
        away_BS = torch.remainder(phase_BS - place + math.pi, 2 * math.pi) - math.pi
        waves.append(height / 10 * torch.exp(-away_BS.square() / (2 * width**2)))
    # Each lead sees the five waves from another side.
    sides_CW = torch.cos(torch.arange(LEADS).unsqueeze(1) * (math.pi / 6) + torch.arange(len(waves)) * 0.3)
    seen_BCS = torch.einsum("cw,wbs->bcs", sides_CW, torch.stack(waves))
    return Batch(inputs=seen_BCS + 0.2 * torch.randn(seen_BCS.shape, generator=random), targets=rhythm_B)


def _network(shape: _gpt_model.GptShape, stride: int) -> nn.Sequential:
    blocks = [_gpt_model.Block(shape, causal=False) for _ in range(shape.layers)]
    return nn.Sequential(OrderedDict(embedding=_Stem(shape, stride), blocks=nn.Sequential(*blocks), head=_Head(shape)))


@final
class _Stem(nn.Module):
    """series_BCS -> x_BTD: a convolution over time that makes a position of every `stride` measurements."""

    def __init__(self, shape: _gpt_model.GptShape, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(LEADS, shape.width, stride, stride)
        self.positions = nn.Parameter(torch.empty(1, shape.context, shape.width))

    def forward(self, series_BCS: Tensor) -> Tensor:
        """Convolve, and add where each position stands."""
        return self.conv(series_BCS).transpose(1, 2) + self.positions  # type: ignore[no-any-return]


@final
class _Head(nn.Module):
    """x_BTD -> logits of every rhythm, from the mean over positions."""

    def __init__(self, shape: _gpt_model.GptShape) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(shape.width)
        self.logits = nn.Linear(shape.width, shape.vocabulary)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Normalise, average, project."""
        return self.logits(self.norm(x_BTD).mean(1))  # type: ignore[no-any-return]
