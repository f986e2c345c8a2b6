"""The Engine averages gradients over ranks: each group of a plan is exchanged once it is ready, while backward goes on.

backward       c ready   b ready   a ready
                  │ copy     │ copy    │ copy into the pool
comm thread       └ group 0 starts     └ group 1 starts
wire                ════ c ════════════   ════ b a ═══
finish                                  waits ────────┘ gradients are views of the pool: nothing is copied back

Groups start in the order of the plan on every rank. Where that takes no time, backward's thread does it itself.

With turns each group is waited for by itself, when it is needed, and may be overtaken by a more urgent one (`_turns`);
with several slots as many steps have pools of their own, so that a step's gradients may be on their way in the next.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from parbench.api import CommThread, RankContext, Stopwatch, Ticket
from parbench_strategies.replicated._exchanger import Exchanger
from parbench_strategies.replicated._optional import Optional
from parbench_strategies.replicated._order import Board, Order
from parbench_strategies.replicated._planning import Planner
from parbench_strategies.replicated._pools import Pools
from parbench_strategies.replicated._turns import Turns


@final
class Engine:
    """Watches gradients become ready and averages them, group by group, in the order of the plan.

    Args:
        parameters: name -> parameter whose gradient every step makes.
        optional: of those of which a step may leave out some.
        ctx: this rank, one of several.
        planner: what goes together.
        exchanger: how it is exchanged.
        overlap: whether groups go while backward is at work, or all after it.
        stopwatch: told what takes how long.
        ordering: makes the order of a step's groups from their priorities, where they have turns; None gives none.
        halves: whether sums are shared out in turns of their own.
        slots: steps whose gradients may be there at once.
        board: what `ordering` reads, to be ended with the engine.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        optional: Optional,
        ctx: RankContext,
        planner: Planner,
        exchanger: Exchanger,
        *,
        overlap: bool,
        stopwatch: Stopwatch,
        ordering: Callable[[Sequence[int]], Order] | None = None,
        halves: bool = False,
        slots: int = 1,
        board: Board | None = None,
    ) -> None:
        self._parameters = parameters
        self._optional = optional
        self._device = ctx.device
        self._planner = planner
        self._exchanger = exchanger
        self._overlap = overlap
        self._stopwatch = stopwatch
        # A gradient is divided while it is copied, where nothing else looks at its size.
        self._scale = 1 / ctx.world_size if exchanger.in_place else 1.0
        self._ordering, self._halves, self._board = ordering, halves, board
        self._pools = Pools(parameters, slots)
        self._slots, self._step = slots, -1
        self._turns: Turns | None = None  # of the step that is under way
        self._left: deque[Turns] = deque()  # of steps whose gradients may be on their way, the latest last
        self._held = self._begun = self._closed = False
        self._started_s, self._early = 0.0, 0
        self.lay_out()
        self._hooks = [
            p.register_post_accumulate_grad_hook(partial(self._arrived, name))  # type: ignore[no-untyped-call]
            for name, p in parameters.items()
        ]
        self._thread = None if exchanger.immediate and ordering is None else CommThread(ctx.device)

    def begin(self) -> None:
        """Begin a step, before its backward.

        Raises:
            RuntimeError: the last one was not finished.
        """
        if self._begun:
            raise RuntimeError("the last step failed, and the ranks may differ; close this trainer and make another")
        self._begun = True
        self._step += 1
        self._pools.use(self._step)
        if self._ordering is not None and self._thread is not None:
            lanes = self._pools.lanes
            order = self._ordering([lane.priority for lane in lanes])
            self._turns = Turns(lanes, order, self._exchanger, self._thread, halves=self._halves)
        self._started_s = self._moment()
        self._missing = dict.fromkeys(self._parameters)
        self._waiting = list(self._pools.sizes)
        self._next = 0
        self._handed_over: set[int] = set()
        self._last: Ticket | None = None

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep gradients to this rank while this context lasts: they are not whole yet."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def finish(self) -> None:
        """End a step: return once every gradient of the step is averaged.

        Raises:
            RuntimeError: backward gave a parameter no gradient, and the job does not say that this may be.
        """
        self.leave()
        with torch.no_grad(), self._stopwatch.exposed():
            if self._turns is not None:
                self._turns.land_all()  # first: two threads must not issue collectives side by side
            if self._optional:
                self._issue(self._optional.average)
            if self._last is not None:
                self._last.wait()
            if self._turns is None:
                self._exchanger.finish()
            self._pools.show(self._pools.scattered)
        if self.planned_anew():
            self.lay_out()

    # ---- steps whose gradients are waited for later

    @property
    def settled(self) -> bool:
        """Whether the plan stays as it is."""
        return self._planner.settled

    def planned_anew(self) -> bool:
        """Plan by what this step took, and return whether the next has another plan: then `lay_out`."""
        return not self._planner.settled and self._planner.step(self._moment() - self._started_s)

    def lay_out(self) -> None:
        """Make pools for the present plan; nothing may be on its way."""
        self._left.clear()
        self._pools.lay_out(self._planner.plans, self._planner.order)
        self._exchanger.lay_out(self._pools.layout)
        self._stopwatch.reset()

    def leave(self) -> None:
        """End a step's backward: every gradient is on its way, or will be without anything being done.

        Raises:
            RuntimeError: backward gave a parameter no gradient, and the job does not say that this may be.
        """
        if not self._begun:
            raise RuntimeError("a step is ended that was not begun")
        with torch.no_grad(), self._stopwatch.exposed():
            self._early = self._next
            self._take_what_is_held()
            for number in range(len(self._pools.lanes)):
                if number not in self._handed_over:
                    self._submit(number)
            if self._turns is not None:
                self._turns.all_ready()
                self._left.append(self._turns)
                if len(self._left) > self._slots:
                    self._left.popleft()
        self._begun = False
        self._stopwatch.step()

    def land(self, names: Sequence[str]) -> None:
        """Wait until these parameters' gradients of the last step are averaged, and let them see them."""
        with torch.no_grad(), self._stopwatch.exposed():
            for name in names:
                for number in self._pools.lanes_of[name]:
                    self._left[-1].land(number)
            self._pools.show(names)

    def land_step(self, ago: int) -> None:
        """Wait for all gradients of the step so many before the last, and let all parameters see them."""
        with torch.no_grad(), self._stopwatch.exposed():
            self._left[-1 - ago].land_all()
            self._pools.use(self._step - ago)
            self._pools.show(list(self._parameters))

    def land_all(self) -> None:
        """Wait until nothing is on its way."""
        with torch.no_grad(), self._stopwatch.exposed():
            for turns in self._left:
                turns.land_all()

    @property
    def sequence(self) -> Sequence[int]:
        """The groups of the last step with turns, numbered as they become ready, in the order of their turns."""
        return self._left[-1].sequence if self._left else ()

    def close(self) -> None:
        """Give up a step that was not finished, end the thread and remove the hooks; again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._board is not None:
            self._board.end()
        for hook in self._hooks:
            hook.remove()
        if self._thread is not None:
            self._thread.close()
        self._exchanger.close()
        self._planner.close()

    def notes(self) -> Mapping[str, str | int | float]:
        """Return what the plan came to, and how many groups of the last step did not wait for the end of backward."""
        largest = max((lane.flat.numel() * lane.flat.element_size() for lane in self._pools.lanes), default=0)
        return {
            "groups": len(self._pools.lanes),
            "groups_started_in_backward": self._early,
            "largest_group_bytes": largest,
            **self._exchanger.notes(),
        }

    def _moment(self) -> float:
        """Return the time; while plans go by it, after what an accelerator still does."""
        if not self._planner.settled and self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    # ---- in the thread of backward

    def _arrived(self, name: str, parameter: Tensor) -> None:
        if self._held or not self._begun:
            return
        if name not in self._missing:
            raise RuntimeError(f"backward gave {name!r} a gradient twice, but the first may be on its way already")
        if not self._planner.settled:
            self._planner.arrived(name)
        self._take(name, parameter)
        if self._overlap:
            if self._board is not None:
                for number in self._pools.lanes_of[name]:
                    if not self._waiting[number]:
                        self._submit(number)
                return
            # With the last group backward is over: `leave` starts it, without a thread if that has nothing else to do.
            most = len(self._pools.lanes) - (self._thread is not None and self._turns is None)
            while self._next < most and not self._waiting[self._next]:
                self._submit(self._next)

    def _take(self, name: str, parameter: Tensor) -> None:
        """Copy a gradient into the pool, and let its parameter see it there."""
        del self._missing[name]
        gradient = parameter.grad
        if gradient is None:
            raise RuntimeError(f"{name!r} has lost its gradient inside backward")
        if gradient.layout is not torch.strided:
            gradient = gradient.to_dense()
        self._pools.take(name, gradient, self._scale)
        for number in self._pools.lanes_of[name]:
            self._waiting[number] -= 1

    def _submit(self, number: int) -> None:
        self._handed_over.add(number)
        if self._turns is not None:
            self._turns.ready(number)
        else:
            self._issue(partial(self._exchanger.start, number))
        self._next += 1

    def _issue(self, job: Callable[[], None]) -> None:
        if self._thread is None or (self._last is None and self._next + 1 >= len(self._pools.lanes)):
            job()
        else:
            self._last = self._thread.submit(job)

    # ---- in the stepping thread

    def _take_what_is_held(self) -> None:
        """Take what earlier micro-batches gave and the last one did not: no hook has told of it."""
        for name in list(self._missing):
            parameter = self._parameters[name]
            if parameter.grad is None:
                raise RuntimeError(
                    f"backward gave {name!r} no gradient, and the job does not list it as unused; add it"
                )
            if not self._planner.settled:  # later than any other: it is there when all of backward is done
                self._planner.arrived(name)
            self._take(name, parameter)
