"""What a rank holds from step to step: Memory is the closed form a strategy gives, a Holding is what is really there.

P parameters of the whole model, b bytes of one, n ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from parbench.job import Job

# Two lengths give what an optimizer keeps per element and per tensor; the third shows that nothing else counts.
_LENGTHS = (64, 128, 320)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Closed form of the bytes one rank holds.

    Attributes:
        parameters: weights as the rank keeps them between steps, copies and padding included.
        gradients: what the end of backward holds.
        optimizer: state of the optimizer after its first step.
        buffers: tensors of the model that are not trained.
    """

    parameters: int
    gradients: int
    optimizer: int
    buffers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The tensors a trainer keeps from step to step; cut tensors count with this rank's part.

    Attributes:
        parameters: weights, every copy.
        optimizers: what steps them.
        buffers: tensors of the model that are not trained.
    """

    parameters: Sequence[Tensor]
    optimizers: Sequence[torch.optim.Optimizer]
    buffers: Sequence[Tensor] = ()

    def bytes_of(self) -> dict[str, int]:
        """Return "parameters", "optimizer" and "buffers" -> bytes of their storages, shared ones counted once."""
        return {
            "parameters": storage_bytes(self.parameters),
            "optimizer": storage_bytes(state_of(self.optimizers)),
            "buffers": storage_bytes(self.buffers),
        }


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the storages behind `tensors`; views of one storage count once."""
    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in local)}
    return sum(storages.values())


def state_of(optimizers: Sequence[torch.optim.Optimizer]) -> list[Tensor]:
    """Return the tensors that optimizers keep."""
    return [x for o in optimizers for kept in o.state.values() for x in kept.values() if isinstance(x, Tensor)]


def optimizer_bytes(job: Job, sizes: Iterable[int]) -> int:
    """Return the bytes of state that the job's optimizer keeps for tensors of these many elements, once stepped.

    Raises:
        ValueError: its state is not so much per element plus so much per tensor.
    """
    short, middle, long = (_state_bytes_of(job, length) for length in _LENGTHS)
    per_element, rest = divmod(middle - short, _LENGTHS[1] - _LENGTHS[0])
    per_tensor = short - per_element * _LENGTHS[0]
    if rest or long != per_tensor + per_element * _LENGTHS[2]:
        raise ValueError("the optimizer's state is not a number of bytes per element and per tensor")
    return sum(per_tensor + per_element * size for size in sizes)


def _state_bytes_of(job: Job, length: int) -> int:
    parameter = nn.Parameter(torch.ones(length))
    parameter.grad = torch.ones(length)
    optimizer = job.optimizer([parameter])
    optimizer.step()
    return storage_bytes(state_of([optimizer]))


def stepped(job: Job) -> list[nn.Parameter]:
    """Return the parameters that an optimizer steps: trained, and used by every step."""
    unused = set(job.unused)
    return [p for name, p in job.model.named_parameters() if p.requires_grad and name not in unused]


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return what `tensors` take, from their shapes alone (meta tensors have no storage)."""
    return sum(t.numel() * t.element_size() for t in tensors)


def replicated_memory(job: Job) -> Memory:
    """Return what a rank holds that repeats everything: P b of weights, as much of gradients, all optimizer state."""
    return Memory(
        parameters=bytes_of(job.model.parameters()),
        gradients=bytes_of(stepped(job)),
        optimizer=optimizer_bytes(job, (p.numel() for p in stepped(job))),
        buffers=bytes_of(job.model.buffers()),
    )
