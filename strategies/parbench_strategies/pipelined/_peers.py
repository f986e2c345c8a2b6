"""Peers are the ranks that hold the same stages: they share out a batch, and complete each other's gradients."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from parbench.api import Job
from parbench_strategies.pipelined._stages import Stage


class Peers(abc.ABC):
    """One rank's side of what peers do; all of them call every method in the same order."""

    @abc.abstractmethod
    def join(self, job: Job, stages: Mapping[int, Stage], skipped: set[int]) -> Mapping[int, nn.Parameter]:
        """Take this rank's stages in hand.

        Args:
            job: whose stages they are.
            stages: by chunk.
            skipped: ids of parameters that a step may leave without gradient, in all replicas alike.

        Returns:
            Id of a parameter -> what took its place in the stage, for those that were replaced.
        """

    @abc.abstractmethod
    def optimizers(self, job: Job, parameters: Iterable[nn.Parameter]) -> list[torch.optim.Optimizer]:
        """Return what steps the parameters of this rank's stages."""

    @abc.abstractmethod
    def last(self, chunk: int) -> None:
        """Note that a chunk's next backward is its last in this step."""

    @abc.abstractmethod
    def complete(self, chunk: int) -> None:
        """Note that all gradients of a chunk are there."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Return once all gradients are those of the whole batch."""

    @abc.abstractmethod
    def whole(self, parameter: nn.Parameter) -> Tensor:
        """Return a parameter of a stage whole."""
