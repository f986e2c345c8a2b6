"""Layer updates are made when a layer is about to be used again: until then its gradients may be on their way.

step t     forward | backward ─ gradients leave
step t+1   land, update, forward layer 1 | land, update, forward layer 2 | ... | backward
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from parbench.api import Job


@final
class LayerUpdates:
    """An optimizer for each module's own parameters, stepped before the module's next forward.

    A parameter that several modules share is updated before the first of them that runs.

    Args:
        job: whose model is trained.
        land: waits until the gradients of these parameters, by name, are there.

    Attributes:
        optimizers: of the modules, in the order in which the model lists them.
    """

    def __init__(self, job: Job, land: Callable[[Sequence[str]], None]) -> None:
        self._land = land
        self.optimizers: list[torch.optim.Optimizer] = []
        self._named: list[dict[str, nn.Parameter]] = []
        self._due: dict[int, None] = {}
        self._hooks: list[RemovableHandle] = []
        self._group_of: dict[int, int] = {}
        self._names = names = {id(p): name for name, p in job.model.named_parameters() if p.requires_grad}
        for parameter in job.model.parameters():
            if parameter.requires_grad:
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._check))  # type: ignore[no-untyped-call]
        for module in job.model.modules():
            own = [p for p in _own(module) if id(p) in names]
            new = {names[id(p)]: p for p in own if id(p) not in self._group_of}
            if new:
                self._group_of |= dict.fromkeys(map(id, new.values()), len(self._named))
                self._named.append(new)
                self.optimizers.append(job.optimizer(new.values()))
            if own:
                groups = list(dict.fromkeys(self._group_of[id(p)] for p in own))
                self._hooks.append(module.register_forward_pre_hook(self._before(groups)))

    def expect(self) -> None:
        """All gradients are on their way."""
        self._due = dict.fromkeys(range(len(self._named)))

    def make_all(self) -> None:
        """Update every layer that has not been yet, in the order in which the model lists them."""
        self._make(list(self._due))

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _before(self, groups: Sequence[int]) -> Callable[[nn.Module, object], None]:
        def hook(module: nn.Module, inputs: object) -> None:
            self._make(groups)

        return hook

    def _check(self, parameter: torch.Tensor) -> None:
        if self._group_of[id(parameter)] in self._due:
            raise RuntimeError(
                f"{self._names[id(parameter)]!r} was used without its own module's forward, before it had the last "
                "step's update; a system that updates layers as they are used cannot train this model"
            )

    def _make(self, groups: Sequence[int]) -> None:
        for group in groups:
            if group not in self._due:
                continue
            del self._due[group]
            named = self._named[group]
            self._land(list(named))
            self.optimizers[group].step()
            for parameter in named.values():
                parameter.grad = None


def _own(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that a module's own forward may use: lists and dictionaries of them have none."""
    if isinstance(module, nn.ParameterList | nn.ParameterDict):
        return
    yield from module.parameters(recurse=False)
    for child in module.children():
        if isinstance(child, nn.ParameterList | nn.ParameterDict):
            yield from child.parameters()
