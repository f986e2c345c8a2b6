"""Sparse messages are values and their places; added up they touch nothing else."""

from __future__ import annotations

import abc
from collections.abc import Sequence

import torch
from torch import Tensor

from parbench.api import GatherCompressor, Sparse
from parbench_strategies.compression._indices import narrowed, widened


def taken(flat_N: Tensor, places_K: Tensor) -> list[Tensor]:
    """Return the message of some places: values, indices."""
    return [flat_N[places_K], narrowed(places_K, flat_N.numel())]


def placed(values_K: Tensor, places_K: Tensor, like_B: Tensor) -> Tensor:
    """Return values at their places and zero elsewhere."""
    flat_N = torch.zeros(like_B.numel(), dtype=like_B.dtype, device=like_B.device)
    return flat_N.index_copy_(0, places_K, values_K).view(like_B.shape)


def dense(message: Sequence[Tensor], like_B: Tensor) -> Tensor:
    """Return what the message of some places stands for."""
    values_K, places_K = message
    return placed(values_K, widened(places_K), like_B)


def at(values_K: Tensor, places_K: Tensor, like_B: Tensor) -> Sparse:
    """Return the gradient that has values at these places."""
    return Sparse(values=values_K, places=places_K, shape=like_B.shape)


class SparseCompressor(GatherCompressor):
    """A compressor that sends some of a gradient's numbers and their places."""

    @abc.abstractmethod
    def places(self, flat_N: Tensor) -> Tensor:
        """Return the places, each once, of what is sent of a flat gradient."""

    def encode(self, grad_B: Tensor, key: str) -> Sequence[Tensor]:
        """Return values and places."""
        flat_N = grad_B.reshape(-1)
        return taken(flat_N, self.places(flat_N))

    def decode(self, message: Sequence[Tensor], grad_B: Tensor, key: str) -> Sparse:
        """Return the values at their places."""
        values_K, places_K = message
        return at(values_K, widened(places_K), grad_B)

    def average(self, messages: Sequence[Sequence[Tensor]], grad_B: Tensor, key: str) -> Sparse:
        """Return the values of all ranks at their places, of each an equal part."""
        values_K = torch.cat([values for values, _ in messages]) / len(messages)
        return at(values_K, widened(torch.cat([places for _, places in messages])), grad_B)
