"""A Compact gradient has fewer numbers than elements: it is added and written without being spread out first."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Compact(abc.ABC):
    """A gradient of some shape, as few numbers say it."""

    @abc.abstractmethod
    def dense(self) -> Tensor:
        """Return all its elements."""

    @abc.abstractmethod
    def take_from(self, grad_B: Tensor) -> None:
        """Subtract it from a gradient of its shape, or flat, in place."""

    @abc.abstractmethod
    def write_to(self, grad_B: Tensor) -> None:
        """Overwrite a gradient of its shape, or flat, with it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse(Compact):
    """Numbers at places and zero elsewhere; numbers at the same place add up in their order.

    Attributes:
        values: the numbers, one-dimensional.
        places: of each, where in the flat gradient, as int64.
        shape: of the gradient.
    """

    values: Tensor
    places: Tensor
    shape: Sequence[int]

    def dense(self) -> Tensor:
        found_B = self.values.new_zeros(tuple(self.shape))
        found_B.view(-1).index_add_(0, self.places, self.values)
        return found_B

    def take_from(self, grad_B: Tensor) -> None:
        if grad_B.is_contiguous():
            grad_B.view(-1).index_add_(0, self.places, self.values, alpha=-1)
        else:
            grad_B.sub_(self.dense().view(grad_B.shape))

    def write_to(self, grad_B: Tensor) -> None:
        if grad_B.is_contiguous():
            grad_B.zero_().view(-1).index_add_(0, self.places, self.values)
        else:
            grad_B.copy_(self.dense().view(grad_B.shape))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded(Compact):
    """All its elements, in a narrower type.

    Attributes:
        values: the elements, in the gradient's shape or flat.
        shape: of the gradient.
        dtype: of the gradient.
    """

    values: Tensor
    shape: Sequence[int]
    dtype: torch.dtype

    def dense(self) -> Tensor:
        return self.values.to(self.dtype).view(tuple(self.shape))

    def take_from(self, grad_B: Tensor) -> None:
        grad_B.sub_(self.values.view(grad_B.shape))

    def write_to(self, grad_B: Tensor) -> None:
        grad_B.copy_(self.values.view(grad_B.shape))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank(Compact):
    """The product of two thin matrices.

    Attributes:
        left: `[rows, rank]`.
        right: `[columns, rank]`.
        shape: of the gradient: its first dimension is the rows, the others together are the columns.
        dtype: of the gradient; the factors may be wider.
    """

    left: Tensor
    right: Tensor
    shape: Sequence[int]
    dtype: torch.dtype

    def dense(self) -> Tensor:
        return (self.left @ self.right.T).to(self.dtype).view(tuple(self.shape))

    def take_from(self, grad_B: Tensor) -> None:
        if self._fits(grad_B):
            grad_B.view(len(self.left), -1).addmm_(self.left, self.right.T, alpha=-1)
        else:
            grad_B.sub_(self.dense().view(grad_B.shape))

    def write_to(self, grad_B: Tensor) -> None:
        if self._fits(grad_B):
            grad_B.view(len(self.left), -1).addmm_(self.left, self.right.T, beta=0)
        else:
            grad_B.copy_(self.dense().view(grad_B.shape))

    def _fits(self, grad_B: Tensor) -> bool:
        return grad_B.is_contiguous() and grad_B.dtype == self.left.dtype


def dense(found: Tensor | Compact) -> Tensor:
    """Return all elements of a gradient, compact or not."""
    return found.dense() if isinstance(found, Compact) else found
