"""The runtime executes one rank's part of any schedule: it takes what an action needs, computes, and gives on.

    before an action   what it takes is received; what the next one takes is being received meanwhile
    after it           what it gives is being sent; nobody waits for that before the end of the step

m micro-batch, c chunk of this rank.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from parbench.api import Batch, Handle, Job, RankContext, annotated
from parbench.schedule import Action, Transfer
from parbench_strategies.pipelined._boundaries import Boundary
from parbench_strategies.pipelined._channels import Channels
from parbench_strategies.pipelined._halves import Pass, inputs_half, weights_half, whole
from parbench_strategies.pipelined._peers import Peers
from parbench_strategies.pipelined._stages import Layout, Stage


@final
class Runtime:
    """Runs the actions of one rank.

    Args:
        job: gives the loss.
        ctx: this rank; its `rank` and `world_size` are those of the pipeline.
        layout: who holds what.
        stages: of this rank, by chunk.
        given: what each block gives.
        peers: told when a chunk comes to its last backward of a step, and when that is done.

    Attributes:
        peak_live: the most micro-batches of which activations were held at one time, in chunks.
    """

    def __init__(
        self,
        job: Job,
        ctx: RankContext,
        layout: Layout,
        stages: Mapping[int, Stage],
        given: Sequence[Boundary],
        peers: Peers,
    ) -> None:
        self._job = job
        self._ctx = ctx
        self._layout = layout
        self._stages = stages
        self._given = given
        self._peers = peers
        self._channels = Channels(ctx.comm, _transfers(layout))
        self._moves: dict[int, list[_Move]] = {}
        self.peak_live = 0

    def run(self, parts: Sequence[Batch], scale: float, *, last: bool) -> Tensor | None:
        """Take all micro-batches through the pipeline, adding to gradients.

        Args:
            parts: the micro-batches, on this rank's device.
            scale: factor of each micro-batch's summed loss.
            last: whether these are the last micro-batches before the optimizer steps.

        Returns:
            The scaled loss of all of them, detached; None on ranks that do not hold the last stage.
        """
        moves = self._moves_of(len(parts))
        step = _Step(parts=parts, scale=scale)
        for k, move in enumerate(moves):
            for one in moves[k : k + 2]:
                self._expect(one.takes, step)
            if last and move.ends:
                self._peers.last(move.action.chunk)
            try:
                self._do(move, step)
            except Exception:
                self._abandon(moves[k:], step)
                raise
            self.peak_live = max(self.peak_live, len(step.passes))
            if last and move.ends:
                self._peers.complete(move.action.chunk)
        self._channels.flush()
        return step.loss

    def _moves_of(self, microbatches: int) -> list[_Move]:
        """Return what this rank does in a step, in order; worked out once for a number of micro-batches."""
        if microbatches not in self._moves:
            schedule, rank, ranks = self._layout.schedule, self._ctx.rank, self._layout.ranks
            actions = list(schedule.actions(rank, ranks, microbatches))
            final = {one.chunk: k for k, one in enumerate(actions) if one.kind in "BW"}
            self._moves[microbatches] = [
                _Move(one, schedule.takes(one, rank, ranks), schedule.gives(one, rank, ranks), final[one.chunk] == k)
                for k, one in enumerate(actions)
            ]
        return self._moves[microbatches]

    def _abandon(self, moves: Sequence[_Move], step: _Step) -> None:
        """Take and give what is left of a step that failed here, as NaN: other ranks would wait for it for ever."""
        with contextlib.suppress(RuntimeError):  # a peer that is gone needs nothing
            for move in moves:
                self._expect(move.takes, step)
                if move.takes in step.coming:
                    self._take(move, step)
                if move.gives is not None and move.gives not in step.given:
                    self._give(move, self._buffer(move.gives, step).fill_(torch.nan), step)
            self._channels.flush()

    def _do(self, move: _Move, step: _Step) -> None:
        key = (move.action.chunk, move.action.microbatch)
        weights = self._stages[move.action.chunk].parameters
        match move.action.kind:
            case "F":
                step.passes[key] = self._forward(move, step)
            case "B":
                gradient = self._take(move, step)
                with annotated("backward"):
                    back = whole(step.passes[key], gradient)
                self._give(move, back, step)
                del step.passes[key]
            case "I":
                gradient = self._take(move, step)
                with annotated("backward"):
                    back = inputs_half(step.passes[key], gradient, weights)
                self._give(move, back, step)
            case "W":
                with annotated("backward"):
                    weights_half(step.passes[key], weights)
                del step.passes[key]

    def _forward(self, move: _Move, step: _Step) -> Pass:
        part, stage = step.parts[move.action.microbatch], self._stages[move.action.chunk]
        x = self._take(move, step)
        x = part.inputs if x is None else x.requires_grad_()
        with annotated("forward"), self._ctx.autocast():
            result = stage.forward(x)
        if stage.number == len(self._layout.sizes) - 1:
            with annotated("forward"):
                loss = self._job.loss(result.float(), part) * step.scale
            step.loss = loss.detach() if step.loss is None else step.loss + loss.detach()
            return Pass(given=x, result=loss)
        self._give(move, result.detach(), step)
        return Pass(given=x, result=result)

    # ---- what stages give each other

    def _expect(self, transfer: Transfer | None, step: _Step) -> None:
        """Start receiving what an action will take."""
        if transfer is None or transfer.source == transfer.target or transfer in step.coming or transfer in step.taken:
            return
        step.coming[transfer] = self._channels.receive(transfer, self._buffer(transfer, step))

    def _buffer(self, transfer: Transfer, step: _Step) -> Tensor:
        """Return an uninitialised tensor like what is transferred: the result of a stage, or its gradient."""
        boundary = self._given[self._layout.last_block(transfer.stage - (0 if transfer.gradient else 1))]
        samples = step.parts[transfer.microbatch].samples
        return torch.empty((samples, *boundary.shape), dtype=boundary.dtype, device=self._ctx.device)

    def _take(self, move: _Move, step: _Step) -> Tensor | None:
        if move.takes is None:
            return None
        step.taken.add(move.takes)
        return step.coming.pop(move.takes).wait()

    def _give(self, move: _Move, tensor: Tensor | None, step: _Step) -> None:
        transfer = move.gives
        if transfer is None or tensor is None:
            return
        step.given.add(transfer)
        if transfer.source == transfer.target:
            step.coming[transfer] = Handle(None, tensor)
        else:
            self._channels.send(transfer, tensor)


@dataclass(frozen=True, slots=True)
class _Move:
    """An action, what it takes and gives, and whether it is its chunk's last backward of a step."""

    action: Action
    takes: Transfer | None
    gives: Transfer | None
    ends: bool


@final
class _Step:
    """What is under way while micro-batches pass through."""

    def __init__(self, parts: Sequence[Batch], scale: float) -> None:
        self.parts = parts
        self.scale = scale
        self.loss: Tensor | None = None
        self.passes: dict[tuple[int, int], Pass] = {}
        self.coming: dict[Transfer, Handle] = {}
        self.taken: set[Transfer] = set()
        self.given: set[Transfer] = set()


def _transfers(layout: Layout) -> Iterable[Transfer]:
    """Yield what one micro-batch moves between ranks: others move the same."""
    for rank in range(layout.ranks):
        for chunk in range(layout.schedule.chunks):
            for kind in ("F", "I"):
                given = layout.schedule.gives(Action(kind, 0, chunk), rank, layout.ranks)
                if given is not None:
                    yield given
