"""An Exchanger turns one group's gradients into their average: compressed or not, by whatever collective."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import final

from parbench.api import Channel, Collective, Comm, Compact, Compressor, InFlight, Reduced, Stopwatch
from parbench_strategies.replicated._feedback import Feedback
from parbench_strategies.replicated._layout import Lane, Layout
from parbench_strategies.replicated._screening import Screen


@final
class Exchanger:
    """Exchanges groups in the order in which they are started; one thread at a time uses it.

    Attributes:
        in_place: whether the gradients' own memory is exchanged; the sum stays there, undivided.
        immediate: whether `start` returns at once.

    Args:
        collective: what adds up.
        compressor: of this trainer alone: it may keep state.
        comm: the ranks.
        stopwatch: told what takes how long.
        momentum: what is compressed is gradients added up with this decay, in the optimizer's place; 0 is gradients.
    """

    def __init__(
        self,
        collective: Collective,
        compressor: Compressor,
        comm: Comm,
        stopwatch: Stopwatch,
        momentum: float = 0.0,
    ) -> None:
        self.in_place = compressor.passes_through and not compressor.feedback
        self.immediate = self.in_place and collective.immediate
        self._collective = collective
        self._compressor = compressor
        self._comm = comm
        self._stopwatch = stopwatch
        self._momentum = momentum
        self._channel = Channel(comm, collective, stopwatch)
        self._screen = Screen(compressor.clip, comm.world_size)
        self._whole = compressor.per == "group"
        self._feedback: Feedback | None = None
        self._lanes: Sequence[Lane] = ()
        self._on_their_way: deque[InFlight] = deque()
        self._to_decode: deque[tuple[int, Lane, Callable[[], Sequence[Reduced]]]] = deque()

    def lay_out(self, layout: Layout) -> None:
        """Exchange these groups from now on; nothing may be on its way."""
        self._lanes = layout.lanes
        if self._compressor.feedback:
            kept = Feedback(layout, self._momentum)
            self._feedback = kept if self._feedback is None else self._feedback.moved_to(kept)

    def start(self, number: int) -> None:
        """Start one group, and end the one before the last: its decoding overlaps with the last one's transfer."""
        if self.in_place:
            flat_N = self._lanes[number].flat
            self._on_their_way.append(self._stopwatch.start(lambda: self._collective.start(flat_N, self._comm)))
            return
        self._encode(number, self._lanes[number])
        if len(self._to_decode) > 1:
            self._decode()

    def exchange(self, number: int, lane: Lane) -> None:
        """Exchange one group from beginning to end; `lane` may lie in another pool than the one laid out."""
        if self.in_place:
            self._stopwatch.wait(self._stopwatch.start(lambda: self._collective.start(lane.flat, self._comm)))
            return
        self._encode(number, lane)
        self._decode()

    def reduce_scatter(self, lane: Lane) -> None:
        """Do the first half of a group: this rank holds the sum of its part alone."""
        self._stopwatch.wait(
            self._stopwatch.start(lambda: self._collective.start_reduce_scatter(lane.flat, self._comm))
        )

    def all_gather(self, lane: Lane) -> None:
        """Do the second half: every rank holds all sums."""
        self._stopwatch.wait(self._stopwatch.start(lambda: self._collective.start_all_gather(lane.flat, self._comm)))

    def end_step(self) -> None:
        """All groups of a step are exchanged."""
        self._compressor.step += 1

    def _encode(self, number: int, lane: Lane) -> None:
        with self._stopwatch.spends("encode"):
            self._screen.apply(lane)
            given = lane if self._feedback is None else self._feedback.add(number, lane.flat)
            keys = [lane.key] if self._whole else [part.key for part in lane.parts]
            grads = given.given(whole=self._whole)
            self._to_decode.append((number, lane, self._compressor.start(grads, keys, self._channel)))

    def finish(self) -> None:
        """End all groups that were started."""
        while self._on_their_way:
            self._on_their_way.popleft().wait()
        while self._to_decode:
            self._decode()
        self.end_step()

    def notes(self) -> Mapping[str, int]:
        """Return what was wrong with gradients, if anything was."""
        return self._screen.notes()

    def close(self) -> None:
        """Close the collective."""
        self._collective.close()

    def _decode(self) -> None:
        number, lane, finish = self._to_decode.popleft()
        with self._stopwatch.spends("decode"):
            reduced = finish()
            if self._feedback is not None:
                self._feedback.keep(number, reduced, whole=self._whole)
            for grad, one in zip(lane.given(whole=self._whole), reduced, strict=True):
                if isinstance(one.average, Compact):
                    one.average.write_to(grad)
                else:
                    grad.copy_(one.average)
