"""Layers are what a rank of a pipeline holds of each layer: all of it, or the part that a tensor group gives it."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import final

from torch import Tensor, nn


class Layers(abc.ABC):
    """The layers of one rank; ranks that share them out work on the same micro-batches of the same stages."""

    @abc.abstractmethod
    def cut(self, model: nn.Module) -> None:
        """Keep this rank's part of every layer of a model that is whole, and the same on every rank."""

    @abc.abstractmethod
    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of the model by the names they had before it was cut."""

    @abc.abstractmethod
    def complete(self, held: Mapping[str, nn.Parameter]) -> None:
        """Add up gradients that came out in terms, one on each rank; called when all else is done to them."""

    @abc.abstractmethod
    def whole(self, name: str, part: Tensor) -> Tensor:
        """Return a parameter whole; every rank that shares it out calls this."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release hooks."""


@final
class WholeLayers(Layers):
    """Every layer is on one rank."""

    def cut(self, model: nn.Module) -> None:
        self._model = model

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self._model.named_parameters()

    def complete(self, held: Mapping[str, nn.Parameter]) -> None:
        return None

    def whole(self, name: str, part: Tensor) -> Tensor:
        return part

    def close(self) -> None:
        return None
