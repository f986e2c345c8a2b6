"""CutLayers are the layers of a model that a tensor group shares out: cut parameters, and hooks on what passes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from parbench.api import Comm
from parbench_strategies.tensor._edges import Edge, passed
from parbench_strategies.tensor._grid import Grid
from parbench_strategies.tensor._plan import Plan
from parbench_strategies.tensor._vocabulary import CutLogits, Part, looked_up

# Where a row-cut layer's bias is kept out of the layer's own sight: each rank would add it to its term.
_BIAS = "bias_after_sum"


@final
class CutLayers:
    """This rank's part of a model.

    Args:
        model: whole, with the same weights on every rank of the group; it is changed for good.
        plan: what becomes of each layer.
        grid: where this rank is.
        group: the ranks that share out the layers.
    """

    def __init__(self, model: nn.Module, plan: Plan, grid: Grid, group: Comm) -> None:
        self._model, self._plan, self._grid, self._group = model, plan, grid, group
        self._lengths = {name: model.get_parameter(name).shape[dim] for name, dim in plan.cuts.items()}
        cut_parameters(model, plan, grid)
        _set_biases_aside(model, plan)
        self._hooks = list(_hooks(model, plan, self._part(), group))

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield parameters by the names they have in the job's own model."""
        for name, parameter in self._model.named_parameters():
            yield own_name(name), parameter

    @torch.no_grad()
    def whole(self, name: str, part: Tensor) -> Tensor:
        """Return a parameter of the job's own model whole; every rank of the group calls this.

        Args:
            name: the parameter's, in the job's own model.
            part: this rank's, on its device; returned as it is where the parameter is not cut.
        """
        if name not in self._plan.cuts:
            return part
        # Parts that differ in length are padded for the exchange.
        dim, length, n = self._plan.cuts[name], self._lengths[name], self._grid.degree
        longest = -(-length // n)
        shape = list(part.shape)
        shape[dim] = longest
        sent = part.new_zeros(shape)
        sent.narrow(dim, 0, part.shape[dim]).copy_(part)
        sizes = [(place + 1) * length // n - place * length // n for place in range(n)]
        parts = self._group.all_gather(sent)
        return torch.cat([one.narrow(dim, 0, size) for one, size in zip(parts, sizes, strict=True)], dim)

    def close(self) -> None:
        """Take the hooks off."""
        for hook in self._hooks:
            hook.remove()

    def _part(self) -> Part | None:
        """Return this rank's part of the vocabulary, if it is cut."""
        if self._plan.words is None:
            return None
        group = self._group
        start, stop = self._grid.bounds(self._lengths[self._plan.words])
        return Part(start=start, size=stop - start, exchange=lambda x: group.all_gather(x) if x.numel() else [x])


def own_name(name: str) -> str:
    """Return the name that a parameter of a cut model has in the job's own model."""
    return f"{name.removesuffix(_BIAS)}bias" if name.endswith(_BIAS) else name


def cut_parameters(model: nn.Module, plan: Plan, grid: Grid) -> None:
    """Put this rank's parts in the place of whole parameters, under the same names."""
    for name, dim in plan.cuts.items():
        whole = model.get_parameter(name)
        start, stop = grid.bounds(whole.shape[dim])
        own = whole.detach().narrow(dim, start, stop - start).clone(memory_format=torch.contiguous_format)
        part = nn.Parameter(own, requires_grad=whole.requires_grad)
        for module in model.modules():
            for key, held in list(module.named_parameters(recurse=False)):
                if held is whole:
                    setattr(module, key, part)


def _set_biases_aside(model: nn.Module, plan: Plan) -> None:
    for layer in plan.biased:
        module = model.get_submodule(layer)
        bias = module.get_parameter("bias")
        module.register_parameter("bias", None)
        module.register_parameter(_BIAS, bias)


def _hooks(model: nn.Module, plan: Plan, part: Part | None, group: Comm) -> Iterator[RemovableHandle]:
    for name, edge in plan.before.items():
        yield model.get_submodule(name).register_forward_pre_hook(_entering(edge, group, cast=name in plan.layers))
    for name, edge in plan.after.items():
        yield model.get_submodule(name).register_forward_hook(_leaving(edge, group))
    if plan.logits is None or part is None:
        return
    yield model.get_submodule(plan.logits).register_forward_hook(_giving_logits(part))
    for name in plan.lookups:
        module = model.get_submodule(name)
        module.forward = functools.partial(looked_up, module, part)


def _entering(edge: Edge, group: Comm, *, cast: bool) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        (x,) = inputs
        if cast and torch.is_autocast_enabled(x.device.type):
            # The layer would do it anyway; here it halves what is exchanged.
            x = x.to(torch.get_autocast_dtype(x.device.type))
        crossed: Tensor = passed(edge, x, group)
        return crossed

    return hook


def _leaving(edge: Edge, group: Comm) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(module: nn.Module, inputs: object, term: Tensor) -> Tensor:
        y: Tensor = passed(edge, term, group)
        bias = getattr(module, _BIAS, None)
        return y if bias is None else y + bias.to(y.dtype)

    return hook


def _giving_logits(part: Part) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def hook(module: nn.Module, inputs: object, logits: Tensor) -> Tensor:
        return CutLogits.of(logits, part)

    return hook
