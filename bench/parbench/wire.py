"""Wire bytes are what a backend's own algorithm sends for a collective, where that is known; logical ones are ideal.

gloo (measured with interface counters, 16 MB at 4 ranks): reduce_scatter is an all-reduce of which each rank keeps a
part, so it sends twice the ideal; broadcast is a binomial tree, in which rank v (counted from the root) sends to
v + 2^i for every 2^i > v; all_reduce and all_gather are rings and send the ideal. NCCL chooses among rings, trees and
switches by size and topology, and does not say which.
"""

from __future__ import annotations

from fractions import Fraction


def wire_bytes(backend: str, op: str, size: int, n: int, place: int, logical: Fraction) -> Fraction | None:
    """Return what one rank sends, or None where the backend's algorithm is not known.

    Args:
        backend: "gloo" or "nccl".
        op: the collective.
        size: bytes of the whole buffer of one rank.
        n: ranks that take part.
        place: this rank, counted from the root where there is one.
        logical: what the ideal algorithm sends.
    """
    if op in ("send", "recv", "barrier"):
        return logical
    if backend != "gloo":
        return None
    if op == "reduce_scatter":
        return 2 * logical
    if op == "broadcast":
        return Fraction(size * sum(1 for i in range(n.bit_length()) if 2**i > place and place + 2**i < n))
    return logical
