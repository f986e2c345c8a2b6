"""OperatorTypes notes in which floating-point type each class of operators computes: the effective precision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# How the names of ATen operators begin, by class; the first that fits counts.
_CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "attention": ("_scaled_dot_product",),
    "convolution": ("convolution", "mkldnn_convolution"),
    "recurrence": ("lstm", "gru", "rnn_", "_thnn_fused", "mkldnn_rnn", "_cudnn_rnn"),
    "matrix product": ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul"),
    "normalisation": ("native_layer_norm", "native_batch_norm", "native_group_norm", "_fused_rms_norm", "batch_norm"),
    "loss": ("_log_softmax", "nll_loss", "cross_entropy", "mse_loss", "binary_cross_entropy"),
    "optimizer": ("_fused_adam", "_foreach", "addcdiv_", "lerp_"),
}
_SHORT: Final = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}


@final
class OperatorTypes(TorchDispatchMode):
    """Notes the type of the first floating-point operand, by class of operator, while it is active (in `with`).

    Compiled blocks are seen as the operators they were made of, where torch runs them one by one under such a mode.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, set[str]] = {}

    def by_class(self) -> dict[str, str]:
        """Return class -> type, several joined by "+"; classes that did not occur are left out."""
        return {name: "+".join(sorted(self._seen[name])) for name in _CLASSES if name in self._seen}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if func.namespace == "aten":
            name = func._schema.name.removeprefix("aten::")
            found = next((one for one, begins in _CLASSES.items() if name.startswith(begins)), None)
            if found is not None:
                self._note(found, args)
        return func(*args, **(kwargs or {}))

    def _note(self, name: str, args: tuple[object, ...]) -> None:
        # The first operand: others may be statistics that are kept in fp32, as the backward of attention takes.
        first = next((t for t in _tensors(args) if t.dtype.is_floating_point), None)
        if first is not None:
            self._seen.setdefault(name, set()).add(short(first.dtype))


def short(dtype: torch.dtype) -> str:
    """Return "fp32" and the like."""
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for item in value:
            yield from _tensors(item)
