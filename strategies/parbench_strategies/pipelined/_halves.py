"""Backward of a stage, whole or in its two halves: the gradient of what came in, and later that of the weights.

The halves are torch.distributed.pipelining's own: the first notes the gradients that arrive where a weight joins the
graph, the second goes from there to the weights, so that nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight


@dataclass(slots=True, kw_only=True)
class Pass:
    """One micro-batch in one stage, from its forward to the end of its backward.

    Attributes:
        given: what came in; a leaf that gathers its gradient, except in the first stage.
        result: what goes on, or the loss in the last stage.
        gradient: of the result, where there is a next stage; kept from the first half for the second.
        noted: what the first half notes for the second; None where it left everything to it.
    """

    given: Tensor
    result: Tensor
    gradient: Tensor | None = None
    noted: list[dict[str, object]] | None = None


def whole(one: Pass, gradient: Tensor | None) -> Tensor | None:
    """Run backward and return the gradient of what came in; None in the first stage."""
    torch.autograd.backward([one.result], [gradient])
    return _given_gradient(one)


def inputs_half(one: Pass, gradient: Tensor | None, weights: Sequence[nn.Parameter]) -> Tensor | None:
    """Compute the gradient of what came in and return it; None in the first stage, which has none to compute."""
    if not one.given.requires_grad:
        one.gradient = gradient
        return None
    gradients = None if gradient is None else [gradient]
    _, one.noted = stage_backward_input([one.result], gradients, [one.given], iter(weights))
    return _given_gradient(one)


def weights_half(one: Pass, weights: Sequence[nn.Parameter]) -> None:
    """Add the gradients of the weights to what they have."""
    if not one.given.requires_grad:
        torch.autograd.backward([one.result], [one.gradient])
        return
    stage_backward_weight(iter(weights), one.noted or [])


def _given_gradient(one: Pass) -> Tensor | None:
    if not one.given.requires_grad:
        return None
    return torch.zeros_like(one.given) if one.given.grad is None else one.given.grad
