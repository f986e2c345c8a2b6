"""Averaging puts the mean over ranks in place of what has drifted apart on them: all of one type goes as one message.

rank 0  w_0 ─┐  weights, floating-point buffers   ┌─ mean
rank 1  w_1 ─┘  and, where asked for, momenta     └─ mean
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from parbench.api import Comm, Job, bytes_of, stepped

# How torch's optimizers name what counts steps: the same on every rank, and no momentum.
_COUNTER: Final = "step"


def start_equal(model: nn.Module, comm: Comm) -> None:
    """Give every rank the weights and buffers of rank 0."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            comm.broadcast(tensor)


def average(tensors: Sequence[Tensor], comm: Comm, weight: float = 1.0) -> None:
    """Put the mean over ranks in place of each tensor; every rank calls with the same shapes in the same order.

    Args:
        tensors: what to average.
        comm: the ranks.
        weight: of this rank; those of all ranks add up to their number.
    """
    if comm.group is None:
        return
    with torch.no_grad():
        for dtype in dict.fromkeys(t.dtype for t in tensors):
            alike = [t for t in tensors if t.dtype is dtype]
            message_N = torch.cat([t.detach().reshape(-1) for t in alike])
            if weight != 1.0:
                message_N.mul_(weight)
            comm.mean(message_N)
            for tensor, part in zip(alike, torch.split(message_N, [t.numel() for t in alike]), strict=True):
                tensor.copy_(part.view(tensor.shape))


def drifting(model: nn.Module) -> list[Tensor]:
    """Return what differs between ranks that train by themselves: trained weights and floating-point buffers."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [*trained, *(b for b in model.buffers() if b.dtype.is_floating_point)]


def drifting_bytes(job: Job) -> int:
    """Return the bytes of one such message."""
    return bytes_of(drifting(job.model))


def averaged(named: Iterable[tuple[str, Tensor]], comm: Comm) -> dict[str, Tensor]:
    """Return the means over ranks of what is of floating point, by name; nothing is changed."""
    copies = {name: tensor.detach().clone() for name, tensor in named}
    average([t for t in copies.values() if t.dtype.is_floating_point], comm)
    return copies


def momenta(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return what an optimizer remembers of gradients, in an order that all ranks share.

    Of the parameters that it was given, which need not be the model's: half weights have copies that are stepped.
    """
    return [
        kept
        for group in optimizer.param_groups
        for parameter in group["params"]
        for _, kept in sorted(_remembered(optimizer.state.get(parameter, {})).items())
        if kept.dtype.is_floating_point
    ]


def momenta_bytes(job: Job) -> int:
    """Return the bytes of the momenta that the job's optimizer keeps, once it has stepped."""
    probe = nn.Parameter(torch.ones(64))
    probe.grad = torch.ones(64)
    optimizer = job.optimizer([probe])
    optimizer.step()
    per_element = sum(t.element_size() for t in momenta(optimizer))
    return per_element * sum(p.numel() for p in stepped(job))


def forget(optimizer: torch.optim.Optimizer) -> None:
    """Put an optimizer back to where it has not stepped yet; it keeps the memory of its state."""
    with torch.no_grad():
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()


def _remembered(state: Mapping[str, object]) -> dict[str, Tensor]:
    return {name: value for name, value in state.items() if name != _COUNTER and isinstance(value, Tensor)}
