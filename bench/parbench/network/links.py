"""A Shape is what one direction of a link lets through, with the burst and packet size that make it true, and why.

Two traps decide both (measured, 2 cores): a burst below the largest packet makes the kernel cut every packet up, and
the processor, not the link, becomes the limit; a burst that refills within a collective's start-up cost swallows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from parbench.errors import UsageError
from parbench.network.quantities import rate_text, time_text
from parbench.network.spelling import Network

# Largest packet -> the burst that lets it pass whole, headers and the shaper's own rounding included.
_BURST_OF = {65536: 70_000, 32768: 34_000, 16384: 17_000, 8192: 8_600, 4096: 4_400}
_WHOLE = 65536
# A shaper that is woken late must not lose what it could have sent meanwhile.
_LATE_S = 1.05e-3
# How long a packet may wait at a link before it is dropped.
QUEUE_S = 0.05
PAYLOAD_SHARE = 0.956  # of a link's rate: 1448 bytes of TCP payload in 1514 on Ethernet


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One direction of a link.

    Attributes:
        rate_bits_per_s: what it carries.
        burst_bytes: what it may carry at once after a pause.
        gso_bytes: largest packet that is handed to it.
        because: why these two.
    """

    rate_bits_per_s: float
    burst_bytes: int
    gso_bytes: int
    because: str


def shape(network: Network, rate_bits_per_s: float) -> Shape:
    """Return how to shape one direction of a link of `network`.

    Raises:
        UsageError: no burst keeps the start-up cost asked for.
    """
    if network.gso_bytes is not None or network.burst_bytes is not None:
        return _asked_for(network, rate_bits_per_s)
    if not network.alpha_s:
        burst = max(_BURST_OF[_WHOLE], round(rate_bits_per_s / 8 * _LATE_S))
        because = f"whole packets of {_WHOLE} bytes, and what passes in {time_text(_LATE_S)}"
        return Shape(rate_bits_per_s=rate_bits_per_s, burst_bytes=burst, gso_bytes=_WHOLE, because=because)
    for gso, burst in _BURST_OF.items():
        if burst * 8 / rate_bits_per_s <= network.alpha_s / 2:
            refill = time_text(burst * 8 / rate_bits_per_s)
            because = (
                f"refills in {refill}, at most half of alpha = {time_text(network.alpha_s)}, which it would swallow"
            )
            return Shape(rate_bits_per_s=rate_bits_per_s, burst_bytes=burst, gso_bytes=gso, because=because)
    least_s = 2 * 8 * min(_BURST_OF.values()) / rate_bits_per_s
    raise UsageError(
        f"alpha={time_text(network.alpha_s)} cannot be kept on a link of {rate_text(rate_bits_per_s)}: the smallest "
        f"burst refills in {time_text(least_s / 2)} and swallows it; ask for at least {time_text(least_s)}, "
        "a faster link, or burst= to have it all the same"
    )


def _asked_for(network: Network, rate_bits_per_s: float) -> Shape:
    burst, gso = network.burst_bytes, network.gso_bytes
    if burst is None and gso is not None:
        burst = next((b for g, b in sorted(_BURST_OF.items()) if g >= gso), _BURST_OF[_WHOLE])
    if gso is None and burst is not None:
        # A packet is a little larger than its payload.
        gso = next((g for g, b in _BURST_OF.items() if b <= burst), burst * 15 // 16)
    because = (
        "burst and gso asked for" if None not in (network.burst_bytes, network.gso_bytes) else "one follows the other"
    )
    return Shape(rate_bits_per_s=rate_bits_per_s, burst_bytes=burst or 0, gso_bytes=gso or 0, because=because)
