"""Blame finds the rank that a ring broke at: all others only lost a neighbour, which had lost its own.

rank 2 is gone      1 and 3 see it, say so in the store and close; 0 loses 3 and reads there that it was 2
rank 2 stands       3 waits for 2, 0 for 3, 1 for 0: each says for whom; the one that says nothing is the one
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from parbench.network.ring_errors import PeerGone, PeerStalled, stalled

if TYPE_CHECKING:
    from parbench.launch.stores import Store

_VERDICT = "blame"
# How long ranks that wait in a circle get to say so: they started to wait within moments of each other.
_GRACE_S = 1.0
_TICK_S = 0.02


def explained(
    error: PeerGone | PeerStalled, store: Store, rank: int, doing: str, timeout_s: float
) -> PeerGone | PeerStalled:
    """Return the error that names the rank to blame; the neighbour's own where the store is gone too.

    Args:
        error: what this rank saw of a neighbour; its connections are still open.
        store: the ring's.
        rank: this rank.
        doing: the collective.
        timeout_s: the ring's deadline.
    """
    with contextlib.suppress(Exception):
        if isinstance(error, PeerStalled):
            error = _standing(error, store, rank, doing, timeout_s)
        kind = "stalled" if isinstance(error, PeerStalled) else "gone"
        first = store.compare_set(_VERDICT, "", f"{kind} {rank} {error.rank} {error}").decode()
        kind, witness, culprit, sentence = first.split(" ", 3)
        if int(witness) != rank and int(culprit) != error.rank:
            said = f"{sentence} (seen by rank {witness})"
            return PeerStalled(said, int(culprit)) if kind == "stalled" else PeerGone(said, int(culprit))
    return error


def _standing(error: PeerStalled, store: Store, rank: int, doing: str, timeout_s: float) -> PeerStalled:
    """Follow who waits for whom, to the rank that does not say that it waits."""
    store.set(f"waits/{rank}", str(error.rank))
    deadline_s = time.monotonic() + min(_GRACE_S, timeout_s)
    culprit, met = error.rank, {rank}
    while time.monotonic() < deadline_s and culprit not in met:
        if store.check([f"waits/{culprit}"]):
            met.add(culprit)
            culprit = int(store.get(f"waits/{culprit}"))
        else:
            time.sleep(_TICK_S)
    if culprit in met or culprit == error.rank:
        return error  # they wait in a circle: then it is the network
    _, port, host = store.get(f"address/{culprit}").decode().split(" ", 2)
    return stalled(culprit, f"{host}:{port}", doing, timeout_s)
