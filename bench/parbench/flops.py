"""FLOPs of a training step are counted once, for the whole model, from shapes: a multiply-add is two.

Counted is what matrix units do: products of matrices, convolutions, attention. Everything else is a few per cent and
is left out, as in Chowdhery et al. 2022 ("PaLM", appendix B). The count is taken on the meta device, where recurrent
layers and attention fall apart into products; fused operators of a CPU would pass uncounted (pytorch#134804).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from parbench.job import Job

Formula = Callable[..., int]

# Names of operators that multiply matrices, in whatever namespace; one without a formula must not count as nothing.
_MATRIX: Final = re.compile(
    r"(?:^|_)(?:add|badd|addb)?(?:mm|bmm|mv)(?:_|$)"
    r"|(?:^|_)(?:v?dot|linear|bilinear|matmul|einsum|tensordot|gemm|lstm|gru|rnn|attention|attn|cdist)(?:_|$)"
    r"|(?:^|_)conv(?:olution)?(?:_?(?:transpose)?\d?d?)(?:_|$)"
    r"|transformer_encoder_layer_fwd|dot_product"
)


class UncountedOperator(ValueError):
    """An operator that multiplies matrices has no formula here, or one that gives nothing."""


def _matrix_vector(matrix: Tensor, vector: Tensor, **_: object) -> int:
    return 2 * matrix.numel()


def _added_matrix_vector(bias: Tensor, matrix: Tensor, vector: Tensor, **_: object) -> int:
    return 2 * matrix.numel()


def _dot(left: Tensor, right: Tensor, **_: object) -> int:
    return 2 * left.numel()


def _added_batches(bias: Tensor, left_BMK: Tensor, right_BKN: Tensor, **_: object) -> int:
    return 2 * left_BMK.numel() * right_BKN.shape[2]


def _convolution(
    inputs: Tensor, weight: Tensor, bias: object, *rest: object, out_val: Tensor | None = None, **_: object
) -> int:
    """Each input meets a filter's part of its group where they are transposed, each output otherwise."""
    transposed = bool(rest[3])
    places = inputs if transposed or out_val is None else out_val
    return 2 * places.numel() * weight[0].numel()


def _convolution_backward(grad: Tensor, inputs: Tensor, weight: Tensor, *rest: object, **_: object) -> int:
    transposed, mask = bool(rest[4]), rest[7]
    wanted = sum(map(bool, mask[:2])) if isinstance(mask, list | tuple) else 2
    return wanted * 2 * (inputs if transposed else grad).numel() * weight[0].numel()


# What torch's own registry leaves out, or counts wrongly: gradients of weights of grouped convolutions.
_FORMULAS: Final[Mapping[str, Formula]] = {
    "aten::mv": _matrix_vector,
    "aten::addmv": _added_matrix_vector,
    "aten::addmv_": _added_matrix_vector,
    "aten::dot": _dot,
    "aten::vdot": _dot,
    "aten::addbmm": _added_batches,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
}


def training_flops(job: Job) -> dict[str, int]:
    """Return operator -> FLOPs of forward and backward over the first global batch.

    Args:
        job: its model is on the meta device; what its blocks recompute is counted as often as it is computed.

    Raises:
        UncountedOperator: an operator multiplies matrices and there is no formula for it.
        RuntimeError: the model needs values, not only shapes.
    """
    batch = job.batch(0).to(torch.device("meta"))
    with FlopCount() as count:
        job.loss(job.model(batch.inputs), batch).backward()
    return dict(count.by_operator)


@final
class FlopCount(TorchDispatchMode):
    """Counts the FLOPs of operators that pass while it is active (use it as a context manager).

    Attributes:
        by_operator: operator -> FLOPs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_operator: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        formula: Formula | None = _FORMULAS.get(name) or flop_registry.get(func._overloadpacket)
        if formula is None and not _MATRIX.search(name.partition("::")[2]):
            return out
        flops = formula(*args, **(kwargs or {}), out_val=out) if formula is not None else 0
        if not flops and _elements(out):
            what = "gives no FLOPs" if formula is not None else "multiplies matrices and has no formula"
            raise UncountedOperator(f"{name} {what}; add one to parbench.flops")
        self.by_operator[name] += flops
        return out


def _elements(out: object) -> int:
    found = (out,) if isinstance(out, Tensor) else out if isinstance(out, tuple | list) else ()
    return sum(t.numel() for t in found if isinstance(t, Tensor))
