"""Replicas average the gradients of the stages they share, stage by stage, while others are still computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

import torch
from torch import Tensor, nn

from parbench.api import Comm, Handle, Job
from parbench_strategies.pipelined._peers import Peers
from parbench_strategies.pipelined._stages import Stage


@final
class Replicas(Peers):
    """Averages gradients over the ranks that hold the same stages.

    Args:
        comm: those ranks.
    """

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._buckets: dict[frozenset[int], list[nn.Parameter]] = {}
        self._skipped: set[int] = set()
        self._complete: set[int] = set()
        self._flying: list[tuple[list[Tensor], Handle]] = []

    def join(self, job: Job, stages: Mapping[int, Stage], skipped: set[int]) -> Mapping[int, nn.Parameter]:
        """Put parameters into one message per set of chunks: what two of them share is complete when both are."""
        chunks: dict[int, set[int]] = {}
        parameters: dict[int, nn.Parameter] = {}
        for chunk, stage in stages.items():
            for parameter in stage.parameters:
                chunks.setdefault(id(parameter), set()).add(chunk)
                parameters[id(parameter)] = parameter
        for key, parameter in parameters.items():
            self._buckets.setdefault(frozenset(chunks[key]), []).append(parameter)
        self._skipped = skipped
        return {}

    def optimizers(self, job: Job, parameters: Iterable[nn.Parameter]) -> list[torch.optim.Optimizer]:
        return [job.optimizer(parameters)]

    def last(self, chunk: int) -> None:
        return None

    def complete(self, chunk: int) -> None:
        """Start averaging what is complete with this chunk."""
        self._complete.add(chunk)
        for needed, parameters in self._buckets.items():
            if chunk in needed and needed <= self._complete:
                self._start(parameters)

    def wait(self) -> None:
        for gradients, handle in self._flying:
            averaged = handle.wait()
            for gradient, part in zip(gradients, torch.split(averaged, [g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
        self._flying.clear()
        self._complete.clear()

    def whole(self, parameter: nn.Parameter) -> Tensor:
        return parameter

    def _start(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is None and id(parameter) not in self._skipped:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self._comm.world_size > 1 and gradients:
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            self._flying.append((gradients, self._comm.mean_async(flat)))
