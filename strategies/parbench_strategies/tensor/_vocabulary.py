"""CutLogits are logits of which each rank of a tensor group holds the columns of its part of the vocabulary.

    rank 0 | logits of words 0 to 50   |     logsumexp of the own columns ─┐   all-gathered once: 2 N floats
    rank 1 | logits of words 51 to 100 |     logit of the target, if own  ─┴─> loss of every position, on every rank

Parts may differ by one word, so that no vocabulary needs padding. Only cross-entropy knows what to do with such a part;
anything else that would mix columns is refused, since it would be wrong without a sound.

N positions, V words of this rank's part, n ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A rank's part of the vocabulary.

    Attributes:
        start: the first word of it.
        size: words in it.
        exchange: tensor -> that tensor of every rank of the group, in rank order.
    """

    start: int
    size: int
    exchange: Callable[[Tensor], list[Tensor]]


class _Function(Protocol):
    def __call__(self, *args: object, **kwargs: object) -> object: ...


class CutLogits(Tensor):
    """Logits (..., V) of a part of the vocabulary; shaped like logits, and fit for cross-entropy alone."""

    part: Part

    @staticmethod
    def of(logits: Tensor, part: Part) -> CutLogits:
        """Return `logits` as those of `part`, in the same graph."""
        cut = logits.as_subclass(CutLogits)
        cut.part = part
        return cut

    @classmethod
    def __torch_function__(
        cls,
        func: _Function,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Carry out what keeps the columns apart; refuse the rest."""
        if func is F.cross_entropy:
            return _cross_entropy(*args, **(kwargs or {}))  # type: ignore[arg-type]
        name = getattr(func, "__name__", str(func))
        with torch._C.DisableTorchFunctionSubclass():
            if name not in (*_ATTRIBUTES, *_RESHAPING):
                raise TypeError(
                    f"logits cut along the vocabulary (loss_parallel) meet {name}; only F.cross_entropy of the logits "
                    "as they are can be computed on parts"
                )
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and name in _RESHAPING:
                return CutLogits.of(result, next(one.part for one in args if isinstance(one, CutLogits)))
        return result


_ATTRIBUTES: Final = ("__get__", "size", "dim", "numel", "is_floating_point", "register_hook")
_RESHAPING: Final = ("float", "to", "flatten", "reshape", "view", "contiguous")


def _cross_entropy(
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return F.cross_entropy of the whole logits: the same on every rank of the group."""
    if not isinstance(logits, CutLogits) or logits.dim() != 2 or logits.shape[-1] != logits.part.size:
        raise TypeError("cross-entropy of logits cut along the vocabulary needs them as (positions, vocabulary)")
    if weight is not None or label_smoothing or size_average is not None or reduce is not None:
        raise TypeError("cross-entropy of logits cut along the vocabulary takes no weight and no label_smoothing")
    with torch._C.DisableTorchFunctionSubclass():
        plain = logits.as_subclass(Tensor)
    ignored_N = targets == ignore_index
    loss_N: Tensor = _CrossEntropy.apply(plain, targets, logits.part)  # type: ignore[no-untyped-call]
    loss_N = loss_N.masked_fill(ignored_N, 0.0)
    if reduction == "none":
        return loss_N
    return loss_N.sum() if reduction == "sum" else loss_N.sum() / (~ignored_N).sum()


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, logits_NV: Tensor, targets_N: Tensor, part: Part) -> Tensor:
        column_N, own_N = _column(targets_N, part)
        # Where no rank has the target there is none: an infinite loss, not a silent one.
        picked_N = logits_NV.gather(1, column_N[:, None])[:, 0].masked_fill(~own_N, -torch.inf)
        parts_n2N = torch.stack(part.exchange(torch.stack([logits_NV.logsumexp(1), picked_N])))
        total_N = parts_n2N[:, 0].logsumexp(0)
        ctx.save_for_backward(logits_NV, total_N, column_N, own_N)
        return total_N - parts_n2N[:, 1].amax(0)

    @staticmethod
    def backward(ctx: FunctionCtx, grad_N: Tensor) -> tuple[Tensor, None, None]:
        logits_NV, total_N, column_N, own_N = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_NV = (logits_NV - total_N[:, None]).exp_()
        grad_NV.scatter_add_(1, column_N[:, None], -own_N[:, None].to(grad_NV.dtype))
        return grad_NV.mul_(grad_N[:, None]), None, None


def _column(words: Tensor, part: Part) -> tuple[Tensor, Tensor]:
    """Return each word's place in the part, and whether it is in it (its place is 0 or the last otherwise)."""
    places = words - part.start
    return places.clamp(0, part.size - 1), (places >= 0) & (places < part.size)


def looked_up(module: nn.Module, part: Part, words: Tensor) -> Tensor:
    """Return the vectors of the words that are in `part`, and zeros for the others: a term of the sum over ranks."""
    rows, own = _column(words, part)
    return F.embedding(rows, module.get_parameter("weight")).masked_fill(~own[..., None], 0.0)
