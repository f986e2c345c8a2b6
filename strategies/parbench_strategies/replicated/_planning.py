"""A Planner turns a fusion rule into the plan of the next step: the same on every rank, which each checks by hash.

step   0            1 2               3 ...
plan   by the       the same, while   by the order and the times that rank 0 saw; where the rule searches,
       model        it is timed       one after the other, until it has found what to stay with
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, final

import torch
from torch import nn

from parbench.api import Compressor, checked_plan, plan_hash, planned
from parbench.fusion import FusionRule, Gradient, Link, Measured, Plan, Search
from parbench_strategies.replicated._agreement import Word
from parbench_strategies.replicated._arrivals import Arrivals
from parbench_strategies.replicated._layout import Planned

# The first step is left out; a rule that goes by times is given medians of the others.
_TIMED_STEPS: Final = 3


@final
class Planner:
    """Makes the plans of one trainer.

    Attributes:
        plans: of the next step, one per type of gradients.
        order: names of all gradients, in the order in which backward makes them ready.

    Args:
        rule: what groups gradients.
        parameters: name -> parameter whose gradient every step makes, in the order in which that is expected.
        compressor: how long messages are.
        word: by which rank 0 says what it saw.
        points: bytes and seconds of exchanges, where the rule goes by them.
    """

    def __init__(
        self,
        rule: FusionRule,
        parameters: Mapping[str, nn.Parameter],
        compressor: Compressor,
        word: Word,
        points: Sequence[tuple[float, float]] = (),
    ) -> None:
        self._rule = rule
        self._parameters = parameters
        self._compressor = compressor
        self._word = word
        devices = [p.device for p in parameters.values()] or [torch.device("cpu")]
        self._arrivals: Arrivals | None = Arrivals(devices[0])
        self._link: Link | None = None
        self._searches: list[tuple[int, Search]] = []
        self.plans: list[Planned] = []
        self.order: list[str] = []
        self._plan(dict.fromkeys(parameters, 0.0), points)

    @property
    def settled(self) -> bool:
        """Whether the plan stays as it is."""
        return self._arrivals is None and not self._searches

    def arrived(self, name: str) -> None:
        """A gradient is ready now; counts until the plan goes by it."""
        if self._arrivals is not None:
            self._arrivals.note(name)

    def step(self, seconds: float) -> bool:
        """End a step that took so long on this rank, and return whether there is a new plan for the next."""
        before = self.plans
        self._word.forget()
        if self._arrivals is not None:
            self._arrivals.step()
            timed = self._rule.needs_profile or self._rule.probes
            if self._arrivals.steps >= (_TIMED_STEPS if timed else 1):
                ready_s = self._arrivals.profile()
                self._arrivals = None
                self._plan(ready_s if timed else dict.fromkeys(ready_s, 0.0), None)
                self._search(None)
        elif self._searches:
            self._search(float(self._word.share(repr(seconds))))
        return self.plans != before

    def close(self) -> None:
        """Take back what rank 0 said."""
        self._word.close()

    def _plan(self, ready_s: Mapping[str, float], points: Sequence[tuple[float, float]] | None) -> None:
        """Plan by what rank 0 saw.

        Args:
            ready_s: name -> when it is ready, in that order, as this rank saw it.
            points: of the link, as this rank saw it; None leaves it as it is.
        """
        said = json.loads(self._word.share(json.dumps([list(ready_s.items()), points])))
        if said[1]:
            self._link = Measured([(size, duration) for size, duration in said[1]])
        self.order = [name for name, _ in said[0]]
        by_type: dict[torch.dtype, list[Gradient]] = {}
        for name, moment_s in said[0]:
            if name not in self._parameters:
                raise RuntimeError(f"rank 0 has a gradient of {name!r} and this rank none; ranks must build one model")
            parameter = self._parameters[name]
            by_type.setdefault(parameter.dtype, []).append(gradient_of(name, parameter, self._compressor, moment_s))
        self.plans = [self._planned(gradients) for gradients in by_type.values()]
        self._check()
        if self._rule.probes and self._arrivals is None:
            self._searches = [(k, self._begin(one.gradients)) for k, one in enumerate(self.plans)]

    def _planned(self, gradients: Sequence[Gradient]) -> Planned:
        plan = planned(self._rule, gradients, self._link, self._element_bytes(gradients))
        return Planned(gradients=tuple(gradients), plan=plan)

    def _begin(self, gradients: Sequence[Gradient]) -> Search:
        return self._rule.search(gradients, self._link, self._element_bytes(gradients))

    def _search(self, seconds: float | None) -> None:
        """Take the next plan to try, types of gradients one after the other."""
        while self._searches:
            place, search = self._searches[0]
            try:
                self._try(place, next(search) if seconds is None else search.send(seconds))
            except StopIteration as end:
                found: Plan = end.value
                self._try(place, found)
                self._searches.pop(0)
                seconds = None
                self._check()
            else:
                return

    def _try(self, place: int, plan: Plan) -> None:
        gradients = self.plans[place].gradients
        if plan == self.plans[place].plan:
            return
        one = Planned(gradients=gradients, plan=checked_plan(plan, gradients, self._rule.name))
        self.plans = [*self.plans[:place], one, *self.plans[place + 1 :]]
        self._check()

    def _check(self) -> None:
        """Make sure that rank 0 holds the same plans.

        Raises:
            RuntimeError: it does not.
        """
        mine = " ".join(plan_hash(one.plan, one.gradients) for one in self.plans)
        theirs = self._word.share(mine)
        if theirs != mine:
            raise RuntimeError(
                f"fusion rule {self._rule.name} gave this rank another plan than rank 0 for the same gradients "
                f"(hashes {mine[:12]} and {theirs[:12]}); a rule must be a function of its arguments alone"
            )

    def _element_bytes(self, gradients: Sequence[Gradient]) -> int:
        return self._parameters[gradients[0].name].element_size()


def gradient_of(name: str, parameter: nn.Parameter, compressor: Compressor, ready_s: float = 0.0) -> Gradient:
    """Return what a fusion rule is told of a parameter's gradient."""
    size = compressor.message_bytes(parameter.numel(), parameter.element_size())
    return Gradient(name=name, elements=parameter.numel(), bytes=max(1, size), ready_s=ready_s)
