"""A Ring moves tensors between 2 to 8 ranks over plain sockets, in one thread per rank that sleeps when nothing moves.

with Ring.connect(store, rank, world_size) as ring:
    pending = ring.all_reduce_async(gradient)      # in issue order, one after the other, on all ranks the same
    ...                                            # compute
    pending.wait()                                 # the sum, bit for bit the same on every rank
"""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import TYPE_CHECKING, final

from torch import Tensor

from parbench.annotations import annotated, named
from parbench.errors import UsageError
from parbench.network.ring_blame import explained
from parbench.network.ring_errors import PeerGone, PeerStalled, RingClosed
from parbench.network.ring_link import join_neighbours
from parbench.network.ring_plan import Op, bounds
from parbench.network.ring_stream import RingStream
from parbench.network.ring_work import Collective, work_of
from parbench.network.sleeping import sleep_exactly, wake_on_time

if TYPE_CHECKING:
    from parbench.launch.stores import Store


@final
class Pending:
    """A collective that was issued; `wait` gives its result."""

    def __init__(self, collective: Collective) -> None:
        self.collective = collective
        # Held until the end: half the cost of an Event, which counts where a collective takes half a millisecond.
        self._running = threading.Lock()
        self._running.acquire()
        self._error: BaseException | None = None

    def end(self, error: BaseException | None) -> None:
        """Let those who wait go on; called by the ring."""
        self._error = error
        self._running.release()

    def wait(self) -> Tensor:
        """Block until it is complete and return the tensor it filled.

        Raises:
            PeerGone, PeerStalled, RingMismatch: a rank is gone, stands still, or issued another collective.
            RingClosed: the ring was closed first.
        """
        with annotated("wait"), self._running:
            pass
        if self._error is not None:
            raise self._error
        return self.collective.result

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return not self._running.locked()


@final
class Ring:
    """Collectives at the ideal number of bytes; use `connect`. Tensors are on the CPU and contiguous.

    A tensor must not be touched between issue and `wait`. Reduce-scatter and all-gather send (n-1)/n of the buffer,
    all-reduce twice that, each with one header of `HEADER_BYTES`; `ring_plan` states the order of additions.

    Attributes:
        rank: this rank.
        world_size: ranks in the ring.
        alpha_s: seconds slept before each collective, in the ring's thread, to stand for a network's start-up cost:
            injected once per collective, not once per hop.
    """

    def __init__(self, stream: RingStream | None, store: Store, rank: int, world_size: int, *, alpha_s: float) -> None:
        self.rank = rank
        self.world_size = world_size
        self.alpha_s = alpha_s
        self._stream = stream
        self._store = store
        self._issued = 0
        self._broken: BaseException | None = None
        self._closing = False
        self._pending: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="parbench-ring", daemon=True)
        self._thread.start()

    @staticmethod
    def connect(
        store: Store,
        rank: int,
        world_size: int,
        *,
        host: str = "127.0.0.1",
        timeout_s: float = 60.0,
        alpha_s: float = 0.0,
        name: str = "ring",
    ) -> Ring:
        """Join the ring; returns once both neighbours are connected. Every rank calls this, rings in one order.

        Args:
            store: where ranks exchange addresses, and say whom to blame; no other thread may hold it in a long wait
                when a rank dies.
            rank: this rank.
            world_size: ranks in the ring.
            host: the address of this rank that the previous one can reach.
            timeout_s: seconds to connect, and later seconds without a byte after which a collective fails.
            alpha_s: see the class.
            name: tells rings in one store apart; a name may be used again.

        Raises:
            UsageError: the numbers make no ring.
            PeerGone, PeerStalled: a neighbour did not come.
        """
        from parbench.launch.stores import under

        if not 0 <= rank < world_size or timeout_s <= 0 or alpha_s < 0:
            raise UsageError(
                f"rank {rank} of {world_size}, timeout_s={timeout_s:g}, alpha_s={alpha_s:g}: a ring needs 0 <= rank < "
                "world_size, a positive timeout and no negative start-up cost"
            )
        made = store.add(f"{name}/made/{rank}", 1)
        own = under(f"{name}/{made}", store)
        if world_size == 1:
            return Ring(None, own, rank, world_size, alpha_s=alpha_s)
        previous, following = join_neighbours(own, rank, world_size, host=host, timeout_s=timeout_s)
        return Ring(RingStream(previous, following, timeout_s), own, rank, world_size, alpha_s=alpha_s)

    # ---- collectives

    def all_reduce_async(self, tensor: Tensor) -> Pending:
        """Start adding `tensor` over all ranks, in place."""
        return self._issue("all_reduce", tensor, tensor)

    def reduce_scatter_async(self, shard: Tensor, whole: Tensor) -> Pending:
        """Start adding `whole` over all ranks; `shard` gets this rank's `part` of the sum. `whole` is only read."""
        return self._issue("reduce_scatter", whole, shard)

    def all_gather_async(self, whole: Tensor, shard: Tensor) -> Pending:
        """Start filling `whole` with every rank's `shard`, in rank order; `shard` may be its place in `whole`."""
        return self._issue("all_gather", whole, shard)

    def broadcast_async(self, tensor: Tensor, source: int = 0) -> Pending:
        """Start giving every rank the `tensor` of rank `source`, in place."""
        return self._issue("broadcast", tensor, tensor, source)

    def part(self, numel: int, rank: int | None = None) -> slice[int, int, None]:
        """Return the part of `numel` elements that is this rank's (or `rank`'s) shard."""
        borders = bounds(numel, self.world_size)
        mine = self.rank if rank is None else rank
        return slice(borders[mine], borders[mine + 1])

    # ---- accounts

    @property
    def sent_bytes(self) -> int:
        """Bytes sent since the ring was connected, headers included."""
        return self._stream.sent_bytes if self._stream else 0

    @property
    def received_bytes(self) -> int:
        """Bytes received since the ring was connected, headers included."""
        return self._stream.received_bytes if self._stream else 0

    @property
    def label(self) -> str:
        """What a record says of this transport."""
        alpha = f", {self.alpha_s:g} s injected once per collective in its thread" if self.alpha_s else ""
        return f"ring of {self.world_size} over plain TCP sockets{alpha}"

    # ---- living and ending

    def close(self) -> None:
        """End the thread and the connections at once; collectives in flight fail. Closing again does nothing."""
        self._closing = True
        self._pending.put(None)
        if self._stream is not None:
            self._stream.end()  # wakes the thread
        self._thread.join()
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Ring:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _issue(self, op: Op, whole: Tensor, shard: Tensor, source: int = 0) -> Pending:
        collective = Collective.of(op, self._issued, whole, shard, self.rank, self.world_size, source)
        if self._closing:
            raise RingClosed(f"{collective.title} was issued on a ring that is closed; connect a new one")
        self._issued += 1
        pending = Pending(collective)
        self._pending.put(pending)
        return pending

    def _serve(self) -> None:
        wake_on_time()
        while (pending := self._pending.get()) is not None:
            pending.end(self._attempt(pending.collective))
            # While the thread sleeps, no tensor of a finished collective is kept alive.
            del pending
        while not self._pending.empty():
            if (left := self._pending.get()) is not None:
                left.end(RingClosed(f"the ring was closed before {left.collective.title}"))

    def _attempt(self, collective: Collective) -> BaseException | None:
        """Carry out one collective and return what went wrong, if anything did, now or earlier."""
        if self._broken is not None:
            return self._broken
        try:
            if self.alpha_s:
                sleep_exactly(self.alpha_s)
            with named(f"collective:{collective.op}"):
                collective.prepare()
                if self._stream is not None:
                    self._stream.run(work_of(collective))
        except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting thread must know
            self._broken = self._explained(error, collective)
            if self._stream is not None:
                self._stream.end()  # so that the neighbours fail now and not at their deadlines
        return self._broken

    def _explained(self, error: BaseException, collective: Collective) -> BaseException:
        """Return the error that names the rank to blame."""
        if self._closing:
            return RingClosed(f"the ring was closed during {collective.title}")
        if self._stream is None or not isinstance(error, PeerGone | PeerStalled):
            return error
        return explained(error, self._store, self.rank, collective.title, self._stream.timeout_s)
