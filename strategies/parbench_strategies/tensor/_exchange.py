"""An Exchange averages gradients over replicas while backward goes on, and adds up those of parts of the positions.

    backward   | ... | grad of w4 | grad of w3 |  grad of w2 | ...
    in flight              w4 ────────> w3 ────────> w2 ─────> ...      last parameter first, on all ranks alike

A gradient goes out when it and all before it in that order are complete, in the last micro-batch of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import final

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from parbench.api import Comm, Handle


@final
class Exchange:
    """The gradients of one rank on their way.

    Args:
        parameters: by name, in the order of the model; those that no step uses are left out.
        rest: parameters that a step may leave without a gradient.
        summed: names of those whose gradient is of a part of the positions: added over the tensor group too.
        everyone: all ranks.
        replicas: the ranks that hold the same parts as this one.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        rest: Mapping[str, nn.Parameter],
        summed: Set[str],
        everyone: Comm,
        replicas: Comm,
    ) -> None:
        self._order = [*reversed(list(parameters.items())), *rest.items()]
        self._summed = summed
        self._everyone = everyone
        self._replicas = replicas
        self._next = 0
        self._ready: set[int] = set()
        self._last = True
        self._handles: list[Handle] = []
        self._hooks: list[RemovableHandle] = []
        for k, (name, parameter) in enumerate(self._order[: len(parameters)]):
            if name in summed or replicas.world_size > 1:
                hook = parameter.register_post_accumulate_grad_hook(self._noticing(k))  # type: ignore[no-untyped-call]
                self._hooks.append(hook)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing out: more is to be added to the gradients."""
        self._last = False
        try:
            yield
        finally:
            self._last = True

    def finish(self) -> None:
        """Send what has not gone out, and complete everything; the optimizer may step then."""
        while self._next < len(self._order):
            self._send()
        for handle in self._handles:
            handle.wait()
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self._next = 0
        self._ready.clear()
        self._handles.clear()

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()
        self.clear()

    def _noticing(self, k: int) -> Callable[[Tensor], None]:
        def notice(_: Tensor) -> None:
            if not self._last:
                return
            self._ready.add(k)
            while self._next in self._ready or self._stays(self._next):
                self._send()

        return notice

    def _stays(self, k: int) -> bool:
        """Whether number `k` is exchanged with nobody."""
        return k < len(self._order) and self._order[k][0] not in self._summed and self._replicas.world_size == 1

    def _send(self) -> None:
        name, parameter = self._order[self._next]
        self._next += 1
        if parameter.grad is None:
            return
        if name in self._summed:
            # Over all ranks at once: a sum over the tensor group, and a mean over replicas.
            sent = self._everyone.sum_async(parameter.grad)
            self._handles.append(replace(sent, divide_by=self._replicas.world_size))
        elif self._replicas.world_size > 1:
            self._handles.append(self._replicas.mean_async(parameter.grad))
