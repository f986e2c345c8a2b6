"""Classification of every position of a sample: the loss that is trained, and loss and accuracy on held-out samples.

S samples, T positions of a sample (none for images), C classes: outputs (S, [T,] C), targets (S, [T]).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from parbench.api import Batch


def sum_loss(outputs: Tensor, batch: Batch) -> Tensor:
    """Return the sum over samples of each sample's mean cross-entropy over its positions, in nats, 0-d.

    No samples give 0 with a graph, so that a rank whose share is empty takes part in backward like any other.
    """
    positions = math.prod(batch.targets.shape[1:])
    total = F.cross_entropy(outputs.flatten(0, -2), batch.targets.flatten(), reduction="sum")
    return total / positions


def evaluator(held_out: Batch, chunk: int) -> Callable[[nn.Module], Mapping[str, float]]:
    """Return model -> {"loss": mean nats per position, "accuracy": fraction of positions right}.

    The model is evaluated on its own device, `chunk` samples at a time, in eval mode and without gradients; afterwards
    every module is back in the mode it was in.
    """

    def evaluate(model: nn.Module) -> Mapping[str, float]:
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            return _measure(model, held_out, chunk)
        finally:
            for module, training in modes:
                module.training = training

    return evaluate


def _measure(model: nn.Module, held_out: Batch, chunk: int) -> dict[str, float]:
    first = next(model.parameters(), None)
    device = torch.device("cpu") if first is None else first.device
    loss, right = 0.0, 0
    with torch.no_grad():
        for start in range(0, held_out.samples, chunk):
            part = held_out.cut(start, start + chunk).to(device)
            outputs = model(part.inputs).float()
            loss += float(sum_loss(outputs, part))
            right += int((outputs.argmax(dim=-1) == part.targets).sum())
    return {"loss": loss / held_out.samples, "accuracy": right / held_out.targets.numel()}
