"""disruption: will this plasma break down? Long series of 14 channels, read in chunks by recurrent layers.

    sample of step k:  chunk k % C of the sequence (shot) that stream b is at; its state comes from chunk k % C - 1

The task is that of Kates-Harbeck et al. 2019 ("Predicting disruptive instabilities in controlled fusion plasmas through
deep learning") and Svyatkovskiy et al. 2017, whose data cannot ship; the series here are made: smooth noise, and in a
quarter of the shots an oscillation that grows until the end. Every position is judged: will it end within the warning
time?

B samples (a stream each), T positions of a chunk, C chunks of a shot.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Batch, Job, Workload
from parbench.errors import UsageError
from parbench.workloads import _data, _recurrent
from parbench.workloads._carried import Carried, Placed
from parbench.workloads._recurrent import Cell
from parbench.workloads._sizes import settings_of
from parbench.workloads._weights import seeded

CHANNELS = 14
_DISRUPTIVE = 0.25  # of the shots
_OSCILLATING = 3  # channels in which the precursor grows
_HELD_OUT_SHOTS = 64
# Stream and chunk travel in the numbers of a batch: up to here the coarsest type, bfloat16, holds them exactly.
_MOST_PLACES = 256


@final
class Disruption(Workload):
    """Warning of rare events in synthetic series of 14 channels; judged by ROC AUC on shots that are held out."""

    unit: ClassVar[str] = "samples"
    sizes: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "smoke": {"layers": 2, "hidden": 16, "chunk": 16, "chunks": 2, "warning": 8},
        "small": {"layers": 2, "hidden": 64, "chunk": 64, "chunks": 4, "warning": 32},
        "frnn": {"layers": 2, "hidden": 200, "chunk": 128, "chunks": 16, "warning": 64},
        "70m": {"layers": 3, "hidden": 1880, "chunk": 128, "chunks": 16, "warning": 64},
    }
    source: ClassVar[str] = (
        "14 channels generated from the seed; LSTM layers, frnn with the two of 200 and the chunks of 128 that are the "
        "defaults of FRNN's code (Kates-Harbeck et al. 2019); states are carried from chunk to chunk, reset per shot"
    )

    def __init__(self, cell: Cell = "lstm", stateful: bool = True) -> None:
        """Remember how series are read.

        Args:
            cell: "lstm", "gru", or "lstmcell", which goes from position to position in Python.
            stateful: whether a chunk begins with the state that the one before ended with; else with zero.
        """
        self._cell = _recurrent.checked(cell)
        self._stateful = stateful

    def default_batch_size(self, size: str) -> int:
        """Return 16 streams for a smoke test and else 64."""
        settings_of("disruption", self.sizes, size)
        return 16 if size == "smoke" else 64

    def build(self, size: str, seed: int, device: torch.device, global_batch_size: int) -> Job:
        """Build the model and its streams.

        Raises:
            UsageError: no such size, or a batch of no or of more than 256 streams.
        """
        s = settings_of("disruption", self.sizes, size)
        if not 1 <= global_batch_size <= _MOST_PLACES:
            raise UsageError(
                f"global batch size {global_batch_size} is no number of streams; allowed: 1 to {_MOST_PLACES}"
            )
        return Job(
            model=seeded(lambda: self._network(s, global_batch_size), _recurrent.fill_of(s["hidden"]), seed, device),
            loss=_loss,
            optimizer=_adam,
            batch=_streams(s, global_batch_size, seed, self._stateful),
            unit=self.unit,
            units_per_sample=1,
            blocks=["entry", *(f"layers.{k}" for k in range(s["layers"])), "head"],
            held_out=_evaluator(s),
        )

    def _network(self, s: Mapping[str, int], streams: int) -> nn.Sequential:
        stacked = _recurrent.stacked(CHANNELS, s["hidden"], s["layers"], self._cell)
        layers = [Carried(layer, streams) for layer in stacked]
        return nn.Sequential(OrderedDict(entry=Entry(), layers=nn.Sequential(*layers), head=_Head(s["hidden"])))


@final
class Entry(nn.Module):
    """inputs (B, T, 14 + 2) -> (x_BTD, place_B2): the channels, and which stream and chunk a sample is."""

    def forward(self, inputs: Tensor) -> Placed:
        """Take them apart."""
        return inputs[..., :CHANNELS].contiguous(), inputs[:, 0, CHANNELS:].contiguous()


@final
class _Head(nn.Module):
    """(y_BTH, place_B2) -> one logit for every position, (B, T)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden, 1)

    def forward(self, placed: Placed) -> Tensor:
        """Judge every position."""
        return self.linear(placed[0]).squeeze(-1)  # type: ignore[no-any-return]


def _loss(outputs_BT: Tensor, share: Batch) -> Tensor:
    """Return the sum over samples of the mean cross-entropy of a sample's positions, in nats."""
    total = F.binary_cross_entropy_with_logits(outputs_BT, share.targets, reduction="sum")
    return total / share.targets.shape[1]


def _adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2, eps=1e-6)


def shots(samples: int, positions: int, warning: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return series (samples, positions, 14) and whether each position lies in the warning time, as 0 or 1.

    Args:
        samples: shots.
        positions: of a shot.
        warning: positions before a disruption in which it should be told.
        random: decides all of it.
    """
    white = torch.randn(samples, CHANNELS, positions + 7, generator=random)
    smooth = F.avg_pool1d(white, 8, stride=1) * math.sqrt(8)  # neighbours are alike, the deviation stays 1
    disrupts = torch.rand(samples, generator=random) < _DISRUPTIVE
    left_T = torch.arange(positions - 1, -1, -1)
    growth_T = torch.exp(-left_T / warning)
    phase_S = torch.rand(samples, generator=random) * 2 * math.pi
    wave_ST = torch.sin(left_T * (2 * math.pi / 6) + phase_S.unsqueeze(1)) * growth_T * disrupts.unsqueeze(1)
    smooth[:, :_OSCILLATING] += 4 * wave_ST.unsqueeze(1)
    soon_ST = (left_T < warning) & disrupts.unsqueeze(1)
    return smooth.transpose(1, 2), soon_ST.float()


def _streams(s: Mapping[str, int], streams: int, seed: int, stateful: bool) -> Callable[[int], Batch]:
    length, chunks = s["chunk"], s["chunks"]
    stream_B = torch.arange(streams, dtype=torch.float32)

    def batch(step: int) -> Batch:
        shot, chunk = divmod(step, chunks)
        series, soon = shots(streams, length * chunks, s["warning"], _data.generator(seed, "shots", shot))
        part = slice(chunk * length, (chunk + 1) * length)
        place_B2 = torch.stack([stream_B, torch.full((streams,), float(chunk if stateful else 0))], dim=1)
        placed = place_B2.unsqueeze(1).expand(-1, length, -1)
        return Batch(inputs=torch.cat([series[:, part], placed], dim=2), targets=soon[:, part].contiguous())

    return batch


def _evaluator(s: Mapping[str, int]) -> Callable[[nn.Module], Mapping[str, float]]:
    """Return model -> loss, accuracy and ROC AUC over all positions of whole shots that no seed trains on."""

    def evaluate(model: nn.Module) -> Mapping[str, float]:
        series, soon = shots(_HELD_OUT_SHOTS, s["chunk"] * s["chunks"], s["warning"], _data.generator(-1, "held out"))
        inputs = torch.cat([series, torch.zeros(*series.shape[:2], 2)], dim=2)
        device = next(model.parameters()).device
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                logits = model(inputs.to(device)).float().cpu()
        finally:
            model.train(training)
        loss = float(_loss(logits, Batch(inputs=inputs, targets=soon))) / _HELD_OUT_SHOTS
        right = float(((logits > 0) == (soon > 0)).float().mean())
        return {"loss": loss, "accuracy": right, "roc_auc": roc_auc(logits.flatten(), soon.flatten() > 0)}

    return evaluate


def roc_auc(scores_N: Tensor, positive_N: Tensor) -> float:
    """Return the chance that a positive scores above a negative, ties counted half (Mann and Whitney 1947).

    Returns:
        From 0 to 1; 0.5 is a guess. NaN where one of both is missing.
    """
    negatives, _ = scores_N[~positive_N].sort()
    positives = scores_N[positive_N].contiguous()
    if not len(negatives) or not len(positives):
        return math.nan
    below = torch.searchsorted(negatives, positives).double()
    not_above = torch.searchsorted(negatives, positives, right=True).double()
    return float(((below + not_above) / 2).mean()) / len(negatives)
