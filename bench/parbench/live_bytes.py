"""LiveBytes follows the storages that a step makes and frees, and says what was alive when most was.

The moment of the peak is found afterwards, from the list of what came and went. What was alive then is sorted by whose
it is: parameters, gradients, optimizer state, buffers, what the step made (activations and temporaries), and what was
there before it and is none of these (buckets, gathered parameters).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

KINDS: Final = ("parameters", "gradients", "optimizer", "buffers", "activations", "other")


@final
class LiveBytes(TorchDispatchMode):
    """Follows storages while it is active (use it as a context manager around one step).

    Args:
        held: kind ("parameters", "optimizer", "buffers") -> the tensors that are kept from step to step.
    """

    def __init__(self, held: Mapping[str, Iterable[Tensor]]) -> None:
        super().__init__()
        self._kind: dict[int, str] = {}
        self._size: dict[int, int] = {}
        self._events: list[tuple[int, int]] = []  # (storage, change of its bytes), in order
        self._foreign: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._alive: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._numbers: dict[int, int] = {}  # address of a live storage -> a number that is never used again
        self._next = 0
        for kind, tensors in held.items():
            for tensor in tensors:
                self._see(tensor, kind)
        self._hook = register_optimizer_step_pre_hook(self._gradients)

    def __exit__(self, *error: object) -> None:
        self._hook.remove()
        super().__exit__(*error)

    def at_peak(self) -> dict[str, int]:
        """Return kind -> bytes that were alive when the sum was largest."""
        now: dict[int, int] = {}
        total = most = 0
        at = 0
        for k, (_, change) in enumerate(self._events):
            total += change
            if total > most:
                most, at = total, k + 1
        for number, change in self._events[:at]:
            now[number] = now.get(number, 0) + change
        found = dict.fromkeys(KINDS, 0)
        for number, size in now.items():
            found[self._kind[number]] += size
        return found

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        for tensor in _tensors((args, *(kwargs or {}).values())):
            self._see(tensor, "other")
        out = func(*args, **(kwargs or {}))
        for tensor in _tensors(out):
            self._see(tensor, "activations")
        # Storages that outlive steps may be emptied and filled again, as gathered parameters are.
        for number, ref in self._foreign.items():
            if (storage := ref()) is not None:
                self._resize(number, storage.nbytes())
        return out

    def _see(self, tensor: Tensor, kind: str) -> None:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        try:
            storage = local.untyped_storage()
        except (NotImplementedError, RuntimeError):  # tensors without storage, such as sparse ones
            return
        key = storage._cdata
        if key in self._numbers:
            return
        number = self._numbers[key] = self._next
        self._next += 1
        self._kind[number] = kind
        self._resize(number, storage.nbytes())
        if kind == "other":
            self._foreign[number] = weakref.ref(storage)
        self._alive[number] = weakref.ref(storage, lambda _: self._gone(key, number))

    def _gone(self, key: int, number: int) -> None:
        self._resize(number, 0)
        self._alive.pop(number, None)
        self._foreign.pop(number, None)
        if self._numbers.get(key) == number:
            del self._numbers[key]

    def _resize(self, number: int, size: int) -> None:
        change = size - self._size.get(number, 0)
        if change:
            self._size[number] = size
            self._events.append((number, change))

    def _gradients(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                self._see(parameter.grad, "gradients")
                grad = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
                number = self._numbers.get(grad.untyped_storage()._cdata)
                if number is not None and self._kind[number] in ("activations", "other"):
                    self._kind[number] = "gradients"


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
